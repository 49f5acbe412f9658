//! Signals to processes that a test started.

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

/// Sends a signal to a child of this process. If the signal is SIGSTOP, returns only when the whole child is paused: on
/// a busy machine, some of its threads run on for a while after the signal.
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
