//! `leasehold run` is two processes, so that each can end CMD's tree when the other is killed.
//!
//! The *front* is the process that was started: it passes signals on, stops when the other stops, and exits as it does. The
//! *guardian* is its child, in a process group of its own: it takes the lock and runs CMD. When the front is killed, the
//! guardian ends CMD's tree and then releases the lock, so that the next holder need not wait for the ttl. When the guardian
//! is killed, the front ends the tree and then the hold.

use std::{
    ffi::OsStr,
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::Path,
    time::Duration,
};

use leasehold::Owner;
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
    exit::{self, Failure},
    orphan,
    plan::Run,
    signals::Signals,
    spawn::fork,
    text::say,
    tree,
    waiter::Waiter,
};

/// How often the end of the tree is looked for: each end of a child wakes earlier.
const LOOK_FOR_TREE: Duration = Duration::from_millis(20);
/// With this begins what the guardian says when the front is to become CMD; the claim of the hold follows.
const BECOME: u8 = b'b';
/// With this, when it holds the lock: the claim follows, to the end of the line. All else that it says is the path of CMD's control
/// group, which begins with a slash.
const HOLDS: u8 = b'h';
/// No path is longer.
const SAID: u64 = 4096;

/// Which of the two this process is.
pub(crate) enum Half {
    Front(Front),
    Guardian(Partner, Waiter),
}

/// The process that was started.
pub(crate) struct Front {
    guardian: Pid,
    waiter: Waiter,
    line: UnixStream,
}

/// The other end of the guardian's line: it is closed when the front is gone.
pub(crate) struct Partner {
    line: UnixStream,
    pid: Pid,
    /// The process group of the front, which a shell puts into the foreground.
    group: Pid,
}

/// How the front came out.
pub(crate) enum Came {
    Code(u8),
    /// It is to become CMD, under the hold of this claim.
    Become(String),
}

/// Splits this process, which has one thread, in two. Whatever may fail does so while it is one.
///
/// # Errors
/// The operating system's.
pub(crate) fn split(signals: Signals) -> io::Result<Half> {
    let (near, far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    let partner = Partner { pid: getpid(), group: getpgrp(), line: far };
    let theirs = Waiter::new(signals.again()?, Some(partner.line.as_fd().try_clone_to_owned()?))?;
    let ours = Waiter::new(signals, None)?;
    tree::adopt()?;
    if let Some(guardian) = fork()? {
        return Ok(Half::Front(Front { guardian, waiter: ours, line: near }));
    }
    // What holds the near end open would hide the end of the front.
    drop((near, ours));
    // A signal to the group of the front, the last included, is not for the guardian. Neither is one for whatever is called
    // leasehold.
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    set_name(c"lh-guardian")?;
    tree::adopt()?;
    // A stopped process does not see that a line is closed.
    set_pdeathsig(Signal::SIGCONT)?;
    Ok(Half::Guardian(partner, theirs))
}

impl Partner {
    /// How the front is shown to others.
    pub(crate) fn owner(&self) -> Owner {
        Owner::of_process(self.pid.as_raw().unsigned_abs())
    }

    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) const fn group(&self) -> Pid {
        self.group
    }

    /// Has the front become CMD once this process has ended.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn hand_over(&self, claim: &str) -> io::Result<()> {
        (&self.line).write_all(&[&[BECOME], claim.as_bytes()].concat())
    }

    /// Tells the front which claim holds the lock: if this process is killed, nothing is to be left of it.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn holds(&self, claim: &str) -> io::Result<()> {
        self.say(&[&[HOLDS], claim.as_bytes(), b"\n"].concat())
    }

    /// Tells the front which control group it has to end if this process is killed.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn tell(&self, leaf: &Path) -> io::Result<()> {
        self.say(leaf.as_os_str().as_bytes())
    }

    fn say(&self, words: &[u8]) -> io::Result<()> {
        match (&self.line).write_all(words) {
            // The front was killed: that is seen next.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            done => done,
        }
    }
}

impl Front {
    /// Until the guardian has ended.
    pub(crate) fn see_through(&self, plan: &Run) -> Result<Came, Failure> {
        let failed = |errno: Errno| Failure::new(exit::BUG, format!("cannot wait for events: {errno}"));
        loop {
            match tree::reap().map_err(failed)? {
                Some(WaitStatus::Exited(pid, code)) if pid == self.guardian => {
                    // The system gives the low eight bits.
                    return Ok(match self.said().split_first() {
                        Some((&BECOME, claim)) => Came::Become(String::from_utf8_lossy(claim).into_owned()),
                        _ => Came::Code(code as u8),
                    });
                }
                Some(WaitStatus::Signaled(pid, signal, _)) if pid == self.guardian => {
                    return Err(self.end_without_guardian(plan, signal));
                }
                Some(WaitStatus::Stopped(pid, by)) if pid == self.guardian => {
                    self.stopped(by).map_err(failed)?
                }
                Some(_) => continue,
                None => {}
            }
            match self.waiter.wait(None).map_err(failed)? {
                None | Some(Signal::SIGCHLD) => {}
                Some(signal) => self.pass_on(signal),
            }
        }
    }

    /// What the guardian has said, now that it is gone.
    fn said(&self) -> Vec<u8> {
        let mut said = Vec::new();
        // What was read before an error is there.
        let _ = (&self.line).take(SAID).read_to_end(&mut said);
        said
    }

    /// A guardian that has ended needs none.
    fn pass_on(&self, signal: Signal) {
        let _ = kill(self.guardian, signal);
    }

    /// The guardian has stopped, as this process does then: alone, or as Ctrl-Z at the terminal would have stopped it.
    fn stopped(&self, by: Signal) -> Result<(), Errno> {
        match by {
            Signal::SIGTSTP => self.waiter.signals().stop()?,
            Signals::WITH_GROUP => self.waiter.signals().stop_group()?,
            // Somebody else stopped it, and the lock would be lost.
            _ => {}
        }
        // Continued, or never stopped, because nobody could have continued us.
        self.pass_on(Signal::SIGCONT);
        Ok(())
    }

    /// The guardian was killed: nobody renews the lock any more.
    fn end_without_guardian(&self, plan: &Run, by: Signal) -> Failure {
        let said = self.said();
        let (claim, leaf) = held(&said);
        let (lock, by) = (plan.lock(), by.as_str());
        let is_gone = self.end_tree(&lock, leaf);
        let Some(claim) = claim else {
            let message = format!(
                "{lock}: {by} ended the process that waited for it: its place in line, or what it was just granted, ends with its lease"
            );
            return Failure::new(exit::BUG, message);
        };
        let free = match is_gone && orphan::free(plan, &claim, &self.waiter) {
            true => "now",
            false => "when its lease has run out",
        };
        Failure::new(
            exit::BUG,
            format!("{lock}: {by} ended the process that held it, so CMD was ended: it is free {free}"),
        )
    }

    /// Ends all that descends from CMD, and what is in its control group; whether nothing is left.
    fn end_tree(&self, lock: &str, leaf: &[u8]) -> bool {
        let leaf = Group::open(Path::new(OsStr::from_bytes(leaf))).ok();
        let is_populated = || leaf.as_ref().is_some_and(Group::is_populated);
        let mut is_all = true;
        while !tree::is_gone() || is_populated() {
            let is_killed = leaf.as_ref().is_some_and(|leaf| leaf.kill().is_ok());
            let children = tree::signal_children(Signal::SIGKILL);
            // Those in the group are about to end.
            if children.is_err() && !(is_killed && is_populated()) {
                let survivors = tree::survivors();
                if !survivors.is_empty() {
                    let named = tree::named(&survivors);
                    say(&format!(
                        "{lock}: this user may not end what ran under it as another user: process {named}: end it as root"
                    ));
                    is_all = false;
                    break;
                }
            }
            // Without events it would only be looked at more often.
            let _ = self.waiter.wait(Some(LOOK_FOR_TREE));
        }
        // What goes on in it keeps it.
        let _ = leaf.map(|leaf| leaf.remove());
        is_all
    }
}

/// Of what the guardian has said: the claim that holds the lock, and the path of CMD's control group.
fn held(said: &[u8]) -> (Option<String>, &[u8]) {
    let Some(rest) = said.strip_prefix(&[HOLDS]) else { return (None, said) };
    // A line that was cut off tells nothing.
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return (None, &[]) };
    (Some(String::from_utf8_lossy(&rest[..end]).into_owned()), &rest[end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guardian_has_said_is_read_also_where_it_was_cut_off() {
        let claim = || Some("00ff".to_owned());
        assert_eq!(held(b"h00ff\n/sys/fs/cgroup/a\nb"), (claim(), &b"/sys/fs/cgroup/a\nb"[..]));
        assert_eq!(held(b"h00ff\n"), (claim(), &b""[..]));
        assert_eq!(held(b"h00"), (None, &b""[..]));
        assert_eq!(held(b""), (None, &b""[..]));
    }
}
