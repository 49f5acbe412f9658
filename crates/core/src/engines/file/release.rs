//! The verbs `release` and `renew`, and the signals to waiters after a release.

use std::ops::Range;

use super::{
    claims::{ClaimCell, ClaimEntry, ClaimState, SharedCell, lock_mutex},
    dir::idle::IdleFile,
    dir::open::Access,
    engine::FileEngine,
    kernel::locks::LockFile,
    table::layout::{
        ENDED_AT, MAX_CLAIMS, RECORD_SIZE, RECORD_ZERO_AT, TABLE_AT, TableHeader, bytes_at, ended_to_byte,
        record_offset,
    },
    table::record::{MIN_HOLD_AT, Record, RecordState},
    table::state::StateFile,
    table::wait_order::{StoredRecord, waiters_to_signal},
    table::{Table, is_alive, read_records},
    wake::wake_pipe,
};
use crate::{ClaimId, EngineError, Hold, Instant, Loss, Previous, Release, Released, Renewed, TimeLeft};

/// Whether the table has claims after a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterRelease {
    /// The table is empty.
    Empty,
    /// The table may have claims.
    MayHaveClaims,
}

impl FileEngine {
    /// Releases one claim and leaves no trace of it.
    pub(super) fn release_one(&self, release: &Release) -> Released {
        let cell = self.claims.find(release.id).or_else(|| self.claims.add_tombstone(release.id));
        let Some(entry) = cell.and_then(|cell| self.end_claim(&cell, release.id)) else {
            return Released::NotThere;
        };
        self.listener.forget(release.id);
        let holds_token =
            |named| matches!(entry.claim_state, ClaimState::Holding { token, .. } if token == named);
        let token_matches = release.token.is_none_or(holds_token);
        // If the claim holds another token than the named one, its caller never knew of that hold, so nothing was done
        // under it: it is released without a token, as a hold that was never used.
        let release_without_token =
            (!token_matches).then(|| Release { token: None, min_hold: None, ..release.clone() });
        match self.unlock(&entry, release_without_token.as_ref().unwrap_or(release)) {
            Ok(AfterRelease::Empty) => self.keep_open(*entry),
            Ok(AfterRelease::MayHaveClaims) => {}
            // The lock itself is free: closing the file frees it in any case. Only the record stays, like the record of
            // a dead owner.
            Err(error) => {
                tracing::debug!(%error, name = %release.name, "the record of a released claim could not be emptied");
            }
        }
        if token_matches { Released::Freed } else { Released::NotThere }
    }

    /// Checks one hold, which never expires: returns whether it still exists.
    pub(super) fn renew_one(&self, hold: &Hold) -> Renewed {
        let Some(cell) = self.claims.find(hold.id) else { return Renewed::Lost(Loss::Gone) };
        let cell = lock_mutex(&cell);
        let ClaimCell::Live(entry) = &*cell else { return Renewed::Lost(Loss::Gone) };
        match entry.claim_state {
            ClaimState::Holding { token, .. } if token == hold.token && entry.claim.name == hold.name => {}
            _ => return Renewed::Lost(Loss::Gone),
        }
        match self.loss_of(entry) {
            Ok(None) => Renewed::Extended { ttl: None, left: TimeLeft::Unknown },
            Ok(Some(loss)) => Renewed::Lost(loss),
            Err(error) => Renewed::Unknown(error),
        }
    }

    /// Why the hold of a claim is lost; `None` while it exists.
    pub(super) fn loss_of(&self, entry: &ClaimEntry) -> Result<Option<Loss>, EngineError> {
        if !entry.lock_file.is_at_path(&entry.paths)? {
            return Ok(Some(Loss::Replaced));
        }
        let Some(state_file) = self.state_files.get(&self.dir, &entry.paths, Access::Existing)? else {
            return Ok(Some(Loss::Replaced));
        };
        Ok(match own_record(&state_file, entry)? {
            None => Some(Loss::Replaced),
            Some(record) if record.is_broken() => Some(Loss::Broken),
            Some(_) => None,
        })
    }

    /// Ends the claim in `cell` and returns its entry, if it waited or held.
    fn end_claim(&self, cell: &SharedCell, id: ClaimId) -> Option<Box<ClaimEntry>> {
        let ended_cell = std::mem::replace(&mut *lock_mutex(cell), ClaimCell::Gone);
        self.claims.add_tombstone(id);
        match ended_cell {
            ClaimCell::Live(entry) => Some(entry),
            ClaimCell::Fresh | ClaimCell::Gone => None,
        }
    }

    /// Keeps the lock file of an ended exclusive hold open for the next hold, with nothing locked on it.
    fn keep_open(&self, entry: ClaimEntry) {
        let ClaimEntry { paths, lock_file, claim_state, .. } = entry;
        if let ClaimState::Holding { slot: 0, token, .. } = claim_state
            && lock_file.is_ours_alone()
            && lock_file.remove_hold_mark(token.number)
        {
            self.idle_files.add(IdleFile { paths, lock_file });
        }
    }

    /// Writes that a claim has ended, unlocks its file, and signals the waiters that may now be granted.
    fn unlock(&self, entry: &ClaimEntry, release: &Release) -> Result<AfterRelease, EngineError> {
        let min_hold_until = release.min_hold.map(|min_hold| self.env.clock.now().after(min_hold));
        let state_file = self.state_files.get_to_release(&self.dir, &entry.paths);
        let record_written = match (&state_file, entry.claim_state) {
            (Ok(Some(state_file)), ClaimState::Waiting { .. }) => empty_record(state_file, entry, None),
            (Ok(Some(state_file)), ClaimState::Holding { .. }) => {
                end_hold(state_file, entry, release, min_hold_until)
            }
            _ => Ok(()),
        };
        // LOCK_UN first, then the check for waiters: a waiter that was in the queue before LOCK_UN is found by the
        // check, and a claim that arrives after LOCK_UN tries by itself.
        entry.lock_file.unflock();
        let Some(state_file) = state_file? else {
            return record_written.map(|()| AfterRelease::MayHaveClaims);
        };
        let after_release = if entry.claim_state.slot() == 0 {
            self.signal_waiters(&entry.lock_file, &state_file, 0..1)
        } else {
            self.leave_table(entry, &state_file)?;
            AfterRelease::MayHaveClaims
        };
        record_written.map(|()| after_release)
    }

    /// After a record of the table was emptied: resets the table if that was its last record, and signals the waiters
    /// that may now be granted.
    fn leave_table(&self, entry: &ClaimEntry, state_file: &StateFile) -> Result<(), EngineError> {
        if entry.lock_file.is_at_path(&entry.paths)?
            && let Some(latch) = entry.lock_file.try_latch()?
        {
            let mut table = Table::load(self, &entry.paths, &entry.lock_file, state_file, latch)?;
            table.reset_if_empty()?;
            self.signal(table.lock_file, state_file, &table.records, 0..2);
            return Ok(());
        }
        self.signal_waiters(&entry.lock_file, state_file, 0..2);
        Ok(())
    }

    /// Signals the waiters at these positions of the queue, which is read without the latch. A record that is torn
    /// because of this read belongs to a claim that is trying at this moment, and needs no signal.
    pub(super) fn signal_waiters(
        &self,
        lock_file: &LockFile,
        state_file: &StateFile,
        positions: Range<usize>,
    ) -> AfterRelease {
        let mut bytes = [0; TableHeader::SIZE];
        if state_file.read(&mut bytes, TABLE_AT as u64).is_err() {
            return AfterRelease::MayHaveClaims;
        }
        let table = TableHeader::parse(&bytes);
        if !table.in_use {
            return AfterRelease::Empty;
        }
        if let Ok(records) = read_records(state_file, table.records.min(MAX_CLAIMS), |_| Ok(())) {
            self.signal(lock_file, state_file, &records, positions);
        }
        AfterRelease::MayHaveClaims
    }

    /// Signals the live waiters at these positions of the queue, of which 0 is the head. A waiter whose signal failed
    /// is woken by its slow poll.
    pub(super) fn signal(
        &self,
        lock_file: &LockFile,
        state_file: &StateFile,
        records: &[StoredRecord],
        positions: Range<usize>,
    ) {
        let now = self.env.clock.now();
        let waiters = waiters_to_signal(records, positions, now, &mut |stored| is_alive(lock_file, stored));
        for stored in waiters.unwrap_or_default() {
            wake_pipe::signal(&self.dir, state_file, &stored, now);
        }
    }
}

/// The record of `entry`, if its slot still belongs to this claim.
pub(super) fn own_record(state_file: &StateFile, entry: &ClaimEntry) -> Result<Option<Record>, EngineError> {
    let mut bytes = [0; RECORD_SIZE];
    state_file.read(&mut bytes, record_offset(entry.claim_state.slot()))?;
    Ok(Record::from_bytes(&bytes).ok().flatten().filter(|record| record.id == entry.claim.id))
}

/// Empties the record of a hold, or sets its minimum hold time. Also writes how the hold ended, if it was broken or the
/// release names its token.
fn end_hold(
    state_file: &StateFile,
    entry: &ClaimEntry,
    release: &Release,
    min_hold_until: Option<Instant>,
) -> Result<(), EngineError> {
    let slot = entry.claim_state.slot();
    if slot != 0 {
        let Some(record) = own_record(state_file, entry)? else { return Ok(()) };
        if let Some(ended) = ended_byte(record.is_broken(), release) {
            state_file.write(&[ended], ENDED_AT as u64)?;
        }
        return empty_record(state_file, entry, min_hold_until);
    }
    // The byte for how the last hold ended, and record 0 after it.
    const RECORD_START: usize = RECORD_ZERO_AT - ENDED_AT;
    let mut bytes = [0; RECORD_START + RECORD_SIZE];
    state_file.read(&mut bytes, ENDED_AT as u64)?;
    let record: [u8; RECORD_SIZE] = bytes_at(&bytes, RECORD_START);
    let Some(is_broken) = Record::read_is_broken(&record, entry.claim.id) else { return Ok(()) };
    bytes[0] = ended_byte(is_broken, release).unwrap_or(bytes[0]);
    let len = match min_hold_until {
        None => {
            bytes[RECORD_START] = RecordState::Empty as u8;
            RECORD_START + 1
        }
        Some(until) => {
            let offset = RECORD_START + MIN_HOLD_AT as usize;
            bytes[RECORD_START] = RecordState::MinHold as u8;
            bytes[offset..offset + 8].copy_from_slice(&until.as_nanos().to_le_bytes());
            offset + 8
        }
    };
    state_file.write(&bytes[..len], ENDED_AT as u64)
}

/// Empties a record of the table, or sets its minimum hold time, if it still belongs to this claim. Needs no latch:
/// only the owner of a record does this.
fn empty_record(
    state_file: &StateFile,
    entry: &ClaimEntry,
    min_hold_until: Option<Instant>,
) -> Result<(), EngineError> {
    if own_record(state_file, entry)?.is_none() {
        return Ok(());
    }
    let offset = record_offset(entry.claim_state.slot());
    let Some(until) = min_hold_until else { return state_file.write(&[RecordState::Empty as u8], offset) };
    state_file.write(&until.as_nanos().to_le_bytes(), offset + MIN_HOLD_AT)?;
    state_file.write(&[RecordState::MinHold as u8], offset)
}

/// The byte that tells the next holder how this hold ended; `None` (the byte stays) for a hold that was never used.
fn ended_byte(is_broken: bool, release: &Release) -> Option<u8> {
    let ended = if is_broken { Some(Previous::Broken) } else { release.token.map(|_| release.ended) };
    ended.map(ended_to_byte)
}
