//! The table of a name under its latch: reads it, changes it, removes records of dead owners.

pub(super) mod layout;
pub(super) mod record;
pub(super) mod state;
pub(super) mod tokens;
pub(super) mod wait_order;

use super::{
    engine::FileEngine,
    kernel::locks::{Latch, LockFile, Mark, NamePaths},
    table::layout::{
        ENDED_AT, HEADER_SIZE, Header, MAX_CLAIMS, RECORD_SIZE, RECORD_ZERO_AT, TABLE_AT,
        TICKET_OR_TOKEN_LIMIT, TableHeader, bytes_at, ended_to_byte, record_offset,
    },
    table::record::{Record, RecordState},
    table::state::StateFile,
    table::wait_order::{Asker, Judgement, StoredRecord, judge},
};
use crate::{EngineError, Fault, Instant, Previous};

/// The table of a name as it was read, and the right to change it until this value is dropped.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) lock_file: &'a LockFile,
    pub(super) state_file: &'a StateFile,
    pub(super) header: Header,
    /// Record 0, if in use. It can change at any time unless the caller has the flock.
    pub(super) record_zero: Option<StoredRecord>,
    /// The other records in use.
    pub(super) records: Vec<StoredRecord>,
    /// Held until the table is dropped.
    _latch: Latch<'a>,
}

impl<'a> Table<'a> {
    /// Reads the state of `paths`, or creates it. After a reboot every record is void.
    pub(super) fn load(
        engine: &FileEngine,
        paths: &NamePaths,
        lock_file: &'a LockFile,
        state_file: &'a StateFile,
        latch: Latch<'a>,
    ) -> Result<Self, EngineError> {
        let (mut header, bytes) =
            state_file.head_or_new(&paths.name, &latch, engine.boot_id, || engine.new_lineage())?;
        let mut records = Vec::new();
        if header.table.boot_id != engine.boot_id {
            header.table = TableHeader { in_use: false, records: 0, next_ticket: 1, boot_id: engine.boot_id };
            state_file.write(&header.table.to_bytes(), TABLE_AT as u64)?;
        } else if header.table.in_use {
            records = read_records(state_file, header.table.records, |_| Err(state_file.damaged()))?;
        }
        Ok(Self {
            lock_file,
            state_file,
            record_zero: record_zero(&header, &bytes, engine.boot_id),
            header,
            records,
            _latch: latch,
        })
    }

    /// Reads everything again, because some changes need no latch: owners empty their records or set their minimum hold
    /// time, and an exclusive holder writes its tokens and record 0.
    pub(super) fn refresh(&mut self, engine: &FileEngine, paths: &NamePaths) -> Result<(), EngineError> {
        let (header, bytes) =
            self.state_file.header(&paths.name)?.ok_or_else(|| self.state_file.damaged())?;
        self.records =
            read_records(self.state_file, header.table.records, |_| Err(self.state_file.damaged()))?;
        self.record_zero = record_zero(&header, &bytes, engine.boot_id);
        self.header = header;
        Ok(())
    }

    /// Judges whether `asker` can be granted, and clears the records of dead owners that it finds.
    pub(super) fn judge(&mut self, asker: Asker, now: Instant) -> Result<Judgement, EngineError> {
        loop {
            let mut changed = false;
            let judgement = judge(&self.records, self.record_zero.as_ref(), asker, now, &mut |stored| {
                let is_alive = is_alive(self.lock_file, stored)?;
                changed |= !is_alive && self.has_changed(stored)?;
                Ok(is_alive)
            })?;
            if !changed {
                judgement.dead_slots.iter().try_for_each(|slot| self.clear_dead_record(*slot))?;
                return Ok(judgement);
            }
            // The loop ends: without the latch a record changes only one time, when its owner releases.
            self.records =
                read_records(self.state_file, self.header.table.records, |_| Err(self.state_file.damaged()))?;
        }
    }

    /// Whether a record has changed after it was read. If so, its owner is not dead but has released: an owner writes
    /// its release into the record before it unlocks.
    fn has_changed(&self, stored: &StoredRecord) -> Result<bool, EngineError> {
        if stored.slot == 0 {
            // An exclusive claim judges record 0 once more under the flock.
            return Ok(false);
        }
        let mut bytes = [0; RECORD_SIZE];
        self.state_file.read(&mut bytes, record_offset(stored.slot))?;
        let is_same = |record: Record| (record.id, record.state) == (stored.record.id, stored.record.state);
        Ok(!Record::from_bytes(&bytes).ok().flatten().is_some_and(is_same))
    }

    /// Clears the records of holders. The caller must have the exclusive flock, which proves that those holders are
    /// gone.
    pub(super) fn clear_dead_holders(&mut self) -> Result<(), EngineError> {
        let is_hold = |stored: &&StoredRecord| stored.record.state == RecordState::Holding;
        let slots: Vec<u32> = self.records.iter().filter(is_hold).map(|stored| stored.slot).collect();
        slots.into_iter().try_for_each(|slot| self.clear_dead_record(slot))
    }

    /// Clears the record of a dead owner, and stores how its hold ended.
    fn clear_dead_record(&mut self, slot: u32) -> Result<(), EngineError> {
        if let Some(stored) = self.records.iter().find(|stored| stored.slot == slot) {
            if stored.record.state == RecordState::Holding {
                let ended = if stored.record.is_broken() { Previous::Broken } else { Previous::Lapsed };
                self.set_ended(ended)?;
            }
            self.clear_record(slot)?;
        }
        Ok(())
    }

    /// Empties a record.
    pub(super) fn clear_record(&mut self, slot: u32) -> Result<(), EngineError> {
        self.state_file.write(&[RecordState::Empty as u8], record_offset(slot))?;
        self.records.retain(|stored| stored.slot != slot);
        Ok(())
    }

    /// Stores how the last hold ended.
    pub(super) fn set_ended(&mut self, ended: Previous) -> Result<(), EngineError> {
        self.header.ended = ended;
        self.state_file.write(&[ended_to_byte(ended)], ENDED_AT as u64)
    }

    /// Assigns a free slot and the next ticket to a new record.
    ///
    /// # Errors
    /// [`Fault::Refused`] when [`MAX_CLAIMS`] claims are alive.
    pub(super) fn assign_slot(&mut self) -> Result<(u32, u64), EngineError> {
        if self.records.len() >= MAX_CLAIMS as usize {
            self.clear_all_dead()?;
        }
        let mut is_used = [false; MAX_CLAIMS as usize + 1];
        self.records.iter().for_each(|stored| is_used[stored.slot as usize] = true);
        let Some(slot) = (1..=MAX_CLAIMS).find(|slot| !is_used[*slot as usize]) else {
            return Err(EngineError::new(
                Fault::Refused,
                format!("the queue is full: {MAX_CLAIMS} claims hold this name or wait for it"),
            ));
        };
        let ticket = self.header.table.next_ticket;
        if ticket + 1 >= TICKET_OR_TOKEN_LIMIT {
            return Err(EngineError::new(
                Fault::Refused,
                "the tickets of this name are used up until the next boot",
            ));
        }
        let table = &mut self.header.table;
        (table.next_ticket, table.records, table.in_use) = (ticket + 1, table.records.max(slot), true);
        self.state_file.write(&table.to_bytes(), TABLE_AT as u64)?;
        Ok((slot, ticket))
    }

    /// Writes a record to its slot.
    pub(super) fn write_record(&mut self, slot: u32, record: Record) -> Result<(), EngineError> {
        self.state_file.write(&record.to_bytes(), record_offset(slot))?;
        self.records.retain(|stored| stored.slot != slot);
        self.records.push(StoredRecord { slot, record });
        Ok(())
    }

    /// Writes into the header that the table is not in use, if the table is empty. Then the next exclusive claim need
    /// not read the table.
    pub(super) fn reset_if_empty(&mut self) -> Result<(), EngineError> {
        if self.records.is_empty() && self.header.table.in_use {
            (self.header.table.in_use, self.header.table.records) = (false, 0);
            self.state_file.write(&self.header.table.to_bytes(), TABLE_AT as u64)?;
        }
        Ok(())
    }

    /// Clears the records of all dead owners, to free slots.
    fn clear_all_dead(&mut self) -> Result<(), EngineError> {
        let mut dead_slots = Vec::new();
        for stored in self.records.iter().filter(|stored| stored.record.state != RecordState::MinHold) {
            if !is_alive(self.lock_file, stored)? && !self.has_changed(stored)? {
                dead_slots.push(stored.slot);
            }
        }
        dead_slots.into_iter().try_for_each(|slot| self.clear_dead_record(slot))
    }
}

/// Record 0, if in use. A minimum hold time of an earlier boot has ended.
pub(super) fn record_zero(
    header: &Header,
    bytes: &[u8; HEADER_SIZE],
    boot_id: [u8; 16],
) -> Option<StoredRecord> {
    // A torn record is possible only while an exclusive holder writes; then its flock shows that the name is held.
    let record = Record::from_bytes(&bytes_at(bytes, RECORD_ZERO_AT)).ok().flatten()?;
    let has_ended = record.state == RecordState::MinHold && header.tokens.boot_id != boot_id;
    (!has_ended).then_some(StoredRecord { slot: 0, record })
}

/// Reads the records in use among the first `count`. Calls `on_torn` with the slot of each torn record: it returns an
/// error, or `Ok` to ignore the record.
pub(super) fn read_records(
    state_file: &StateFile,
    count: u32,
    mut on_torn: impl FnMut(u32) -> Result<(), EngineError>,
) -> Result<Vec<StoredRecord>, EngineError> {
    let mut bytes = vec![0; count as usize * RECORD_SIZE];
    state_file.read(&mut bytes, HEADER_SIZE as u64)?;
    let mut records = Vec::new();
    for (slot, bytes) in (1..).zip(bytes.chunks_exact(RECORD_SIZE)) {
        match Record::from_bytes(&bytes_at(bytes, 0)) {
            Ok(Some(record)) => records.push(StoredRecord { slot, record }),
            Ok(None) => {}
            Err(_) => on_torn(slot)?,
        }
    }
    Ok(records)
}

/// Whether the owner of a record is alive. `lock_file` must not be the open file of that owner.
pub(super) fn is_alive(lock_file: &LockFile, stored: &StoredRecord) -> Result<bool, EngineError> {
    lock_file.is_marked(match stored.slot {
        0 => Mark::Hold(stored.record.token),
        _ => Mark::Ticket(stored.record.ticket),
    })
}
