//! Which claim may be granted: by the order of arrival and the permits in use. Pure: a function argument says which
//! owners are alive.

use std::{ops::Range, time::Duration};

use super::super::table::record::{Record, RecordState};
use crate::{EngineError, Instant, Mode};

/// A waiter that was signalled and then has not asked for this time counts as stalled: its process is paused or gets no
/// CPU time. It keeps its position, but other claims can pass it.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// A record as stored in the table, with its slot.
#[derive(Clone, Debug)]
pub(crate) struct StoredRecord {
    pub(crate) slot: u32,
    pub(crate) record: Record,
}

/// The claim to judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) mode: Mode,
    /// Its ticket; `None` for a new claim, which is behind every waiter.
    pub(crate) ticket: Option<u64>,
}

/// Whether the asker may be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No record blocks it: the flock decides.
    Free,
    /// A live waiter ahead of it must be granted first.
    Behind,
    /// Too many permits are in use, or the flock is held.
    Held,
    /// Blocked without a holder until this time.
    MinHold(Instant),
    /// The name is in use as another kind of lock, or with another limit.
    Clash(Mode),
}

/// A verdict, with the other facts that were found while judging.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    /// How many claims wait ahead of the asker.
    pub(crate) ahead: u32,
    /// The slots of the records whose owners are dead, or whose minimum hold time has passed.
    pub(crate) dead_slots: Vec<u32>,
}

/// Says whether the owner of a record is alive.
type IsAlive<'a> = dyn FnMut(&StoredRecord) -> Result<bool, EngineError> + 'a;

/// Judges `asker` by the table, ignoring its own record, if any. `record_zero` is record 0, if in use.
pub(crate) fn judge(
    records: &[StoredRecord],
    record_zero: Option<&StoredRecord>,
    asker: Asker,
    now: Instant,
    is_alive: &mut IsAlive<'_>,
) -> Result<Judgement, EngineError> {
    let mut judgement = Judgement { verdict: Verdict::Free, ahead: 0, dead_slots: Vec::new() };
    if asker.ticket.is_none()
        && let Some(other) =
            clashing_mode(records, record_zero, asker, now, is_alive, &mut judgement.dead_slots)?
    {
        judgement.verdict = Verdict::Clash(other);
        return Ok(judgement);
    }
    let queue = waiters_ahead(records, asker);
    let mut blocked = false;
    for (position, stored) in queue.iter().enumerate() {
        if judgement.dead_slots.contains(&stored.slot) {
            continue;
        }
        if blocked {
            // Behind the first live waiter no liveness is checked: the count is a hint, and the queue may be long.
            judgement.ahead += (queue.len() - position) as u32;
            break;
        }
        if must_precede(stored.record.mode, asker.mode) {
            if !is_alive(stored)? {
                judgement.dead_slots.push(stored.slot);
                continue;
            }
            blocked = !is_stalled(&stored.record, now);
        }
        judgement.ahead += 1;
    }
    judgement.verdict = match min_hold_end(records, record_zero, asker.mode, now, &mut judgement.dead_slots) {
        Some(until) => Verdict::MinHold(until),
        None if blocked => Verdict::Behind,
        None => judge_permits(records, asker.mode, is_alive, &mut judgement.dead_slots)?,
    };
    Ok(judgement)
}

/// The live waiters at these positions of the queue, of which 0 is the head. A stalled waiter has the same position as
/// the waiter behind it, and both are signalled together, because the stalled one may never ask.
pub(crate) fn waiters_to_signal(
    records: &[StoredRecord],
    positions: Range<usize>,
    now: Instant,
    is_alive: &mut IsAlive<'_>,
) -> Result<Vec<StoredRecord>, EngineError> {
    let mut queue: Vec<&StoredRecord> =
        records.iter().filter(|stored| stored.record.state == RecordState::Waiting).collect();
    queue.sort_by_key(|stored| stored.record.ticket);
    let (mut waiters, mut position) = (Vec::new(), 0);
    for stored in queue {
        if position >= positions.end {
            break;
        }
        if !is_alive(stored)? {
            continue;
        }
        if position >= positions.start {
            waiters.push(stored.clone());
        }
        position += usize::from(!is_stalled(&stored.record, now));
    }
    Ok(waiters)
}

/// Whether the minimum hold time of a record still runs.
pub(crate) fn is_in_min_hold(record: &Record, now: Instant) -> bool {
    record.state == RecordState::MinHold && record.min_hold_until > now
}

/// The mode in use on this name, if it is of another kind than the asker's. The slots of dead owners are added
/// to `dead_slots`.
fn clashing_mode(
    records: &[StoredRecord],
    record_zero: Option<&StoredRecord>,
    asker: Asker,
    now: Instant,
    is_alive: &mut IsAlive<'_>,
    dead_slots: &mut Vec<u32>,
) -> Result<Option<Mode>, EngineError> {
    for stored in records.iter().chain(record_zero).filter(|stored| !stored.record.mode.same_kind(asker.mode))
    {
        let is_in_use = match stored.record.state {
            RecordState::MinHold => is_in_min_hold(&stored.record, now),
            _ => is_alive(stored)?,
        };
        if is_in_use {
            return Ok(Some(stored.record.mode));
        }
        if stored.slot != 0 {
            dead_slots.push(stored.slot);
        }
    }
    Ok(None)
}

/// The waiters ahead of the asker, in order.
fn waiters_ahead(records: &[StoredRecord], asker: Asker) -> Vec<&StoredRecord> {
    let own_ticket = asker.ticket.unwrap_or(u64::MAX);
    let mut queue: Vec<&StoredRecord> = records
        .iter()
        .filter(|stored| stored.record.state == RecordState::Waiting && stored.record.ticket < own_ticket)
        .collect();
    queue.sort_by_key(|stored| stored.record.ticket);
    queue
}

/// Whether waiter `first` must be granted before `second`, which is behind it. Readers do not wait for readers. Among
/// permits even a small claim waits behind a big one: otherwise the big one would starve.
pub(crate) const fn must_precede(first: Mode, second: Mode) -> bool {
    !matches!((first, second), (Mode::Shared, Mode::Shared))
}

/// Whether the waiter of a record is stalled: see [`STALLED_AFTER`].
pub(crate) fn is_stalled(record: &Record, now: Instant) -> bool {
    record.signalled_at.is_some_and(|signalled_at| now.since(signalled_at) > STALLED_AFTER)
}

/// The end of the minimum hold time that blocks `mode`, if there is one. Record 0 of the state file is the minimum hold
/// of an exclusive hold, which blocks every mode; the other records are minimum holds of shared holds. The slots of
/// expired records are added to `dead_slots`.
fn min_hold_end(
    records: &[StoredRecord],
    record_zero: Option<&StoredRecord>,
    mode: Mode,
    now: Instant,
    dead_slots: &mut Vec<u32>,
) -> Option<Instant> {
    let mut until = record_zero
        .filter(|record_zero| is_in_min_hold(&record_zero.record, now))
        .map(|record_zero| record_zero.record.min_hold_until);
    for stored in records.iter().filter(|stored| stored.record.state == RecordState::MinHold) {
        if !is_in_min_hold(&stored.record, now) {
            dead_slots.push(stored.slot);
        } else if mode == Mode::Exclusive {
            until = until.max(Some(stored.record.min_hold_until));
        }
    }
    until
}

/// The verdict for a claim that no waiter blocks: whether enough permits are left for `mode`. Checks the liveness of
/// holders only when there are too few.
fn judge_permits(
    records: &[StoredRecord],
    mode: Mode,
    is_alive: &mut IsAlive<'_>,
    dead_slots: &mut Vec<u32>,
) -> Result<Verdict, EngineError> {
    let Mode::Permits { count, limit } = mode else { return Ok(Verdict::Free) };
    let permits = |record: &Record| match record.mode {
        Mode::Permits { count, .. } => u64::from(count),
        Mode::Exclusive | Mode::Shared => 0,
    };
    let holders: Vec<&StoredRecord> = records
        .iter()
        .filter(|stored| {
            matches!(stored.record.state, RecordState::Holding | RecordState::MinHold)
                && !dead_slots.contains(&stored.slot)
        })
        .collect();
    let mut permits_taken: u64 = holders.iter().map(|stored| permits(&stored.record)).sum();
    let mut first_end: Option<Instant> = None;
    for stored in holders {
        if permits_taken + u64::from(count) <= u64::from(limit) {
            return Ok(Verdict::Free);
        }
        if stored.record.state == RecordState::MinHold {
            let until = stored.record.min_hold_until;
            first_end = Some(first_end.map_or(until, |first| first.min(until)));
        } else if !is_alive(stored)? {
            dead_slots.push(stored.slot);
            permits_taken -= permits(&stored.record);
        }
    }
    if permits_taken + u64::from(count) <= u64::from(limit) {
        return Ok(Verdict::Free);
    }
    Ok(first_end.map_or(Verdict::Held, Verdict::MinHold))
}
