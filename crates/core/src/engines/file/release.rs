//! The verbs `release` and `renew`, and the signals to waiters after a release.

use super::{
    claims::{ClaimCell, ClaimState, Entry, SharedCell, lock},
    dir::idle::Spare,
    dir::open::Missing,
    engine::FileEngine,
    kernel::locks::LockFile,
    table::layout::{
        ENDED, MAX_CLAIMS, RECORD, RECORD_ZERO, TABLE, TableHead, array, ended_to_byte, record_at,
    },
    table::record::{MIN_HOLD, Record, RecordState},
    table::state::StateFile,
    table::wait_order::{IndexedRecord, to_signal},
    table::{Table, is_alive, read_records},
    wake::wake_pipe,
};
use crate::{ClaimId, EngineError, Hold, Instant, Loss, Previous, Release, Released, Renewed};

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
        let Some(entry) = cell.and_then(|cell| self.take_out(&cell, release.id)) else {
            return Released::NotThere;
        };
        self.listener.forget(release.id);
        let holds_token =
            |wanted| matches!(entry.claim_state, ClaimState::Holding { token, .. } if token == wanted);
        let is_meant = release.token.is_none_or(holds_token);
        // The caller never knew of a hold with another token than the named one, so nothing was done under that hold.
        let without_token = (!is_meant).then(|| Release { token: None, min_hold: None, ..release.clone() });
        match self.unlock(&entry, without_token.as_ref().unwrap_or(release)) {
            Ok(AfterRelease::Empty) => self.store_idle(*entry),
            Ok(AfterRelease::MayHaveClaims) => {}
            // The lock itself is free: closing the file frees it in any case. Only the record stays, like the record of
            // a dead owner.
            Err(error) => {
                tracing::debug!(%error, name = %release.name, "the record of a released claim could not be emptied");
            }
        }
        if is_meant { Released::Freed } else { Released::NotThere }
    }

    /// Checks one hold, which never expires: returns whether it still exists.
    pub(super) fn renew_one(&self, hold: &Hold) -> Renewed {
        let Some(cell) = self.claims.find(hold.id) else { return Renewed::Lost(Loss::Gone) };
        let cell = lock(&cell);
        let ClaimCell::Live(entry) = &*cell else { return Renewed::Lost(Loss::Gone) };
        match entry.claim_state {
            ClaimState::Holding { token, .. } if token == hold.token && entry.claim.name == hold.name => {}
            _ => return Renewed::Lost(Loss::Gone),
        }
        match self.lost(entry) {
            Ok(None) => Renewed::Extended { ttl: None },
            Ok(Some(loss)) => Renewed::Lost(loss),
            Err(error) => Renewed::Unknown(error),
        }
    }

    /// Why a hold is lost; `None` while it is not.
    pub(super) fn lost(&self, entry: &Entry) -> Result<Option<Loss>, EngineError> {
        if !entry.lock.is_current(&entry.key)? {
            return Ok(Some(Loss::Replaced));
        }
        let Some(state) = self.states.get(&self.dir, &entry.key, Missing::Leave)? else {
            return Ok(Some(Loss::Replaced));
        };
        Ok(match own_record(&state, entry)? {
            None => Some(Loss::Replaced),
            Some(record) if record.is_broken() => Some(Loss::Broken),
            Some(_) => None,
        })
    }

    /// Ends the claim in `cell` and returns its entry, if it waited or held.
    fn take_out(&self, cell: &SharedCell, id: ClaimId) -> Option<Box<Entry>> {
        let taken = std::mem::replace(&mut *lock(cell), ClaimCell::Gone);
        self.claims.add_tombstone(id);
        match taken {
            ClaimCell::Live(entry) => Some(entry),
            ClaimCell::Fresh | ClaimCell::Gone => None,
        }
    }

    /// Keeps the lock file of an ended hold open for the next one, with nothing locked on it.
    fn store_idle(&self, entry: Entry) {
        let Entry { key, lock, claim_state, .. } = entry;
        if let ClaimState::Holding { slot: 0, token, .. } = claim_state
            && lock.is_ours_alone()
            && lock.unmark(token.number)
        {
            self.idle.add(Spare { key, lock });
        }
    }

    /// Writes that a claim has ended, and unlocks its file.
    fn unlock(&self, entry: &Entry, release: &Release) -> Result<AfterRelease, EngineError> {
        let until = release.min_hold.map(|time| self.env.clock.now().after(time));
        let state = self.states.last(&self.dir, &entry.key);
        let written = match (&state, entry.claim_state) {
            (Ok(Some(state)), ClaimState::Waiting { .. }) => empty(state, entry, None),
            (Ok(Some(state)), ClaimState::Holding { .. }) => end(state, entry, release, until),
            _ => Ok(()),
        };
        // LOCK_UN first, then the check for waiters: a waiter that was in the queue before could not be granted, and
        // one that arrives later tries by itself.
        entry.lock.unflock();
        let Some(state) = state? else { return written.map(|()| AfterRelease::MayHaveClaims) };
        let after = if entry.claim_state.slot() == 0 {
            self.signal_waiters(&entry.lock, &state, 0, 1)
        } else {
            self.leave_table(entry, &state)?;
            AfterRelease::MayHaveClaims
        };
        written.map(|()| after)
    }

    /// After a record of the table was emptied: marks the table as empty if it was the last, and signals the waiters
    /// that may now be granted.
    fn leave_table(&self, entry: &Entry, state: &StateFile) -> Result<(), EngineError> {
        if entry.lock.is_current(&entry.key)?
            && let Some(latch) = entry.lock.try_latch()?
        {
            let mut table = Table::load(self, &entry.key, &entry.lock, state, latch)?;
            table.mark_if_empty()?;
            self.signal(table.lock, state, &table.records, 0, 2);
            return Ok(());
        }
        self.signal_waiters(&entry.lock, state, 0, 2);
        Ok(())
    }

    /// Signals waiters, read without the latch. A record torn by that belongs to a claim that is trying at this
    /// moment.
    pub(super) fn signal_waiters(
        &self,
        lock: &LockFile,
        state: &StateFile,
        skip: usize,
        count: usize,
    ) -> AfterRelease {
        let mut bytes = [0; TableHead::SIZE];
        if state.read(&mut bytes, TABLE as u64).is_err() {
            return AfterRelease::MayHaveClaims;
        }
        let table = TableHead::parse(&bytes);
        if !table.in_use {
            return AfterRelease::Empty;
        }
        if let Ok(records) = read_records(state, table.records.min(MAX_CLAIMS), |_| Ok(())) {
            self.signal(lock, state, &records, skip, count);
        }
        AfterRelease::MayHaveClaims
    }

    /// Signals `count` live waiters after the first `skip`. A waiter whose signal failed is woken by its slow poll.
    pub(super) fn signal(
        &self,
        lock: &LockFile,
        state: &StateFile,
        records: &[IndexedRecord],
        skip: usize,
        count: usize,
    ) {
        let now = self.env.clock.now();
        let chosen = to_signal(records, skip, count, now, &mut |indexed| is_alive(lock, indexed));
        for indexed in chosen.unwrap_or_default() {
            wake_pipe::signal(&self.dir, state, &indexed, now);
        }
    }
}

/// The record of `entry`, if its slot still belongs to this claim.
pub(super) fn own_record(state: &StateFile, entry: &Entry) -> Result<Option<Record>, EngineError> {
    let mut bytes = [0; RECORD];
    state.read(&mut bytes, record_at(entry.claim_state.slot()))?;
    Ok(Record::from_bytes(&bytes).ok().flatten().filter(|record| record.id == entry.claim.id))
}

/// Writes how a hold ended, if the release names its token, and empties its record, or sets its minimum hold time.
fn end(
    state: &StateFile,
    entry: &Entry,
    release: &Release,
    min_hold_until: Option<Instant>,
) -> Result<(), EngineError> {
    let slot = entry.claim_state.slot();
    if slot != 0 {
        let Some(record) = own_record(state, entry)? else { return Ok(()) };
        if let Some(ended) = end_byte(record.is_broken(), release) {
            state.write(&[ended], ENDED as u64)?;
        }
        return empty(state, entry, min_hold_until);
    }
    // The byte for how the last hold ended, and record 0 after it.
    const RECORD_START: usize = RECORD_ZERO - ENDED;
    let mut bytes = [0; RECORD_START + RECORD];
    state.read(&mut bytes, ENDED as u64)?;
    let record: [u8; RECORD] = array(&bytes, RECORD_START);
    let Some(is_broken) = Record::broken_of(&record, entry.claim.id) else { return Ok(()) };
    bytes[0] = end_byte(is_broken, release).unwrap_or(bytes[0]);
    let len = match min_hold_until {
        None => {
            bytes[RECORD_START] = RecordState::Empty as u8;
            RECORD_START + 1
        }
        Some(until) => {
            let at = RECORD_START + MIN_HOLD as usize;
            bytes[RECORD_START] = RecordState::MinHold as u8;
            bytes[at..at + 8].copy_from_slice(&until.as_nanos().to_le_bytes());
            at + 8
        }
    };
    state.write(&bytes[..len], ENDED as u64)
}

/// Empties a record of the table, or sets its minimum hold time, if it still belongs to this claim. Needs no latch:
/// only the owner of a record does this.
fn empty(state: &StateFile, entry: &Entry, min_hold_until: Option<Instant>) -> Result<(), EngineError> {
    if own_record(state, entry)?.is_none() {
        return Ok(());
    }
    let at = record_at(entry.claim_state.slot());
    let Some(until) = min_hold_until else { return state.write(&[RecordState::Empty as u8], at) };
    state.write(&until.as_nanos().to_le_bytes(), at + MIN_HOLD)?;
    state.write(&[RecordState::MinHold as u8], at)
}

/// How the hold ended, as reported to the next holder; `None` (no change) for a hold that was never used.
fn end_byte(is_broken: bool, release: &Release) -> Option<u8> {
    let ended = if is_broken { Some(Previous::Broken) } else { release.token.map(|_| release.ended) };
    ended.map(ended_to_byte)
}
