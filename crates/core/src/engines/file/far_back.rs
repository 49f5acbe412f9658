//! The fast answer to a claim far back in the queue. Without it, nearly all of a thousand waiters would read and judge
//! all of the table under its latch, one after another, only to find that they still wait.

use super::{
    claims::ClaimEntry,
    dir::open::Access,
    engine::FileEngine,
    release::own_record,
    table::is_alive,
    table::layout::{HEADER_SIZE, MAX_CLAIMS, RECORD_SIZE, TableHeader, bytes_at},
    table::record::{Record, RecordState, STATE_AT, TICKET_AT},
    table::wait_order::{StoredRecord, is_stalled, must_precede},
};
use crate::EngineError;

/// A claim with at least this number of waiters ahead is far back and gets the fast answer. A release never signals so
/// many waiters.
const FAR_BACK: u32 = 8;

impl FileEngine {
    /// The number of waiters ahead, if there are at least [`FAR_BACK`] and the first of them is alive and must be
    /// granted first. `None` otherwise, and if a record is torn: then the caller must read the table under the latch to
    /// decide. This function reads without the latch.
    pub(super) fn waiters_ahead_if_far_back(
        &self,
        entry: &ClaimEntry,
        ticket: u64,
    ) -> Result<Option<u32>, EngineError> {
        if !entry.lock_file.is_at_path(&entry.paths)? {
            return Ok(None);
        }
        let Some(state_file) = self.state_files.get(&self.dir, &entry.paths, Access::Existing)? else {
            return Ok(None);
        };
        if own_record(&state_file, entry)?.is_none_or(|record| record.signalled_at.is_some()) {
            return Ok(None);
        }
        let mut header = [0; HEADER_SIZE];
        state_file.read(&mut header, 0)?;
        let table_header = TableHeader::from_bytes(&header);
        if table_header.boot_id != self.boot_id || table_header.records > MAX_CLAIMS {
            return Ok(None);
        }
        let mut bytes = vec![0; table_header.records as usize * RECORD_SIZE];
        state_file.read(&mut bytes, HEADER_SIZE as u64)?;
        // The ticket and the slot of each waiter ahead. Slots are numbered from 1.
        let waiters_ahead: Vec<(u64, u32)> = (1..)
            .zip(bytes.chunks_exact(RECORD_SIZE))
            .filter(|(_, record)| record[STATE_AT] == RecordState::Waiting as u8)
            .map(|(slot, record)| (u64::from_le_bytes(bytes_at(record, TICKET_AT)), slot))
            .filter(|(waiter_ticket, _)| *waiter_ticket < ticket)
            .collect();
        let ahead = waiters_ahead.len() as u32;
        let Some(&(_, slot)) = waiters_ahead.iter().min().filter(|_| ahead >= FAR_BACK) else {
            return Ok(None);
        };
        let first_waiter = Record::from_bytes(&bytes_at(&bytes, (slot as usize - 1) * RECORD_SIZE));
        let Ok(Some(record)) = first_waiter else { return Ok(None) };
        let must_wait =
            must_precede(record.mode, entry.claim.mode) && !is_stalled(&record, self.env.clock.now());
        Ok((must_wait && is_alive(&entry.lock_file, &StoredRecord { slot, record })?).then_some(ahead))
    }
}
