//! CMD while it runs: a process and the process group it leads.

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use crate::{
    exit,
    members::{Member, members},
    terminal::{Taken, Terminal},
};

/// A running CMD.
pub(crate) struct Child {
    group: Pid,
    terminal: Option<Terminal>,
    reaped: bool,
}

/// What CMD did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It ended, with this exit code.
    Ended(u8),
    /// It was stopped, by this signal.
    Stopped(Signal),
}

impl Child {
    pub(crate) const fn new(group: Pid, terminal: Option<Terminal>) -> Self {
        Self { group, terminal, reaped: false }
    }

    /// What CMD has done since it was asked last.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn change(&mut self) -> Result<Option<Change>, Errno> {
        let status = waitpid(self.group, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED))?;
        let change = match status {
            // The system gives the low eight bits.
            WaitStatus::Exited(_, code) => Change::Ended(code as u8),
            WaitStatus::Signaled(_, signal, _) => Change::Ended(exit::by_signal(signal)),
            WaitStatus::Stopped(_, signal) => Change::Stopped(signal),
            _ => return Ok(None),
        };
        if let Change::Ended(_) = change {
            self.reaped = true;
            self.take_terminal();
        }
        Ok(Some(change))
    }

    /// Sends a signal to the whole group. A group that is gone needs none.
    ///
    /// # Errors
    /// `EPERM` when none of its processes may be signalled by this user.
    pub(crate) fn send(&self, signal: Signal) -> Result<(), Errno> {
        match killpg(self.group, signal) {
            Err(Errno::EPERM) => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// Its processes that have not ended.
    pub(crate) fn members(&self) -> Vec<Member> {
        members(self.group)
    }

    /// Whether the group may still have members. After CMD itself has ended, its number belongs to those it left behind,
    /// and to nobody as soon as there are none.
    pub(crate) fn is_there(&self) -> bool {
        !self.reaped || killpg(self.group, None::<Signal>) != Err(Errno::ESRCH)
    }

    /// Takes the terminal from CMD, if there is one.
    pub(crate) fn take_terminal(&self) -> Option<Taken> {
        self.terminal.as_ref().map(|terminal| terminal.take_back(self.group))
    }

    /// Lets a stopped CMD go on, in the foreground if this process is there.
    pub(crate) fn resume(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.give(self.group);
        }
        let _ = self.send(Signal::SIGCONT);
    }
}
