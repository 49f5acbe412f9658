//! `--on-lost`: a text for the shell that runs when the hold is lost.
//!
//! The guardian learns of the loss and ends CMD with all its descendants, so the shell must be no descendant of the
//! guardian. The guardian writes one line to a socket, which never waits, and goes on. The front reads the line, runs
//! the shell, and waits for its end before it exits.

use std::{
    cell::Cell,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use leasehold::{Loss, Name, Token};
use nix::{
    sys::{
        signal::{Signal, killpg},
        wait::WaitStatus,
    },
    unistd::Pid,
};

use crate::{
    event_loop::now,
    nested::{LINEAGE, NAME, TOKEN},
    plan::Run,
    spawn::{InitialMask, spawn_shell},
    text::print_message,
};

/// How long the shell may run. After that its process group is killed.
const LIMIT: Duration = Duration::from_secs(10);
/// The variable that has the reason of the loss, as a word.
const LOSS: &str = "LEASEHOLD_LOSS";
/// The fields of the line about a loss: the reason, the token, its lineage, and the name, which may contain spaces.
const FIELDS: usize = 4;
/// The longest line: the longest name, and the other fields.
const MAX_LINE: u64 = 1024;

/// The guardian's end.
pub(crate) struct Reporter {
    socket: UnixStream,
    /// The shell runs at most once.
    is_sent: Cell<bool>,
}

impl Reporter {
    /// Tells the front of the loss, unless it knows of it.
    pub(crate) fn send(&self, name: &Name, token: Token, loss: Loss) {
        if self.is_sent.replace(true) {
            return;
        }
        let Token { lineage, number } = token;
        let line = format!("{} {number} {lineage} {}\n", loss.as_str(), name.as_str());
        // The buffer of the socket is larger than the line. It fails if the front was killed, which CMD does not
        // outlive.
        let _ = (&self.socket).write_all(line.as_bytes());
    }
}

/// The front's end.
pub(crate) struct Hook {
    /// `None`: no line comes any more.
    socket: Option<UnixStream>,
    line: Vec<u8>,
    shell: Option<Shell>,
}

/// The running shell, which leads a process group of its own.
struct Shell {
    pid: Pid,
    kill_at: Duration,
    is_killed: bool,
    /// It was killed because its time was over.
    is_overdue: bool,
}

impl Shell {
    fn new(pid: Pid) -> Self {
        Self { pid, kill_at: now().saturating_add(LIMIT), is_killed: false, is_overdue: false }
    }
}

/// Both ends.
///
/// # Errors
/// An error of the operating system: it has no descriptor left.
pub(crate) fn pair() -> io::Result<(Hook, Reporter)> {
    let (front, guardian) = UnixStream::pair()?;
    front.set_nonblocking(true)?;
    guardian.set_nonblocking(true)?;
    let hook = Hook { socket: Some(front), line: Vec::new(), shell: None };
    Ok((hook, Reporter { socket: guardian, is_sent: Cell::new(false) }))
}

impl Hook {
    /// The descriptor that is readable when the guardian has told of a loss, or has ended. `None`: it has done so.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// The time until the shell has to be killed. `None`: no shell runs.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let running = self.shell.as_ref().filter(|shell| !shell.is_killed);
        running.map(|shell| shell.kill_at.saturating_sub(now()))
    }

    /// Whether the shell runs.
    pub(crate) const fn is_running(&self) -> bool {
        self.shell.is_some()
    }

    /// Starts the shell if a loss was told, and kills the shell if its time is over.
    pub(crate) fn step(&mut self, plan: &Run, initial_mask: InitialMask) {
        if let Some(variables) = self.told_loss()
            && let Some(text) = &plan.on_lost
        {
            match spawn_shell(text, variables, plan.pass_url, initial_mask) {
                Ok(pid) => {
                    self.shell = Some(Shell::new(pid));
                }
                Err(error) => {
                    print_message(&format!("{}: --on-lost cannot be run: {error}", plan.lock_label()))
                }
            }
        }
        if self.time_left().is_some_and(|left| left.is_zero()) {
            self.kill();
            self.shell.iter_mut().for_each(|shell| shell.is_overdue = true);
        }
    }

    /// Kills the shell and its process group.
    pub(crate) fn kill(&mut self) {
        if let Some(shell) = &mut self.shell {
            shell.is_killed = true;
            // The shell is not reaped yet, so no other group has this id.
            let _ = killpg(shell.pid, Signal::SIGKILL);
        }
    }

    /// Handles the end of a child of the front. If the shell failed, prints how.
    pub(crate) fn child_ended(&mut self, plan: &Run, status: WaitStatus) {
        let Some(Shell { is_overdue, .. }) = self.shell.take_if(|shell| status.pid() == Some(shell.pid))
        else {
            return;
        };
        let how = match status {
            WaitStatus::Signaled(..) if is_overdue => {
                let seconds = LIMIT.as_secs();
                format!("--on-lost did not end within {seconds} s, and was killed")
            }
            WaitStatus::Signaled(_, signal, _) => format!("--on-lost was ended by {}", signal.as_str()),
            WaitStatus::Exited(_, code) if code != 0 => format!("--on-lost ended with {code}"),
            _ => return,
        };
        print_message(&format!("{}: {how}", plan.lock_label()));
    }

    /// The variables for the shell, if the guardian has told of a loss now.
    fn told_loss(&mut self) -> Option<Vec<(&'static str, String)>> {
        let read = self.socket.as_ref()?.take(MAX_LINE).read_to_end(&mut self.line);
        // Bytes that were read before an error stay in the buffer; without an error the other end is closed.
        let is_closed = read.is_ok();
        let variables = self.line.strip_suffix(b"\n").and_then(variables_of);
        if is_closed || variables.is_some() {
            self.socket = None;
        }
        variables
    }
}

/// The variables that a line describes.
fn variables_of(line: &[u8]) -> Option<Vec<(&'static str, String)>> {
    let fields: Vec<&str> = std::str::from_utf8(line).ok()?.splitn(FIELDS, ' ').collect();
    let &[loss, token, lineage, name] = fields.as_slice() else { return None };
    let all = [(LOSS, loss), (NAME, name), (TOKEN, token), (LINEAGE, lineage)];
    Some(all.map(|(variable, value)| (variable, value.to_owned())).to_vec())
}

#[cfg(test)]
mod tests {
    use leasehold::Lineage;

    use super::*;

    #[test]
    fn the_first_loss_is_told_and_no_other() {
        let (mut hook, reporter) = pair().unwrap();
        assert_eq!(hook.told_loss(), None);
        let (name, token) = (Name::new("a b").unwrap(), Token { lineage: Lineage::new(1), number: 7 });
        reporter.send(&name, token, Loss::EndedEarly);
        reporter.send(&name, token, Loss::Broken);
        let lineage = token.lineage.to_string();
        let wanted = [(LOSS, "ended_early"), (NAME, "a b"), (TOKEN, "7"), (LINEAGE, &lineage)];
        let told = hook.told_loss().unwrap();
        assert_eq!(
            told.iter().map(|(variable, value)| (*variable, value.as_str())).collect::<Vec<_>>(),
            wanted
        );
        assert!(hook.fd().is_none() && hook.told_loss().is_none());
    }

    #[test]
    fn a_guardian_that_has_ended_tells_nothing() {
        let (mut hook, reporter) = pair().unwrap();
        assert!(hook.fd().is_some());
        drop(reporter);
        assert!(hook.told_loss().is_none() && hook.fd().is_none() && !hook.is_running());
    }
}
