//! The fast answer to a claim far back in the queue. Otherwise nearly all of a thousand waiters would read and judge
//! the whole table under its latch, one after another, only to find that they still wait.

use super::{
    claims::Entry,
    dir::open::Missing,
    engine::FileEngine,
    release::own_record,
    table::is_alive,
    table::layout::{HEAD, MAX_CLAIMS, RECORD, TableHead, array},
    table::record::{Record, RecordState, STATE, TICKET},
    table::wait_order::{IndexedRecord, is_stalled, must_precede},
};
use crate::EngineError;

/// A claim with at least this number of waiters ahead gets the fast answer: more waiters than a release ever signals.
const FAR: u32 = 8;

impl FileEngine {
    /// The number of waiters ahead, if there are at least [`FAR`] and the first of them is alive and must be granted
    /// first. `None` otherwise, and for torn or doubtful records: the full path decides. Without the latch.
    pub(super) fn far_behind(&self, entry: &Entry, ticket: u64) -> Result<Option<u32>, EngineError> {
        if !entry.lock.is_current(&entry.key)? {
            return Ok(None);
        }
        let Some(state) = self.states.get(&self.dir, &entry.key, Missing::Leave)? else { return Ok(None) };
        if own_record(&state, entry)?.is_none_or(|own| own.signalled.is_some()) {
            return Ok(None);
        }
        let mut head = [0; HEAD];
        state.read(&mut head, 0)?;
        let table = TableHead::from_bytes(&head);
        if table.boot != self.boot || table.records > MAX_CLAIMS {
            return Ok(None);
        }
        let mut bytes = vec![0; table.records as usize * RECORD];
        state.read(&mut bytes, HEAD as u64)?;
        // The ticket and the number of each waiting record with a smaller ticket. Records are numbered from 1.
        let earlier: Vec<(u64, u32)> = (1..)
            .zip(bytes.chunks_exact(RECORD))
            .filter(|(_, record)| record[STATE] == RecordState::Waiting as u8)
            .map(|(record_number, record)| (u64::from_le_bytes(array(record, TICKET)), record_number))
            .filter(|(other, _)| *other < ticket)
            .collect();
        let ahead = earlier.len() as u32;
        let Some(&(_, slot)) = earlier.iter().min().filter(|_| ahead >= FAR) else { return Ok(None) };
        let first = Record::from_bytes(&array(&bytes, (slot as usize - 1) * RECORD));
        let Ok(Some(record)) = first else { return Ok(None) };
        let blocks =
            must_precede(record.mode, entry.claim.mode) && !is_stalled(&record, self.env.clock.now());
        Ok((blocks && is_alive(&entry.lock, &IndexedRecord { slot, record })?).then_some(ahead))
    }
}
