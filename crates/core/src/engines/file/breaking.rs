//! Breaking a hold: a kernel lock cannot be taken away, so its holder is asked to stop.

use nix::errno::Errno;

use super::{
    claims::lock,
    engine::FileEngine,
    kernel::Flock,
    layout::record_at,
    locks::{Key, LockFile},
    open::Missing,
    record::{BROKEN, RecordState},
    state::StateFile,
    table::{Table, is_alive},
    wait_order::IndexedRecord,
};
use crate::{Broken, EngineError, Fault, Name};

/// How often it is looked whether a process has the lock.
const LOOKS: usize = 5;
/// How many asked holders are remembered, to tell "it went" from "it was never there".
const REMEMBERED: usize = 64;

impl FileEngine {
    /// Asks the holder once, and says how that stands: [`Fault::Retry`] while it still holds.
    pub(super) fn break_now(&self, name: &Name, token: u64) -> Result<Broken, EngineError> {
        let key = Key::new(&self.dir, name);
        let Some(lock) = LockFile::open(&self.dir, &key, Missing::Leave)? else {
            return Ok(self.went(name, token));
        };
        let Some(state) = self.states.get(&self.dir, &key, Missing::Leave)? else {
            return Ok(self.went(name, token));
        };
        let latch = lock.latch()?;
        let table = Table::load(self, &key, &lock, &state, latch)?;
        let held = |placed: &&IndexedRecord| {
            placed.record.state == RecordState::Holding && placed.record.carries(token)
        };
        let Some(placed) = table.zero.iter().chain(&table.records).find(held) else {
            return Ok(self.went(name, token));
        };
        if !is_alive(&lock, placed)? {
            return Ok(self.went(name, token));
        }
        self.ask_to_stop(name, token, (&lock, &state), placed)
    }

    /// Whether this process has the kernel's lock on the file, as the kernel shows to who may see that process.
    fn has_flock(&self, lock: &LockFile, pid: u32) -> bool {
        let holds = |flock: &Flock| !flock.waits && flock.pid == Some(pid);
        // The kernel's table may leave out a lock while it changes.
        (0..LOOKS).any(|_| lock.flocks(&self.dir).iter().any(holds))
    }

    fn ask_to_stop(
        &self,
        name: &Name,
        token: u64,
        (lock_file, state): (&LockFile, &StateFile),
        placed: &IndexedRecord,
    ) -> Result<Broken, EngineError> {
        let (record, pid) = (&placed.record, placed.record.process.pid);
        let ends_it = "a kernel lock ends only with its holder";
        if !(record.stops_on_term && record.process.is_running()) {
            return Err(denied(format!(
                "pid {pid} ({}) holds it and does not stop on request: {ends_it}; end that process",
                record.owner
            )));
        }
        if !record.is_broken() {
            // Whoever may write here could have written any pid: what is signalled is a process that has the kernel's lock.
            if !self.has_flock(lock_file, pid) {
                return Err(denied(format!(
                    "pid {pid} ({}) is said to hold it, and the kernel shows no lock of that process on its file: {ends_it}; find \
                     out who holds it",
                    record.owner
                )));
            }
            let at = record_at(placed.slot) + BROKEN;
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
                // It has ended just now.
                Ok(_) | Err(_) => {}
            }
        }
        let mut asked = lock(&self.asked);
        if !asked.iter().any(|(other, number)| other == name && *number == token) {
            if asked.len() >= REMEMBERED {
                asked.remove(0);
            }
            asked.push((name.clone(), token));
        }
        Err(EngineError::new(
            Fault::Retry,
            format!("pid {pid} ({}) was asked to stop and still holds it", record.owner),
        ))
    }

    /// The token is not held: because we asked, or never was.
    fn went(&self, name: &Name, token: u64) -> Broken {
        let mut asked = lock(&self.asked);
        let before = asked.len();
        asked.retain(|(other, number)| other != name || *number != token);
        if asked.len() < before { Broken::Done } else { Broken::NotHeld }
    }
}

fn denied(message: String) -> EngineError {
    EngineError::new(Fault::Denied, message)
}
