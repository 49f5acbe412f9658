//! CMD while it runs: its process, the process group that it leads, and the control group that has all its descendants.

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
    leaf::{Leaf, MoveOut},
    terminal::{TakeBack, Terminal},
    tree,
};

/// A running CMD.
pub(crate) struct Child {
    /// The process group that CMD leads. The id of the group is the process id of CMD.
    group: Pid,
    /// The terminal, if leasehold has one.
    terminal: Option<Terminal>,
    /// CMD's control group, or the reason why it has none.
    leaf: Result<Leaf, String>,
    /// Whether CMD has ended and was waited for (reaped).
    reaped: bool,
}

/// A change in the state of CMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// CMD ended with this exit code.
    Ended(u8),
    /// CMD was stopped by this signal.
    Stopped(Signal),
}

impl Child {
    pub(crate) const fn new(group: Pid, terminal: Option<Terminal>, leaf: Result<Leaf, String>) -> Self {
        Self { group, terminal, leaf, reaped: false }
    }

    /// CMD's control group, or the reason why it has none.
    pub(crate) fn leaf(&self) -> Result<&Leaf, &str> {
        self.leaf.as_ref().map_err(String::as_str)
    }

    /// The change of CMD's state since the last call, if any.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn change(&mut self) -> Result<Option<Change>, Errno> {
        let change = loop {
            match tree::reap()? {
                // The system reports only the low eight bits of the code.
                Some(WaitStatus::Exited(pid, code)) if pid == self.group => break Change::Ended(code as u8),
                Some(WaitStatus::Signaled(pid, signal, _)) if pid == self.group => {
                    break Change::Ended(exit::code_of_signal(signal));
                }
                Some(WaitStatus::Stopped(pid, signal)) if pid == self.group => break Change::Stopped(signal),
                // A process that CMD left behind has ended.
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

    /// Sends a signal to CMD's whole process group. It is no error if the group does not exist any more.
    ///
    /// # Errors
    /// `EPERM` when this user is not allowed to signal any process of the group.
    pub(crate) fn send(&self, signal: Signal) -> Result<(), Errno> {
        if self.reaped && !tree::has_child_in(self.group) {
            return Ok(());
        }
        match killpg(self.group, signal) {
            Err(Errno::EPERM) => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// Sends a signal to the process group and to descendants of CMD outside of it. KILL also reaches all processes in
    /// the control group.
    ///
    /// # Errors
    /// `EPERM` when this user is not allowed to signal some of these processes, and they cannot be killed through the
    /// control group either.
    pub(crate) fn send_to_all(&self, signal: Signal) -> Result<(), Errno> {
        let is_killed = signal == Signal::SIGKILL && self.leaf.as_ref().is_ok_and(Leaf::kill);
        let group = self.send(signal);
        let outside_group = if self.reaped {
            tree::signal_children(signal)
        } else {
            tree::signal_children_outside(signal, self.group)
        };
        match &self.leaf {
            // It does not matter that some processes could not be signalled: those in the control group were killed
            // through it and are about to end, or they will be killed through it when KILL is sent.
            Ok(leaf) if leaf.is_populated() && (is_killed || signal != Signal::SIGKILL) => Ok(()),
            _ => group.and(outside_group),
        }
    }

    /// Whether CMD or any of its descendants still runs.
    pub(crate) fn is_any_running(&self) -> bool {
        !self.reaped || !tree::has_no_descendants() || self.leaf.as_ref().is_ok_and(Leaf::is_populated)
    }

    /// Moves the processes that CMD left behind out of CMD's control group. Called after CMD has ended by itself.
    /// Returns false while processes are still being moved; then the caller must call it again.
    pub(crate) fn move_leftovers_out(&self) -> bool {
        self.leaf.as_ref().map_or(MoveOut::Removed, Leaf::move_leftovers_out) != MoveOut::InProgress
    }

    /// Marks CMD's control group, so that no later run ends the processes in it.
    pub(crate) fn spare(&self) {
        if let Ok(leaf) = &self.leaf {
            leaf.spare();
        }
    }

    /// Takes the terminal back from CMD. `None`: leasehold has no terminal.
    pub(crate) fn take_terminal(&self) -> Option<TakeBack> {
        self.terminal.as_ref().map(|terminal| terminal.take_back(self.group))
    }

    /// Lets a stopped CMD continue. If this process is in the foreground of the terminal, CMD gets the foreground.
    pub(crate) fn resume(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.put_in_foreground(self.group);
        }
        let _ = self.send(Signal::SIGCONT);
    }
}
