//! The process that a holder process watches, by a descriptor that stays with the process when its id is used again.

use std::{
    fs,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::exit::{self, Failure};

/// The index of the start time among the fields of `/proc/PID/stat` after the name of the program.
const START_TIME: usize = 19;

/// A process that was alive when this value was made.
pub(crate) struct Watched {
    /// The number that the user gave.
    pub(crate) pid: i32,
    /// Readable from the end of the process on, also while the process is a zombie.
    fd: OwnedFd,
}

impl Watched {
    /// Opens the process.
    ///
    /// # Errors
    /// If there is no such process, if it has ended, or if it is younger than this command: then the system has given
    /// the id of the process that the user meant to another process.
    pub(crate) fn open(pid: i32) -> Result<Self, Failure> {
        let wrong = |what: &str| Failure::new(exit::USAGE, format!("--while-pid {pid}: {what}"));
        let id = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        let id = id.ok_or_else(|| wrong("this is no process id: give the number of a process"))?;
        if pid == std::process::id().cast_signed() {
            return Err(wrong(
                "this is leasehold itself, which ends now: give the process that does the work",
            ));
        }
        let fd = pidfd_open(id, PidfdFlags::empty()).map_err(|errno| match errno {
            rustix::io::Errno::SRCH => wrong("there is no such process (any more): nothing is held"),
            rustix::io::Errno::INVAL => wrong("this is a thread: give the id of its process"),
            errno => wrong(&format!("cannot watch it: {errno}")),
        })?;
        let watched = Self { pid, fd };
        if watched.has_ended() {
            return Err(wrong("this process has ended: nothing is held"));
        }
        // The descriptor is open, so the id cannot change its process between here and the next line.
        if let (Some(its), Some(own)) = (start_time(&pid.to_string()), start_time("self"))
            && its > own
        {
            return Err(wrong(
                "this process is younger than this command: its id was used again: nothing is held",
            ));
        }
        Ok(watched)
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// When a process started, in ticks after the boot; `None` if `/proc` does not say.
fn start_time(process: &str) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(START_TIME)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_younger_process_or_one_that_has_ended_is_refused() {
        let message = |pid| Watched::open(pid).err().and_then(|failure| failure.message).unwrap_or_default();
        let parent = nix::unistd::getppid().as_raw();
        assert!(Watched::open(parent).is_ok_and(|watched| !watched.has_ended()));
        for (pid, what) in [(0, "no process id"), (-1, "no process id"), (i32::MAX, "no such process")] {
            assert!(message(pid).contains(what), "{pid}: {}", message(pid));
        }
        assert!(message(std::process::id().cast_signed()).contains("itself"));
        // A child is younger than this process; with the resolution of a tick it may have the same time.
        let start = || Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let mut child = start();
        while start_time(&child.id().to_string()) == start_time("self") {
            child.kill().unwrap();
            child.wait().unwrap();
            child = start();
        }
        assert!(message(child.id().cast_signed()).contains("younger"));
        child.kill().unwrap();
        // Not reaped: it is a zombie.
        while !message(child.id().cast_signed()).contains("has ended") {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(message(child.id().cast_signed()).contains("no such process"));
    }
}
