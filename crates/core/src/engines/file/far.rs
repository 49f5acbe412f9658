//! The quick answer for a claim far back in line. Of a line of a thousand, nearly all would read and judge the whole table
//! under its latch, one after the other, only to learn that they still wait.

use super::{
    claims::Entry,
    engine::FileEngine,
    layout::{HEAD, MAX_CLAIMS, RECORD, TableHead, array},
    open::Missing,
    record::{Record, RecordState, TICKET},
    release::own_record,
    table::is_alive,
    wait_order::{IndexedRecord, is_stalled, stands_before},
};
use crate::EngineError;

/// How many must stand before a claim that is answered like this: more than ever hear of a release.
const FAR: u32 = 8;

impl FileEngine {
    /// How many stand before a claim in line, if they are many and the first of them, who must be granted before it,
    /// lives. Without the latch: what is torn or in doubt is for the long way.
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
        let before: Vec<(u64, u32)> = (1..)
            .zip(bytes.chunks_exact(RECORD))
            .filter(|(_, record)| record[0] == RecordState::Waiting as u8)
            .map(|(slot, record)| (u64::from_le_bytes(array(record, TICKET)), slot))
            .filter(|(other, _)| *other < ticket)
            .collect();
        let ahead = before.len() as u32;
        let Some(&(_, slot)) = before.iter().min().filter(|_| ahead >= FAR) else { return Ok(None) };
        let first = Record::from_bytes(&array(&bytes, (slot as usize - 1) * RECORD));
        let Ok(Some(record)) = first else { return Ok(None) };
        let blocks =
            stands_before(record.mode, entry.claim.mode) && !is_stalled(&record, self.env.clock.now());
        Ok((blocks && is_alive(&entry.lock, &IndexedRecord { slot, record })?).then_some(ahead))
    }
}
