//! Signals to processes that a test started.

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

/// Sends a signal to a child of this process. If the signal stops the child, it has stopped when this returns. Without
/// that wait, some of its threads would run on for a while on a busy machine.
///
/// # Panics
/// If there is no such child.
pub fn signal(child: u32, signal: Signal) {
    let pid = Pid::from_raw(child.try_into().expect("process ids are small"));
    kill(pid, signal).expect("our own child can be signalled");
    if signal == Signal::SIGSTOP {
        let stopped = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(pid), stopped).expect("our own child can be waited for");
    }
}
