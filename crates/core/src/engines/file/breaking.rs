//! Breaks a hold: a kernel lock cannot be taken away from its holder, so the holder's process is asked to stop
//! (SIGTERM).

use nix::errno::Errno;

use super::{
    claims::lock_mutex,
    dir::open::Access,
    engine::FileEngine,
    kernel::Flock,
    kernel::locks::{LockFile, NamePaths},
    kernel::proc::state_of,
    table::layout::record_offset,
    table::record::{BROKEN_AT, RecordState},
    table::state::StateFile,
    table::wait_order::StoredRecord,
    table::{Table, is_alive},
};
use crate::{Actor, Broken, EngineError, Fault, Name};

/// How often the kernel's list of locks is read to find the lock of a process.
const LIST_READS: usize = 5;
/// How many holders that were asked to stop are remembered, to distinguish "it ended" from "it was never there".
const MAX_ASKED_TO_STOP: usize = 64;

impl FileEngine {
    /// The verb `break_hold`. Asks the process of the holder to stop; a repeated call does not ask again. The result is
    /// [`Fault::Retry`] as long as that process still holds.
    pub(super) fn break_now(&self, name: &Name, token: u64) -> Result<Broken, EngineError> {
        let paths = NamePaths::new(&self.dir, name);
        let Some(lock_file) = LockFile::open(&self.dir, &paths, Access::Existing)? else {
            return Ok(self.result_if_not_held(name, token));
        };
        let Some(state_file) = self.state_files.get(&self.dir, &paths, Access::Existing)? else {
            return Ok(self.result_if_not_held(name, token));
        };
        let latch = lock_file.latch()?;
        let table = Table::load(self, &paths, &lock_file, &state_file, latch)?;
        let has_the_token = |stored: &&StoredRecord| {
            stored.record.state == RecordState::Holding && stored.record.carries(token)
        };
        let Some(stored) = table.record_zero.iter().chain(&table.records).find(has_the_token) else {
            return Ok(self.result_if_not_held(name, token));
        };
        if !is_alive(&lock_file, stored)? {
            return Ok(self.result_if_not_held(name, token));
        }
        self.ask_to_stop(name, token, (&lock_file, &state_file), stored)
    }

    /// Whether the process `pid` has the flock on the lock file, as far as the kernel shows that process to this one.
    fn has_flock(&self, lock_file: &LockFile, pid: u32) -> bool {
        let holds = |flock: &Flock| !flock.waits && flock.pid == Some(pid);
        // The kernel's list may omit a lock while the list changes.
        (0..LIST_READS).any(|_| lock_file.flocks(&self.dir).iter().any(holds))
    }

    /// Sends SIGTERM to the process of the holder, if its record says that it stops on this signal and that it was not
    /// asked before. Never returns `Ok`, because the process still holds.
    fn ask_to_stop(
        &self,
        name: &Name,
        token: u64,
        (lock_file, state_file): (&LockFile, &StateFile),
        stored: &StoredRecord,
    ) -> Result<Broken, EngineError> {
        let (record, pid) = (&stored.record, stored.record.process.pid);
        let (owner, _) = Actor::split(&record.owner);
        let why = "a kernel lock ends only with its holder";
        if !(record.stops_on_term && record.process.is_running()) {
            return Err(denied_error(format!(
                "pid {pid} ({owner}) holds it and does not stop on request: {why}; end that process"
            )));
        }
        if !record.is_broken() {
            // Any writer of this file could have written any pid: SIGTERM is sent only to a process that has the kernel
            // lock.
            if !self.has_flock(lock_file, pid) {
                return Err(denied_error(format!(
                    "pid {pid} ({owner}) holds it by the state file, but the kernel shows no lock of that process on its file: {why}; find \
                     out who holds it"
                )));
            }
            let broken_offset = record_offset(stored.slot) + BROKEN_AT;
            state_file.write(&record.token.to_le_bytes(), broken_offset)?;
            let signal_sent = record.process.terminate(|| self.has_flock(lock_file, pid));
            if !matches!(signal_sent, Ok(true)) {
                // The hold is not broken after all: clears the token that was just written.
                state_file.write(&[0; 8], broken_offset)?;
            }
            match signal_sent {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    return Err(denied_error(format!("pid {pid} ({owner}) holds it and is another user's")));
                }
                Err(error) if error.raw_os_error() != Some(Errno::ESRCH as i32) => {
                    return Err(denied_error(format!(
                        "pid {pid} ({owner}) cannot be asked to stop: {error}"
                    )));
                }
                // The process has just ended.
                Ok(_) | Err(_) => {}
            }
        }
        // If this hold has ended when the break is repeated, it ended because it was asked to: the break is done.
        let mut asked = lock_mutex(&self.asked_to_stop);
        if !asked.iter().any(|(asked_name, asked_token)| asked_name == name && *asked_token == token) {
            if asked.len() >= MAX_ASKED_TO_STOP {
                asked.remove(0);
            }
            asked.push((name.clone(), token));
        }
        let is_stopped = matches!(state_of(pid), Some('T' | 't'));
        let what = match is_stopped {
            true => format!(
                "pid {pid} ({owner}) is stopped (state T), and stops its command as soon as it is continued by `kill \
                 -CONT {pid}`; `kill -KILL {pid}` ends it at once"
            ),
            false => format!("pid {pid} ({owner}) was asked to stop and still holds it"),
        };
        Err(EngineError::new(Fault::Retry, what))
    }

    /// The result of a break whose token is not held: [`Broken::Done`] if its holder was asked to stop before,
    /// otherwise [`Broken::NotHeld`].
    fn result_if_not_held(&self, name: &Name, token: u64) -> Broken {
        let mut asked = lock_mutex(&self.asked_to_stop);
        let len_before = asked.len();
        asked.retain(|(asked_name, asked_token)| asked_name != name || *asked_token != token);
        if asked.len() < len_before { Broken::Done } else { Broken::NotHeld }
    }
}

fn denied_error(message: String) -> EngineError {
    EngineError::new(Fault::Denied, message)
}
