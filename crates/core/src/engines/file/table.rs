//! The table of a name under its latch: reads it, changes it, removes records of dead owners.

pub(super) mod layout;
pub(super) mod record;
pub(super) mod state;
pub(super) mod tokens;
pub(super) mod wait_order;

use super::{
    engine::FileEngine,
    kernel::locks::{Key, Latch, LockFile, Mark},
    table::layout::{
        ENDED, HEAD, Head, MAX_CLAIMS, RECORD, TABLE, TICKET_OR_TOKEN_LIMIT, TableHead, array, ended_to_byte,
        record_at,
    },
    table::record::{Record, RecordState},
    table::state::StateFile,
    table::wait_order::{Asker, IndexedRecord, Judgement, judge},
};
use crate::{EngineError, Fault, Instant, Previous};

/// The state of a name, and the right to change it until dropped.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) lock: &'a LockFile,
    pub(super) state: &'a StateFile,
    pub(super) head: Head,
    /// Record 0, if in use. It can change at any time unless the caller has the flock.
    pub(super) record_zero: Option<IndexedRecord>,
    /// The other records in use.
    pub(super) records: Vec<IndexedRecord>,
    /// Held until the table is dropped.
    _latch: Latch<'a>,
}

impl<'a> Table<'a> {
    /// Reads the state of `key`, or creates it. After a reboot every record is void.
    pub(super) fn load(
        engine: &FileEngine,
        key: &Key,
        lock: &'a LockFile,
        state: &'a StateFile,
        latch: Latch<'a>,
    ) -> Result<Self, EngineError> {
        let (mut head, bytes) = state.head_or_new(&key.name, &latch, engine.boot, || engine.new_lineage())?;
        let mut records = Vec::new();
        if head.table.boot != engine.boot {
            head.table = TableHead { in_use: false, records: 0, next_ticket: 1, boot: engine.boot };
            state.write(&head.table.to_bytes(), TABLE as u64)?;
        } else if head.table.in_use {
            records = read_records(state, head.table.records, |_| Err(state.damaged()))?;
        }
        Ok(Self {
            lock,
            state,
            record_zero: record_zero(&head, &bytes, engine.boot),
            head,
            records,
            _latch: latch,
        })
    }

    /// Reads everything again: without the latch, owners empty their records or set their minimum hold time, and an
    /// exclusive holder writes.
    pub(super) fn refresh(&mut self, engine: &FileEngine, key: &Key) -> Result<(), EngineError> {
        let (head, bytes) = self.state.head(&key.name)?.ok_or_else(|| self.state.damaged())?;
        self.records = read_records(self.state, head.table.records, |_| Err(self.state.damaged()))?;
        self.record_zero = record_zero(&head, &bytes, engine.boot);
        self.head = head;
        Ok(())
    }

    /// Judges `asker`, and clears the records of dead owners that it finds.
    pub(super) fn judge(&mut self, asker: Asker, now: Instant) -> Result<Judgement, EngineError> {
        loop {
            let mut changed = false;
            let judgement = judge(&self.records, self.record_zero.as_ref(), asker, now, &mut |indexed| {
                let alive = is_alive(self.lock, indexed)?;
                changed |= !alive && self.has_changed(indexed)?;
                Ok(alive)
            })?;
            if !changed {
                judgement.dead.iter().try_for_each(|slot| self.clear_dead(*slot))?;
                return Ok(judgement);
            }
            // The loop ends: without the latch a record changes only once, when its owner releases.
            self.records = read_records(self.state, self.head.table.records, |_| Err(self.state.damaged()))?;
        }
    }

    /// Whether a record has changed since it was read: its owner is gone because it released, and it writes that
    /// before it unlocks.
    fn has_changed(&self, indexed: &IndexedRecord) -> Result<bool, EngineError> {
        if indexed.slot == 0 {
            // An exclusive claim judges record 0 once more under the flock.
            return Ok(false);
        }
        let mut bytes = [0; RECORD];
        self.state.read(&mut bytes, record_at(indexed.slot))?;
        let same = |record: Record| (record.id, record.state) == (indexed.record.id, indexed.record.state);
        Ok(!Record::from_bytes(&bytes).ok().flatten().is_some_and(same))
    }

    /// Clears the records of holders: the caller has the exclusive flock, so they are gone.
    pub(super) fn clear_dead_holders(&mut self) -> Result<(), EngineError> {
        let gone = |indexed: &&IndexedRecord| indexed.record.state == RecordState::Holding;
        let slots: Vec<u32> = self.records.iter().filter(gone).map(|indexed| indexed.slot).collect();
        slots.into_iter().try_for_each(|slot| self.clear_dead(slot))
    }

    /// Clears the record of a dead owner, and stores how its hold ended.
    fn clear_dead(&mut self, slot: u32) -> Result<(), EngineError> {
        if let Some(indexed) = self.records.iter().find(|indexed| indexed.slot == slot) {
            if indexed.record.state == RecordState::Holding {
                let ended = if indexed.record.is_broken() { Previous::Broken } else { Previous::Lapsed };
                self.set_ended(ended)?;
            }
            self.clear(slot)?;
        }
        Ok(())
    }

    /// Empties a record.
    pub(super) fn clear(&mut self, slot: u32) -> Result<(), EngineError> {
        self.state.write(&[RecordState::Empty as u8], record_at(slot))?;
        self.records.retain(|indexed| indexed.slot != slot);
        Ok(())
    }

    /// Stores how the last hold ended.
    pub(super) fn set_ended(&mut self, ended: Previous) -> Result<(), EngineError> {
        self.head.ended = ended;
        self.state.write(&[ended_to_byte(ended)], ENDED as u64)
    }

    /// Assigns the next ticket and a free slot.
    ///
    /// # Errors
    /// [`Fault::Refused`] when [`MAX_CLAIMS`] claims are alive.
    pub(super) fn free_slot(&mut self) -> Result<(u32, u64), EngineError> {
        if self.records.len() >= MAX_CLAIMS as usize {
            self.clear_all_dead()?;
        }
        let mut used = [false; MAX_CLAIMS as usize + 1];
        self.records.iter().for_each(|indexed| used[indexed.slot as usize] = true);
        let Some(slot) = (1..=MAX_CLAIMS).find(|slot| !used[*slot as usize]) else {
            return Err(EngineError::new(
                Fault::Refused,
                format!("the queue is full: {MAX_CLAIMS} claims hold this name or wait for it"),
            ));
        };
        let ticket = self.head.table.next_ticket;
        if ticket + 1 >= TICKET_OR_TOKEN_LIMIT {
            return Err(EngineError::new(
                Fault::Refused,
                "the tickets of this name are used up until the next boot",
            ));
        }
        let table = &mut self.head.table;
        (table.next_ticket, table.records, table.in_use) = (ticket + 1, table.records.max(slot), true);
        self.state.write(&table.to_bytes(), TABLE as u64)?;
        Ok((slot, ticket))
    }

    /// Writes a record to its slot.
    pub(super) fn put(&mut self, slot: u32, record: Record) -> Result<(), EngineError> {
        self.state.write(&record.to_bytes(), record_at(slot))?;
        self.records.retain(|indexed| indexed.slot != slot);
        self.records.push(IndexedRecord { slot, record });
        Ok(())
    }

    /// Marks the table as empty, if it is, so that the next exclusive claim need not read it.
    pub(super) fn mark_if_empty(&mut self) -> Result<(), EngineError> {
        if self.records.is_empty() && self.head.table.in_use {
            (self.head.table.in_use, self.head.table.records) = (false, 0);
            self.state.write(&self.head.table.to_bytes(), TABLE as u64)?;
        }
        Ok(())
    }

    /// Clears the records of all dead owners, to free slots.
    fn clear_all_dead(&mut self) -> Result<(), EngineError> {
        let mut dead = Vec::new();
        for indexed in self.records.iter().filter(|indexed| indexed.record.state != RecordState::MinHold) {
            if !is_alive(self.lock, indexed)? && !self.has_changed(indexed)? {
                dead.push(indexed.slot);
            }
        }
        dead.into_iter().try_for_each(|slot| self.clear_dead(slot))
    }
}

/// Record 0, if in use. A minimum hold time of an earlier boot has ended.
pub(super) fn record_zero(head: &Head, bytes: &[u8; HEAD], boot: [u8; 16]) -> Option<IndexedRecord> {
    // A torn record is possible only while an exclusive holder writes; then its flock shows that the name is held.
    let record = Record::from_bytes(&array(bytes, super::table::layout::RECORD_ZERO)).ok().flatten()?;
    let has_ended = record.state == RecordState::MinHold && head.tokens.boot != boot;
    (!has_ended).then_some(IndexedRecord { slot: 0, record })
}

/// Reads the records in use among the first `count`. Calls `torn` for each torn record, which returns an error or
/// ignores it.
pub(super) fn read_records(
    state: &StateFile,
    count: u32,
    mut torn: impl FnMut(u32) -> Result<(), EngineError>,
) -> Result<Vec<IndexedRecord>, EngineError> {
    let mut bytes = vec![0; count as usize * RECORD];
    state.read(&mut bytes, HEAD as u64)?;
    let mut records = Vec::new();
    for (slot, bytes) in (1..).zip(bytes.chunks_exact(RECORD)) {
        match Record::from_bytes(&array(bytes, 0)) {
            Ok(Some(record)) => records.push(IndexedRecord { slot, record }),
            Ok(None) => {}
            Err(_) => torn(slot)?,
        }
    }
    Ok(records)
}

/// Whether the owner of a record is alive, as seen through another open file.
pub(super) fn is_alive(lock: &LockFile, indexed: &IndexedRecord) -> Result<bool, EngineError> {
    lock.is_marked(match indexed.slot {
        0 => Mark::Hold(indexed.record.token),
        _ => Mark::Ticket(indexed.record.ticket),
    })
}
