//! Starts the holder process, and waits in the command of the user until the holder process holds the lock.

use std::{
    fs::OpenOptions,
    io::{self, Read, Write},
    net::Shutdown,
    os::{fd::AsFd, unix::net::UnixStream},
    time::Duration,
};

use leasehold::Handle;
use nix::{
    errno::Errno,
    sys::{
        prctl::{set_name, set_pdeathsig},
        signal::{Signal, kill},
        wait::{WaitStatus, waitpid},
    },
    unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, setsid},
};

use super::watched::Watched;
use crate::{
    cmd::run::{RELEASE_LIMIT, wait_failure},
    event_loop::{EventLoop, now},
    exit::{self, Failure},
    plan,
    signals::{Signals, interrupts_wait},
    spawn::{close_inherited, fork},
};

/// The byte by which the command tells the holder process that the handle is written.
const WRITTEN: u8 = b'w';
/// The longest handle with its line feed.
const MAX_HANDLE: usize = 4096;

/// Which of the two processes this is.
pub(crate) enum Role {
    Starter(Starter),
    Holder(StarterLink, EventLoop),
}

/// The command of the user, which waits for the holder process.
pub(crate) struct Starter {
    holder: Pid,
    socket: UnixStream,
    event_loop: EventLoop,
}

/// The end of the holder process of the socket to the command.
pub(crate) struct StarterLink {
    socket: UnixStream,
}

/// Forks this process, which must have one thread, into the command and the holder process.
///
/// # Errors
/// An error of the operating system.
pub(crate) fn split(signals: Signals, watched: &Watched) -> io::Result<Role> {
    let (socket, holders_socket) = UnixStream::pair()?;
    if let Some(holder) = fork()? {
        drop(holders_socket);
        return Ok(Role::Starter(Starter { holder, socket, event_loop: EventLoop::new(signals, None)? }));
    }
    drop(socket);
    let holders_signals = signals.for_forked_process()?;
    drop(signals);
    // A session of its own: no signal of a terminal ends the holder process, and no step waits for it as for a
    // background job.
    setsid()?;
    set_name(c"lh-holder")?;
    // The command may be killed while this process is stopped: then this process goes on, and finds its link closed.
    set_pdeathsig(Signal::SIGCONT)?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    // A step waits until nobody can write to its output. Standard error stays open until the grant, for messages.
    dup2_stdout(&null)?;
    drop(null);
    close_inherited(&[holders_socket.as_fd(), watched.as_fd(), holders_signals.as_fd()])?;
    let peer = holders_socket.as_fd().try_clone_to_owned()?;
    Ok(Role::Holder(StarterLink { socket: holders_socket }, EventLoop::new(holders_signals, Some(peer))?))
}

impl Starter {
    /// Waits until the holder process holds the lock, and returns the handle.
    ///
    /// # Errors
    /// Why there is no hold. The holder process has ended then, and has printed its own message.
    pub(crate) fn wait_for_grant(&self, plan: &plan::Acquire, watched: &Watched) -> Result<Handle, Failure> {
        self.socket
            .set_nonblocking(true)
            .map_err(|error| Failure::system("cannot wait for the holder process", error))?;
        let mut line = Vec::new();
        loop {
            match (&self.socket).take(MAX_HANDLE as u64).read_to_end(&mut line) {
                Ok(_) => return Err(self.end_of_holder(plan)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Failure::system("cannot wait for the holder process", error)),
            }
            if let Some(text) = line.strip_suffix(b"\n") {
                let handle = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                return handle.ok_or_else(|| Failure::new(exit::BUG, "the holder process sent no handle"));
            }
            let readable = [self.socket.as_fd(), watched.as_fd()];
            let signal = self.event_loop.wait_for(None, &readable).map_err(wait_failure)?;
            if signal == Some(Signal::SIGTSTP) {
                self.stop().map_err(wait_failure)?;
            }
            if let Some(signal) = signal.filter(|signal| interrupts_wait(*signal)) {
                self.end_holder();
                let message =
                    format!("{}: not acquired: {} ended the wait", plan.run.lock_label(), signal.as_str());
                return Err(Failure::new(exit::code_of_signal(signal), message).hidden(plan.run.quiet));
            }
            if watched.has_ended() {
                self.end_holder();
                let (lock, pid) = (plan.run.lock_label(), watched.pid);
                let message = format!("{lock}: not acquired: the process {pid} of --while-pid has ended");
                return Err(Failure::new(plan.run.not_acquired_code, message).hidden(plan.run.quiet));
            }
        }
    }

    /// Stops this command and the holder process until the command is continued. Otherwise the holder process, which no
    /// signal of the terminal reaches, could hold the lock for a command that does nothing.
    fn stop(&self) -> Result<(), Errno> {
        kill(self.holder, Signal::SIGSTOP)?;
        let stopped = self.event_loop.signals().stop();
        kill(self.holder, Signal::SIGCONT)?;
        stopped
    }

    /// Tells the holder process that the handle is written: from now on it lives alone.
    ///
    /// # Errors
    /// If the holder process has ended meanwhile.
    pub(crate) fn confirm(self, plan: &plan::Acquire) -> Result<(), Failure> {
        (&self.socket).write_all(&[WRITTEN]).map_err(|_| self.end_of_holder(plan))
    }

    /// Makes the holder process release what it holds, and waits for its end, but not for long.
    pub(crate) fn end_holder(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let end = now().saturating_add(RELEASE_LIMIT);
        // The end of a child wakes the loop.
        while matches!(
            waitpid(self.holder, Some(nix::sys::wait::WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::StillAlive)
        ) {
            let left = end.saturating_sub(now());
            if left.is_zero() || self.event_loop.wait(Some(left.min(Duration::from_secs(1)))).is_err() {
                return;
            }
        }
    }

    /// The failure if the holder process has ended without a hold. The holder process has printed why.
    fn end_of_holder(&self, plan: &plan::Acquire) -> Failure {
        let how = loop {
            match waitpid(self.holder, None) {
                Err(Errno::EINTR) => {}
                Ok(WaitStatus::Exited(_, code)) if code != i32::from(exit::DONE) => {
                    // The system reports only the low eight bits of the code.
                    return Failure::silent(code as u8);
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => break format!("{} ended", signal.as_str()),
                _ => break "a fault ended".to_owned(),
            }
        };
        let lock = plan.run.lock_label();
        Failure::new(exit::BUG, format!("{lock}: {how} the holder process, which holds nothing any more"))
    }
}

/// How a hand-over ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandedOver {
    /// The command has written the handle.
    Written,
    /// The command has written the handle, and a signal has asked for the end meanwhile.
    WrittenAndEnded,
    /// The command was killed, or could not write the handle: nobody can use the hold.
    NotWritten,
}

/// Whether a signal asks a holder process for its end: an operator ends it, or breaks a hold of the file engine.
pub(super) const fn ends_holder(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT)
}

impl StarterLink {
    /// Gives up the standard error of the step, and sends the handle to the command. Waits until the command has
    /// written the handle.
    pub(crate) fn hand_over(&mut self, handle: &Handle, event_loop: &EventLoop) -> io::Result<HandedOver> {
        crate::log::flush();
        dup2_stderr(OpenOptions::new().write(true).open("/dev/null")?)?;
        self.socket.write_all(format!("{handle}\n").as_bytes())?;
        self.socket.set_nonblocking(true)?;
        let mut written = HandedOver::Written;
        loop {
            let mut byte = [0];
            match self.socket.read(&mut byte) {
                Ok(1) if byte == [WRITTEN] => return Ok(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return Ok(HandedOver::NotWritten),
            }
            if event_loop.wait_for(None, &[self.socket.as_fd()])?.is_some_and(ends_holder) {
                written = HandedOver::WrittenAndEnded;
            }
        }
    }
}
