//! Which claim may be granted: by the order of arrival and the permits in use. Pure: a function argument says which
//! owners are alive.

use std::time::Duration;

use super::super::table::record::{Record, RecordState};
use crate::{EngineError, Instant, Mode};

/// A waiter that has not asked for this time since it was signalled counts as stalled (its process is stopped or
/// starved): it keeps its position, but other claims may pass it.
const STALLED: Duration = Duration::from_secs(1);

/// A record and its slot in the table.
#[derive(Clone, Debug)]
pub(crate) struct IndexedRecord {
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

/// The result for the asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No record blocks it: the flock decides.
    Free,
    /// A live waiter ahead of it must be granted first.
    Behind,
    /// The permits are in use, or the flock is held.
    Held,
    /// Blocked without a holder until this time.
    MinHold(Instant),
    /// The name is in use as another kind of lock, or with another limit.
    Clash(Mode),
}

/// A verdict, with what else the judging found.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    /// How many claims wait ahead of the asker.
    pub(crate) ahead: u32,
    /// Slots of records whose owners are gone, or whose time has passed.
    pub(crate) dead: Vec<u32>,
}

/// Says whether the owner of a record is alive.
type Alive<'a> = dyn FnMut(&IndexedRecord) -> Result<bool, EngineError> + 'a;

/// Judges `asker` by the table, ignoring its own record, if any. `record_zero` is record 0, if in use.
pub(crate) fn judge(
    records: &[IndexedRecord],
    record_zero: Option<&IndexedRecord>,
    asker: Asker,
    now: Instant,
    alive: &mut Alive<'_>,
) -> Result<Judgement, EngineError> {
    let mut judgement = Judgement { verdict: Verdict::Free, ahead: 0, dead: Vec::new() };
    if asker.ticket.is_none()
        && let Some(other) = clash(records, record_zero, asker, now, alive, &mut judgement.dead)?
    {
        judgement.verdict = Verdict::Clash(other);
        return Ok(judgement);
    }
    let queue = waiters_before(records, asker);
    let mut blocked = false;
    for (position, indexed) in queue.iter().enumerate() {
        if judgement.dead.contains(&indexed.slot) {
            continue;
        }
        if blocked {
            // Behind the first live waiter no liveness is checked: the count is a hint, and the queue may be long.
            judgement.ahead += (queue.len() - position) as u32;
            break;
        }
        if must_precede(indexed.record.mode, asker.mode) {
            if !alive(indexed)? {
                judgement.dead.push(indexed.slot);
                continue;
            }
            blocked = !is_stalled(&indexed.record, now);
        }
        judgement.ahead += 1;
    }
    judgement.verdict = match min_hold_against(records, record_zero, asker.mode, now, &mut judgement.dead) {
        Some(until) => Verdict::MinHold(until),
        None if blocked => Verdict::Behind,
        None => permits_left(records, asker.mode, alive, &mut judgement.dead)?,
    };
    Ok(judgement)
}

/// The waiters to signal, from the head of the queue: skips `skip` live ones, returns the next `count`. A stalled
/// waiter is signalled together with the next one, because it may never ask.
pub(crate) fn to_signal(
    records: &[IndexedRecord],
    skip: usize,
    count: usize,
    now: Instant,
    alive: &mut Alive<'_>,
) -> Result<Vec<IndexedRecord>, EngineError> {
    let mut queue: Vec<&IndexedRecord> =
        records.iter().filter(|indexed| indexed.record.state == RecordState::Waiting).collect();
    queue.sort_by_key(|indexed| indexed.record.ticket);
    let (mut chosen, mut position) = (Vec::new(), 0);
    for indexed in queue {
        if position >= skip + count {
            break;
        }
        if !alive(indexed)? {
            continue;
        }
        if position >= skip {
            chosen.push(indexed.clone());
        }
        position += usize::from(!is_stalled(&indexed.record, now));
    }
    Ok(chosen)
}

/// Whether the minimum hold time of a record still runs.
pub(crate) fn is_in_min_hold(record: &Record, now: Instant) -> bool {
    record.state == RecordState::MinHold && record.min_hold_until > now
}

/// The mode in use on this name, if it is of another kind than the asker's. Dead owners are added to `dead`.
fn clash(
    records: &[IndexedRecord],
    record_zero: Option<&IndexedRecord>,
    asker: Asker,
    now: Instant,
    alive: &mut Alive<'_>,
    dead: &mut Vec<u32>,
) -> Result<Option<Mode>, EngineError> {
    for indexed in
        records.iter().chain(record_zero).filter(|indexed| !indexed.record.mode.same_kind(asker.mode))
    {
        let counts = match indexed.record.state {
            RecordState::MinHold => is_in_min_hold(&indexed.record, now),
            _ => alive(indexed)?,
        };
        if counts {
            return Ok(Some(indexed.record.mode));
        }
        if indexed.slot != 0 {
            dead.push(indexed.slot);
        }
    }
    Ok(None)
}

/// The waiters ahead of the asker, in order.
fn waiters_before(records: &[IndexedRecord], asker: Asker) -> Vec<&IndexedRecord> {
    let own_ticket = asker.ticket.unwrap_or(u64::MAX);
    let mut queue: Vec<&IndexedRecord> = records
        .iter()
        .filter(|indexed| indexed.record.state == RecordState::Waiting && indexed.record.ticket < own_ticket)
        .collect();
    queue.sort_by_key(|indexed| indexed.record.ticket);
    queue
}

/// Whether waiter `first` must be granted before `second`, which is behind it. Readers do not wait for readers. Among
/// permits even a small claim waits behind a big one, which would starve otherwise.
pub(crate) const fn must_precede(first: Mode, second: Mode) -> bool {
    !matches!((first, second), (Mode::Shared, Mode::Shared))
}

/// Whether the waiter of a record is stalled: see [`STALLED`].
pub(crate) fn is_stalled(record: &Record, now: Instant) -> bool {
    record.signalled.is_some_and(|signalled| now.since(signalled) > STALLED)
}

/// Until when a minimum hold time blocks `mode`. Expired records are added to `dead`.
fn min_hold_against(
    records: &[IndexedRecord],
    record_zero: Option<&IndexedRecord>,
    mode: Mode,
    now: Instant,
    dead: &mut Vec<u32>,
) -> Option<Instant> {
    let mut until = record_zero
        .filter(|record_zero| is_in_min_hold(&record_zero.record, now))
        .map(|record_zero| record_zero.record.min_hold_until);
    for indexed in records.iter().filter(|indexed| indexed.record.state == RecordState::MinHold) {
        if !is_in_min_hold(&indexed.record, now) {
            dead.push(indexed.slot);
        } else if mode == Mode::Exclusive {
            until = until.max(Some(indexed.record.min_hold_until));
        }
    }
    until
}

/// Whether enough permits are left for `mode`. Checks the liveness of holders only when there are too few.
fn permits_left(
    records: &[IndexedRecord],
    mode: Mode,
    alive: &mut Alive<'_>,
    dead: &mut Vec<u32>,
) -> Result<Verdict, EngineError> {
    let Mode::Permits { count, limit } = mode else { return Ok(Verdict::Free) };
    let permits = |record: &Record| match record.mode {
        Mode::Permits { count, .. } => u64::from(count),
        Mode::Exclusive | Mode::Shared => 0,
    };
    let holders: Vec<&IndexedRecord> = records
        .iter()
        .filter(|indexed| {
            matches!(indexed.record.state, RecordState::Holding | RecordState::MinHold)
                && !dead.contains(&indexed.slot)
        })
        .collect();
    let mut taken: u64 = holders.iter().map(|indexed| permits(&indexed.record)).sum();
    let mut first_end: Option<Instant> = None;
    for indexed in holders {
        if taken + u64::from(count) <= u64::from(limit) {
            return Ok(Verdict::Free);
        }
        if indexed.record.state == RecordState::MinHold {
            let until = indexed.record.min_hold_until;
            first_end = Some(first_end.map_or(until, |first| first.min(until)));
        } else if !alive(indexed)? {
            dead.push(indexed.slot);
            taken -= permits(&indexed.record);
        }
    }
    if taken + u64::from(count) <= u64::from(limit) {
        return Ok(Verdict::Free);
    }
    Ok(first_end.map_or(Verdict::Held, Verdict::MinHold))
}
