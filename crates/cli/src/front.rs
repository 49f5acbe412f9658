//! `leasehold run`, `elect` and `once` are two processes, so that each can end *CMD's tree* (CMD and its descendants)
//! when the other is killed.
//!
//! The *front* is the process that the user started. It passes signals on, is suspended when the guardian is suspended
//! (Ctrl-Z), and exits with the guardian's exit code. The *guardian* is a child of the front, in a process group of its
//! own. It acquires the lock and runs CMD. When the front is killed, the guardian ends CMD's tree and then releases the
//! lock, so that the next holder need not wait for the end of the lease. When the guardian is killed, the front ends
//! CMD's tree and then the hold.

use std::{
    cell::RefCell,
    ffi::OsStr,
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::Path,
    time::Duration,
};

use leasehold::{Loss, MAX_NAMES_AT_ONCE, Name, Owner, Token};
use nix::{
    errno::Errno,
    sys::{
        prctl::{set_name, set_pdeathsig},
        signal::{Signal, kill},
        wait::WaitStatus,
    },
    unistd::{Pid, getpgrp, getpid, setpgid},
};

use crate::{
    cgroup::Group,
    event_loop::EventLoop,
    exit::{self, Failure},
    holds::Holds,
    on_lost::{Hook, Reporter},
    orphan,
    plan::Run,
    signals::{Signals, interrupts_wait},
    spawn::fork,
    text::print_message,
    tree,
};

/// The interval at which the front checks whether CMD and its descendants have ended. The end of a child wakes the
/// front earlier.
const TREE_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The first byte of the guardian's message if the front is to become CMD. The id of the holding claim follows.
const BECOME_CMD: u8 = b'b';
/// The first byte of the guardian's message when the guardian holds the lock. The ids of the holding claims
/// follow, with spaces between them, up to a line feed. All other bytes that the guardian writes are the path of CMD's
/// control group, which begins with a slash.
const HOLDS: u8 = b'h';
/// The largest number of bytes that are read from the guardian: the path of a control group, of which none on Linux is
/// longer than 4096 bytes; the id of the claim of each name, of 32 bytes, with a space or the line feed; and the first
/// byte.
const MAX_MESSAGE_BYTES: usize = 4096 + (CLAIM_ID_BYTES + 1) * MAX_NAMES_AT_ONCE + 2;
/// The length of the text of a claim id.
const CLAIM_ID_BYTES: usize = 32;

/// Whether this process is the front or the guardian.
pub(crate) enum Role {
    Front(Front),
    Guardian(FrontLink, EventLoop),
}

/// The state of the front.
pub(crate) struct Front {
    guardian: Pid,
    event_loop: EventLoop,
    socket: UnixStream,
    /// The shell of `--on-lost`.
    hook: Option<Hook>,
}

/// The guardian's end of the socket to the front. When the front has ended, the other end is closed.
pub(crate) struct FrontLink {
    socket: UnixStream,
    pid: Pid,
    /// The process group of the front. A shell puts this group into the foreground.
    group: Pid,
    /// Tells the front of a loss, for `--on-lost`.
    reporter: Option<Reporter>,
    /// The tokens of the holds.
    tokens: RefCell<Vec<(Name, Token)>>,
}

/// The result of the front's wait.
pub(crate) enum Outcome {
    /// The exit code of the guardian.
    Code(u8),
    /// The front is to become CMD, under the hold of this claim.
    BecomeCmd(String),
}

/// Forks this process, which must have one thread, into the front and the guardian. All steps that can fail for lack of
/// resources come before the fork.
///
/// # Errors
/// An error of the operating system.
pub(crate) fn split_into_front_and_guardian(
    signals: Signals,
    hook: Option<(Hook, Reporter)>,
) -> io::Result<Role> {
    let (front_socket, guardian_socket) = UnixStream::pair()?;
    front_socket.set_nonblocking(true)?;
    let (hook, reporter) = hook.unzip();
    let tokens = RefCell::default();
    let front_link = FrontLink { pid: getpid(), group: getpgrp(), socket: guardian_socket, reporter, tokens };
    let guardian_loop =
        EventLoop::new(signals.for_forked_process()?, Some(front_link.socket.as_fd().try_clone_to_owned()?))?;
    let front_loop = EventLoop::new(signals, None)?;
    tree::become_subreaper()?;
    if let Some(guardian) = fork()? {
        return Ok(Role::Front(Front { guardian, event_loop: front_loop, socket: front_socket, hook }));
    }
    // If the guardian kept a copy of the front's end of the socket open, it would not notice the end of the front.
    drop((front_socket, front_loop, hook));
    // Signals to the process group of the front, including KILL, must not reach the guardian, so it gets a process
    // group of its own. A signal to all processes with the name leasehold must not reach it either, so it gets another
    // name.
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    set_name(c"lh-guardian")?;
    tree::become_subreaper()?;
    // A guardian that is suspended (SIGSTOP) cannot notice that the socket is closed. So the kernel continues the
    // guardian when the front dies.
    set_pdeathsig(Signal::SIGCONT)?;
    Ok(Role::Guardian(front_link, guardian_loop))
}

impl FrontLink {
    /// The owner that others see as the holder. It names the front's process.
    pub(crate) fn owner(&self) -> Owner {
        Owner::of_process(self.pid.as_raw().unsigned_abs())
    }

    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) const fn group(&self) -> Pid {
        self.group
    }

    /// Asks the front to become CMD, under the hold of `claim`, when this process (the guardian) has ended.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn send_become_cmd(&self, claim: &str) -> io::Result<()> {
        (&self.socket).write_all(&[&[BECOME_CMD], claim.as_bytes()].concat())
    }

    /// Tells the front which claims hold the names, so that the front can end the holds if this process is killed. The
    /// ids are separated by spaces.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn send_holds(&self, claims: &str) -> io::Result<()> {
        self.send(&[&[HOLDS], claims.as_bytes(), b"\n"].concat())
    }

    /// Tells the front the path of CMD's control group. If this process is killed, the front ends the processes in that
    /// group.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn send_leaf(&self, leaf: &Path) -> io::Result<()> {
        self.send(leaf.as_os_str().as_bytes())
    }

    /// Records the tokens of the holds, for a later report of a loss.
    pub(crate) fn set_tokens(&self, holds: Holds<'_>) {
        self.tokens.replace(holds.iter().map(|guard| (guard.name().clone(), guard.token())).collect());
    }

    /// With `--on-lost`: tells the front that the hold of `name` is lost, unless it was told of a loss before. Never
    /// waits.
    pub(crate) fn report_loss(&self, name: &Name, loss: Loss) {
        let tokens = self.tokens.borrow();
        let token = tokens.iter().find(|(held, _)| held == name).map(|(_, token)| *token);
        if let (Some(reporter), Some(token)) = (&self.reporter, token) {
            reporter.send(name, token, loss);
        }
    }

    /// Writes bytes to the front. It is no error if the front was killed.
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match (&self.socket).write_all(bytes) {
            // The front was killed. The caller notices that in its next wait.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            done => done,
        }
    }
}

impl Front {
    /// Waits until the guardian has ended, and the shell of `--on-lost`, if it runs.
    pub(crate) fn wait_for_end(&mut self, plan: &Run) -> Result<Outcome, Failure> {
        let failed = |errno: Errno| Failure::new(exit::BUG, format!("cannot wait for events: {errno}"));
        let initial_mask = self.event_loop.signals().initial_mask();
        let mut code = None;
        loop {
            if let Some(hook) = &mut self.hook {
                hook.step(plan, initial_mask);
            }
            if let Some(code) = code.filter(|_| !self.hook.as_ref().is_some_and(Hook::is_running)) {
                return Ok(self.outcome(code));
            }
            match tree::reap().map_err(failed)? {
                Some(WaitStatus::Exited(pid, guardians_code)) if pid == self.guardian => {
                    // The system reports only the low eight bits of the code.
                    code = Some(guardians_code as u8);
                    continue;
                }
                Some(WaitStatus::Signaled(pid, signal, _)) if pid == self.guardian => {
                    return Err(self.end_without_guardian(plan, signal));
                }
                Some(WaitStatus::Stopped(pid, by)) if pid == self.guardian => {
                    self.stop_too(by).map_err(failed)?
                }
                Some(status) => {
                    self.hook.iter_mut().for_each(|hook| hook.child_ended(plan, status));
                    continue;
                }
                None => {}
            }
            let told: Vec<_> = self.hook.as_ref().and_then(Hook::fd).into_iter().collect();
            let limit = self.hook.as_ref().and_then(Hook::time_left);
            match self.event_loop.wait_for(limit, &told).map_err(failed)? {
                None | Some(Signal::SIGCHLD) => {}
                Some(signal) if code.is_none() => self.forward(signal),
                // The guardian has ended, and the user does not want to wait for the shell.
                Some(signal) if interrupts_wait(signal) => self.hook.iter_mut().for_each(Hook::kill),
                Some(_) => {}
            }
        }
    }

    /// The outcome after the guardian has ended with this code.
    fn outcome(&self, code: u8) -> Outcome {
        match self.messages().split_first() {
            // An outer run holds the lock already: the guardian sent the id of the claim of that hold.
            Some((&BECOME_CMD, claim_id)) => {
                Outcome::BecomeCmd(String::from_utf8_lossy(claim_id).into_owned())
            }
            _ => Outcome::Code(code),
        }
    }

    /// All bytes that the guardian has written. Call this only after the guardian has ended.
    fn messages(&self) -> Vec<u8> {
        let mut messages = Vec::new();
        // Bytes that were read before an error stay in the buffer.
        let _ = (&self.socket).take(MAX_MESSAGE_BYTES as u64).read_to_end(&mut messages);
        messages
    }

    /// Passes a signal on to the guardian. A guardian that has ended needs none, so errors are ignored.
    fn forward(&self, signal: Signal) {
        let _ = kill(self.guardian, signal);
    }

    /// Handles a guardian that was stopped by the signal `by`. If the guardian stopped itself, stops this process too,
    /// alone or with its process group, as Ctrl-Z at the terminal would have done; and when this process is continued,
    /// continues the guardian. Otherwise continues the guardian at once.
    fn stop_too(&self, by: Signal) -> Result<(), Errno> {
        match by {
            Signal::SIGTSTP => self.event_loop.signals().stop()?,
            Signals::STOP_WITH_GROUP => self.event_loop.signals().stop_group()?,
            // Another process stopped the guardian. The guardian is continued at once, because otherwise the lock would
            // be lost.
            _ => {}
        }
        // Either this process was stopped and has been continued; or it was not stopped, because no other process could
        // have continued it.
        self.forward(Signal::SIGCONT);
        Ok(())
    }

    /// Called after the guardian was killed. Ends CMD's tree and then the hold, because no process renews the hold any
    /// more.
    fn end_without_guardian(&self, plan: &Run, by: Signal) -> Failure {
        let messages = self.messages();
        let (claims, leaf) = parse_messages(&messages);
        let (lock, by) = (plan.lock_label(), by.as_str());
        let is_gone = self.end_tree(&lock, leaf);
        let Some(claims) = claims else {
            let message = format!(
                "{lock}: {by} ended the process that waited for it: \
                     its queue entry, or a hold that it was just granted, ends with its lease"
            );
            return Failure::new(exit::BUG, message);
        };
        plan.course.was_granted();
        let free = match is_gone && orphan::free_names(plan, &claims, &self.event_loop) {
            true => "now",
            false => "when its lease has run out",
        };
        Failure::new(
            exit::BUG,
            format!("{lock}: {by} ended the process that held it, so CMD was ended: it is free {free}"),
        )
    }

    /// Ends all descendants of this process and all processes in CMD's control group. Returns whether all of them have
    /// ended.
    fn end_tree(&self, lock: &str, leaf: &[u8]) -> bool {
        let leaf = Group::open(Path::new(OsStr::from_bytes(leaf))).ok();
        let is_populated = || leaf.as_ref().is_some_and(Group::is_populated);
        let mut all_ended = true;
        while !tree::has_no_descendants() || is_populated() {
            let is_killed = leaf.as_ref().is_some_and(|leaf| leaf.kill().is_ok());
            let children = tree::signal_children(Signal::SIGKILL);
            // If the control group was killed, its processes are about to end.
            if children.is_err() && !(is_killed && is_populated()) {
                let survivors = tree::survivors();
                if !survivors.is_empty() {
                    let descriptions = tree::describe(&survivors);
                    print_message(&format!(
                        "{lock}: this user may not end processes of another user that ran under it: {descriptions}: \
                         end them as root"
                    ));
                    all_ended = false;
                    break;
                }
            }
            // If waiting for events fails, the loop only checks more often.
            let _ = self.event_loop.wait(Some(TREE_CHECK_INTERVAL));
        }
        // If a process still runs in the group, this fails and the group stays.
        let _ = leaf.map(|leaf| leaf.remove());
        all_ended
    }
}

/// Parses the messages of the guardian: the ids of the claims that hold the names, and the path of CMD's control group.
fn parse_messages(messages: &[u8]) -> (Option<String>, &[u8]) {
    let Some(rest) = messages.strip_prefix(&[HOLDS]) else { return (None, messages) };
    // If the line has no end, it was cut off and is ignored.
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return (None, &[]) };
    (Some(String::from_utf8_lossy(&rest[..end]).into_owned()), &rest[end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guardian_messages_are_parsed_even_if_cut_off() {
        let claim = || Some("00ff".to_owned());
        assert_eq!(parse_messages(b"h00ff\n/sys/fs/cgroup/a\nb"), (claim(), &b"/sys/fs/cgroup/a\nb"[..]));
        assert_eq!(parse_messages(b"h00ff\n"), (claim(), &b""[..]));
        assert_eq!(parse_messages(b"h00"), (None, &b""[..]));
        assert_eq!(parse_messages(b""), (None, &b""[..]));
    }

    /// The guardian of the largest run writes all that the front reads.
    #[test]
    fn the_longest_messages_are_read_as_a_whole() {
        let claims = vec!["0".repeat(CLAIM_ID_BYTES); MAX_NAMES_AT_ONCE].join(" ");
        let leaf = format!("/{}", "x".repeat(4094));
        let mut messages = vec![HOLDS];
        messages.extend([claims.as_bytes(), b"\n", leaf.as_bytes()].concat());
        assert!(messages.len() <= MAX_MESSAGE_BYTES);
        let (parsed, path) = parse_messages(&messages[..messages.len().min(MAX_MESSAGE_BYTES)]);
        assert_eq!((parsed, path), (Some(claims), leaf.as_bytes()));
    }
}
