//! Signals without handlers: they are blocked, and a descriptor reports them one after the other.

use std::os::fd::{AsFd, BorrowedFd};

use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal, kill},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::Pid,
};

use crate::spawn::InitialMask;

/// The signals that are passed on to CMD.
const FORWARDED: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
    Signal::SIGTSTP,
];

/// The descriptor that reports the signals of this process, and the signal mask with which this process was started.
pub(crate) struct Signals {
    fd: SignalFd,
    /// The signals that the descriptor reports.
    reported: SigSet,
    initial_mask: InitialMask,
}

impl Signals {
    /// The signal by which the guardian stops itself to make the front stop its whole process group.
    pub(crate) const STOP_WITH_GROUP: Signal = Signal::SIGTTIN;

    /// Blocks the forwarded signals; from now on they are read from a descriptor. The caller must call this before the
    /// first thread starts, because threads inherit the signal mask.
    ///
    /// Signals that were ignored when this process started stay ignored, for `nohup` and similar programs.
    ///
    /// # Errors
    /// An error of the operating system: it has no descriptor left.
    pub(crate) fn take() -> Result<Self, Errno> {
        let mut reported = SigSet::empty();
        FORWARDED
            .into_iter()
            .filter(|&signal| !crate::spawn::is_ignored(signal))
            .for_each(|signal| reported.add(signal));
        reported.add(Signal::SIGCHLD);
        let mut blocked = reported;
        // With this signal blocked, a process in the background can take the terminal back.
        blocked.add(Signal::SIGTTOU);
        let initial_mask = crate::spawn::block_signals(&blocked)?;
        Self::open(reported, initial_mask)
    }

    /// The same signals for a process that was forked from this one, read from another descriptor.
    ///
    /// # Errors
    /// An error of the operating system: it has no descriptor left.
    pub(crate) fn for_forked_process(&self) -> Result<Self, Errno> {
        Self::open(self.reported, self.initial_mask)
    }

    /// Opens a descriptor for these signals.
    fn open(reported: SigSet, initial_mask: InitialMask) -> Result<Self, Errno> {
        let fd = SignalFd::with_flags(&reported, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { fd, reported, initial_mask })
    }

    /// The signal mask with which CMD is to start.
    pub(crate) const fn initial_mask(&self) -> InitialMask {
        self.initial_mask
    }

    /// The next pending signal. `None`: no signal is pending.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn next(&self) -> Result<Option<Signal>, Errno> {
        let info = self.fd.read_signal()?;
        Ok(info.and_then(|info| Signal::try_from(info.ssi_signo as i32).ok()))
    }

    /// Stops this process, as SIGTSTP does by default. Returns when the process is continued. The kernel does not stop
    /// a process that no other process could continue, such as one without a shell; then this function returns at once.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn stop(&self) -> Result<(), Errno> {
        stop(Pid::this())
    }

    /// Stops the whole process group of this process, as Ctrl-Z at the terminal does.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn stop_group(&self) -> Result<(), Errno> {
        stop(Pid::from_raw(0))
    }

    /// Stops the guardian, by the signal that makes the front stop its process group.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn stop_with_group(&self) -> Result<(), Errno> {
        kill(Pid::this(), Self::STOP_WITH_GROUP)
    }
}

/// Stops a process. With the id 0, stops the process group of this process.
fn stop(process: Pid) -> Result<(), Errno> {
    let stop = SigSet::from(Signal::SIGTSTP);
    kill(process, Signal::SIGTSTP)?;
    // The signal is pending, because it is blocked. It takes effect while it is unblocked here.
    stop.thread_unblock()?;
    stop.thread_block()
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether a signal ends the wait for the lock. The signals that do not end it concern only CMD or job control.
pub(crate) fn interrupts_wait(signal: Signal) -> bool {
    !matches!(signal, Signal::SIGCHLD | Signal::SIGCONT | Signal::SIGTSTP)
}
