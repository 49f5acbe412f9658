//! CMD while it runs: a process, the process group it leads, and the control group that all of it is in.

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::WaitStatus,
    },
    unistd::Pid,
};

use crate::{
    exit,
    leaf::{Leaf, Left},
    terminal::{Taken, Terminal},
    tree,
};

/// A running CMD.
pub(crate) struct Child {
    group: Pid,
    terminal: Option<Terminal>,
    /// Its control group, or why it has none.
    leaf: Result<Leaf, String>,
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
    pub(crate) const fn new(group: Pid, terminal: Option<Terminal>, leaf: Result<Leaf, String>) -> Self {
        Self { group, terminal, leaf, reaped: false }
    }

    /// The control group of CMD, or why it has none.
    pub(crate) fn leaf(&self) -> Result<&Leaf, &str> {
        self.leaf.as_ref().map_err(String::as_str)
    }

    /// What CMD has done since it was asked last.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn change(&mut self) -> Result<Option<Change>, Errno> {
        let change = loop {
            match tree::reap()? {
                // The system gives the low eight bits.
                Some(WaitStatus::Exited(pid, code)) if pid == self.group => break Change::Ended(code as u8),
                Some(WaitStatus::Signaled(pid, signal, _)) if pid == self.group => {
                    break Change::Ended(exit::by_signal(signal));
                }
                Some(WaitStatus::Stopped(pid, signal)) if pid == self.group => break Change::Stopped(signal),
                // One that CMD left behind has ended.
                Some(_) => {}
                None => return Ok(None),
            }
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
        if self.reaped && !tree::has_child_in(self.group) {
            return Ok(());
        }
        match killpg(self.group, signal) {
            Err(Errno::EPERM) => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// Sends a signal to the group, and to what CMD left behind elsewhere. KILL reaches all that is in the control group, too.
    ///
    /// # Errors
    /// `EPERM` when some of them may not be signalled by this user, nor can be killed otherwise.
    pub(crate) fn send_to_all(&self, signal: Signal) -> Result<(), Errno> {
        let is_killed = signal == Signal::SIGKILL && self.leaf.as_ref().is_ok_and(Leaf::kill);
        let group = self.send(signal);
        let left =
            if self.reaped { tree::signal_children(signal) } else { tree::signal_left(signal, self.group) };
        match &self.leaf {
            // They are about to end, or do when they are killed.
            Ok(leaf) if leaf.is_populated() && (is_killed || signal != Signal::SIGKILL) => Ok(()),
            _ => group.and(left),
        }
    }

    /// Whether anything of CMD's tree is there, after CMD itself has ended.
    pub(crate) fn left_any(&self) -> bool {
        !self.reaped || !tree::is_gone() || self.leaf.as_ref().is_ok_and(Leaf::is_populated)
    }

    /// CMD has ended by itself, and what it left behind goes on, out of its control group: whether that is done.
    pub(crate) fn dismiss(&self) -> bool {
        self.leaf.as_ref().map_or(Left::Nothing, Leaf::dismiss) != Left::Some
    }

    /// Nobody is to end what is left in the control group, if anything is.
    pub(crate) fn spare(&self) {
        if let Ok(leaf) = &self.leaf {
            leaf.spare();
        }
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
