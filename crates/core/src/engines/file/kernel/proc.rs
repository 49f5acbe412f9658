//! Reads `/proc`: the id of this boot, this process, other processes.

use std::{fs, io, os::unix::fs::MetadataExt};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::super::error::classify;
use crate::{EngineError, Fault};

/// The fields of `/proc/PID/stat` that are read, as proc(5) numbers them.
const STATE_FIELD: usize = 3;
const START_TIME_FIELD: usize = 22;
/// The file with the random id of this boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A process as a record names it: another process may have the same pid by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// The pid, as the process itself sees it.
    pub(crate) pid: u32,
    /// Clock ticks from boot to the start of the process; 0 when `/proc` is not readable.
    pub(crate) start_ticks: u64,
}

impl Process {
    /// The calling process.
    pub(crate) fn own() -> Self {
        Self::of(std::process::id())
    }

    /// The process that has this pid now.
    pub(crate) fn of(pid: u32) -> Self {
        Self { pid, start_ticks: start_time(pid).unwrap_or(0) }
    }

    /// Sends SIGTERM to this very process if `may_send` returns true; returns whether the signal was sent. `may_send`
    /// is called at a moment from which on the pid cannot pass to another process any more.
    pub(crate) fn terminate(self, may_send: impl FnOnce() -> bool) -> io::Result<bool> {
        let Some(pid) = self.valid_pid() else { return Ok(false) };
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        if !(self.is_running() && may_send()) {
            return Ok(false);
        }
        pidfd_send_signal(process, Signal::TERM)?;
        Ok(true)
    }

    /// Whether this very process is running.
    pub(crate) fn is_running(self) -> bool {
        self.start_ticks != 0 && start_time(self.pid).is_ok_and(|start_ticks| start_ticks == self.start_ticks)
    }

    /// The pid for system calls; `None` when it is not valid, because 0 and negative numbers name a process group.
    fn valid_pid(self) -> Option<Pid> {
        i32::try_from(self.pid).ok().filter(|&pid| pid > 0).and_then(Pid::from_raw)
    }
}

/// The id of the current boot of the machine.
pub(crate) fn boot_id() -> Result<[u8; 16], EngineError> {
    let text = fs::read_to_string(BOOT_ID).map_err(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            return classify("cannot read", BOOT_ID, error);
        }
        let message = format!(
            "cannot read {BOOT_ID}: {error}: the file engine needs /proc to recognise a reboot: mount it"
        );
        EngineError::new(Fault::Misconfigured, message).with_source(error)
    })?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).map_err(|error| {
        classify("cannot read", BOOT_ID, io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    })?;
    Ok(number.to_be_bytes())
}

/// The name of the program that a process runs, as the kernel stores it.
pub(crate) fn program_name(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

/// The state of a process, the letter that `ps` shows; `None` if there is no such process here.
pub(crate) fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    field(&stat, STATE_FIELD)?.chars().next()
}

/// The most open files of a process that are looked at.
const MAX_OPEN_FILES: usize = 4096;

/// Whether a process has this file or directory open. False if this process may not see the open files of that one.
pub(crate) fn has_open(pid: u32, (device, inode): (u64, u64)) -> bool {
    let Ok(open_files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let is_it = |entry: fs::DirEntry| {
        let file = fs::metadata(entry.path());
        file.is_ok_and(|file| (file.dev(), file.ino()) == (device, inode))
    };
    open_files.take(MAX_OPEN_FILES).filter_map(Result::ok).any(is_it)
}

/// Clock ticks from boot to the start of a process.
fn start_time(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_start_time(&stat).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse_start_time(stat: &str) -> Option<u64> {
    field(stat, START_TIME_FIELD)?.parse().ok()
}

/// A field of `/proc/PID/stat` after the second. The second is the program name, which may contain spaces and
/// parentheses.
fn field(stat: &str, number: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(number.checked_sub(3)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_pid_and_start_time() {
        let own = Process::own();
        assert!(own.start_ticks > 0 && own.is_running());
        assert!(!Process { start_ticks: own.start_ticks + 1, ..own }.is_running());
        assert_eq!(Process { pid: u32::MAX, start_ticks: 1 }.valid_pid(), None);
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
    }

    #[test]
    fn an_open_directory_of_a_process_is_found() {
        let dir = fs::File::open("/proc/self").unwrap();
        let (own, id) = (std::process::id(), |file: fs::Metadata| (file.dev(), file.ino()));
        let its_id = id(dir.metadata().unwrap());
        assert!(has_open(own, its_id) && !has_open(0, its_id));
        drop(dir);
        assert!(!has_open(own, its_id));
    }

    #[test]
    fn a_program_name_with_parentheses_does_not_shift_the_fields() {
        let fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
        let stat = format!("7 (a) b) c) {}", fields.join(" "));
        assert_eq!((parse_start_time(&stat), field(&stat, STATE_FIELD)), (Some(22), Some("3")));
        assert!(state_of(std::process::id()).is_some_and(|state| "RS".contains(state)));
        assert_eq!(parse_start_time("7 (x"), None);
    }
}
