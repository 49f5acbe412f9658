//! Breaks a hold: a kernel lock cannot be taken away from its holder, so the holder's process is asked to stop
//! (SIGTERM).

use nix::errno::Errno;

use super::{
    claims::lock,
    dir::open::Missing,
    engine::FileEngine,
    kernel::Flock,
    kernel::locks::{Key, LockFile},
    table::layout::record_at,
    table::record::{BROKEN, RecordState},
    table::state::StateFile,
    table::wait_order::IndexedRecord,
    table::{Table, is_alive},
};
use crate::{Broken, EngineError, Fault, Name};

/// How often the kernel's list of locks is read to find the lock of a process.
const LIST_READS: usize = 5;
/// How many holders that were asked to stop are remembered, to distinguish "it ended" from "it was never there".
const MAX_ASKED: usize = 64;

impl FileEngine {
    /// Asks the holder once to stop, and returns the result: [`Fault::Retry`] while it still holds.
    pub(super) fn break_now(&self, name: &Name, token: u64) -> Result<Broken, EngineError> {
        let key = Key::new(&self.dir, name);
        let Some(lock) = LockFile::open(&self.dir, &key, Missing::Leave)? else {
            return Ok(self.done_or_not_held(name, token));
        };
        let Some(state) = self.states.get(&self.dir, &key, Missing::Leave)? else {
            return Ok(self.done_or_not_held(name, token));
        };
        let latch = lock.latch()?;
        let table = Table::load(self, &key, &lock, &state, latch)?;
        let held = |indexed: &&IndexedRecord| {
            indexed.record.state == RecordState::Holding && indexed.record.carries(token)
        };
        let Some(indexed) = table.record_zero.iter().chain(&table.records).find(held) else {
            return Ok(self.done_or_not_held(name, token));
        };
        if !is_alive(&lock, indexed)? {
            return Ok(self.done_or_not_held(name, token));
        }
        self.ask_to_stop(name, token, (&lock, &state), indexed)
    }

    /// Whether this process has the kernel lock on the file, as far as the kernel shows that process to the caller.
    fn has_flock(&self, lock: &LockFile, pid: u32) -> bool {
        let holds = |flock: &Flock| !flock.waits && flock.pid == Some(pid);
        // The kernel's list may omit a lock while the list changes.
        (0..LIST_READS).any(|_| lock.flocks(&self.dir).iter().any(holds))
    }

    /// Sends SIGTERM to the holder, once, if its record says that it stops on this signal. Never `Ok`: the holder still
    /// holds.
    fn ask_to_stop(
        &self,
        name: &Name,
        token: u64,
        (lock_file, state): (&LockFile, &StateFile),
        indexed: &IndexedRecord,
    ) -> Result<Broken, EngineError> {
        let (record, pid) = (&indexed.record, indexed.record.process.pid);
        let ends_it = "a kernel lock ends only with its holder";
        if !(record.stops_on_term && record.process.is_running()) {
            return Err(denied(format!(
                "pid {pid} ({}) holds it and does not stop on request: {ends_it}; end that process",
                record.owner
            )));
        }
        if !record.is_broken() {
            // Any writer of this file could have written any pid: only a process that has the kernel lock is
            // signalled.
            if !self.has_flock(lock_file, pid) {
                return Err(denied(format!(
                    "pid {pid} ({}) holds it by the state file, but the kernel shows no lock of that process on its file: {ends_it}; find \
                     out who holds it",
                    record.owner
                )));
            }
            let at = record_at(indexed.slot) + BROKEN;
            state.write(&record.token.to_le_bytes(), at)?;
            let asked = record.process.terminate(|| self.has_flock(lock_file, pid));
            if !matches!(asked, Ok(true)) {
                state.write(&[0; 8], at)?;
            }
            match asked {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    return Err(denied(format!(
                        "pid {pid} ({}) holds it and is another user's",
                        record.owner
                    )));
                }
                Err(error) if error.raw_os_error() != Some(Errno::ESRCH as i32) => {
                    return Err(denied(format!(
                        "pid {pid} ({}) cannot be asked to stop: {error}",
                        record.owner
                    )));
                }
                // It has just ended.
                Ok(_) | Err(_) => {}
            }
        }
        let mut asked = lock(&self.asked);
        if !asked.iter().any(|(other, number)| other == name && *number == token) {
            if asked.len() >= MAX_ASKED {
                asked.remove(0);
            }
            asked.push((name.clone(), token));
        }
        Err(EngineError::new(
            Fault::Retry,
            format!("pid {pid} ({}) was asked to stop and still holds it", record.owner),
        ))
    }

    /// The token is not held: [`Broken::Done`] if its holder was asked to stop, otherwise [`Broken::NotHeld`].
    fn done_or_not_held(&self, name: &Name, token: u64) -> Broken {
        let mut asked = lock(&self.asked);
        let len_before = asked.len();
        asked.retain(|(other, number)| other != name || *number != token);
        if asked.len() < len_before { Broken::Done } else { Broken::NotHeld }
    }
}

fn denied(message: String) -> EngineError {
    EngineError::new(Fault::Denied, message)
}
