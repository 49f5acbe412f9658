//! Which claim may be granted: by the order of arrival and the permits in use. Pure: a function argument says which
//! owners are alive.

use std::time::Duration;

use super::record::{Record, RecordState};
use crate::{EngineError, Instant, Mode};

/// A waiter that was signalled and has not asked for this long is stopped or starved: it keeps its position, but
/// other claims may pass it.
const STALLED: Duration = Duration::from_secs(1);

/// A record and its slot in the table.
#[derive(Clone, Debug)]
pub(super) struct IndexedRecord {
    pub(super) slot: u32,
    pub(super) record: Record,
}

/// The claim to judge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) mode: Mode,
    /// Its ticket; `None` for a new claim, which is behind every waiter.
    pub(super) ticket: Option<u64>,
}

/// The result for the asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No record is in its way: the flock decides.
    Free,
    /// A live waiter ahead of it must be granted first.
    Behind,
    /// The permits are in use, or the flock is held.
    Held,
    /// Held by nobody until this time.
    Kept(Instant),
    /// The name is in use as another kind of lock, or with another limit.
    Clash(Mode),
}

/// A verdict, with other facts found while judging.
#[derive(Clone, Debug)]
pub(super) struct Judgement {
    pub(super) verdict: Verdict,
    /// How many claims wait ahead of the asker.
    pub(super) ahead: u32,
    /// Slots of records whose owners are gone, or whose time has passed.
    pub(super) dead: Vec<u32>,
}

type Alive<'a> = dyn FnMut(&IndexedRecord) -> Result<bool, EngineError> + 'a;

/// Judges `asker` by the table, ignoring its own record, if any. `zero` is record 0, if in use.
pub(super) fn judge(
    records: &[IndexedRecord],
    zero: Option<&IndexedRecord>,
    asker: Asker,
    now: Instant,
    alive: &mut Alive<'_>,
) -> Result<Judgement, EngineError> {
    let mut seen = Judgement { verdict: Verdict::Free, ahead: 0, dead: Vec::new() };
    if asker.ticket.is_none()
        && let Some(other) = clash(records, zero, asker, now, alive, &mut seen.dead)?
    {
        seen.verdict = Verdict::Clash(other);
        return Ok(seen);
    }
    let line = waiters_before(records, asker);
    let mut blocked = false;
    for (at, placed) in line.iter().enumerate() {
        if seen.dead.contains(&placed.slot) {
            continue;
        }
        if blocked {
            // Behind the first live waiter no liveness is checked: the count is a hint, and the queue may be long.
            seen.ahead += (line.len() - at) as u32;
            break;
        }
        if stands_before(placed.record.mode, asker.mode) {
            if !alive(placed)? {
                seen.dead.push(placed.slot);
                continue;
            }
            blocked = !is_stalled(&placed.record, now);
        }
        seen.ahead += 1;
    }
    seen.verdict = match kept_against(records, zero, asker.mode, now, &mut seen.dead) {
        Some(until) => Verdict::Kept(until),
        None if blocked => Verdict::Behind,
        None => permits_left(records, asker.mode, alive, &mut seen.dead)?,
    };
    Ok(seen)
}

/// The waiters to signal, from the head of the queue: skips `skip` live ones, returns the next `count`. A stalled
/// waiter is signalled together with the next one, because it may never ask.
pub(super) fn to_signal(
    records: &[IndexedRecord],
    skip: usize,
    count: usize,
    now: Instant,
    alive: &mut Alive<'_>,
) -> Result<Vec<IndexedRecord>, EngineError> {
    let mut line: Vec<&IndexedRecord> =
        records.iter().filter(|placed| placed.record.state == RecordState::Waiting).collect();
    line.sort_by_key(|placed| placed.record.ticket);
    let (mut chosen, mut place) = (Vec::new(), 0);
    for placed in line {
        if place >= skip + count {
            break;
        }
        if !alive(placed)? {
            continue;
        }
        if place >= skip {
            chosen.push(placed.clone());
        }
        place += usize::from(!is_stalled(&placed.record, now));
    }
    Ok(chosen)
}

/// Whether the minimum hold time of a kept record still runs.
pub(super) fn is_kept(record: &Record, now: Instant) -> bool {
    record.state == RecordState::Kept && record.kept_until > now
}

fn clash(
    records: &[IndexedRecord],
    zero: Option<&IndexedRecord>,
    asker: Asker,
    now: Instant,
    alive: &mut Alive<'_>,
    dead: &mut Vec<u32>,
) -> Result<Option<Mode>, EngineError> {
    for placed in records.iter().chain(zero).filter(|placed| !placed.record.mode.same_kind(asker.mode)) {
        let counts = match placed.record.state {
            RecordState::Kept => is_kept(&placed.record, now),
            _ => alive(placed)?,
        };
        if counts {
            return Ok(Some(placed.record.mode));
        }
        if placed.slot != 0 {
            dead.push(placed.slot);
        }
    }
    Ok(None)
}

fn waiters_before(records: &[IndexedRecord], asker: Asker) -> Vec<&IndexedRecord> {
    let before = asker.ticket.unwrap_or(u64::MAX);
    let mut line: Vec<&IndexedRecord> = records
        .iter()
        .filter(|placed| placed.record.state == RecordState::Waiting && placed.record.ticket < before)
        .collect();
    line.sort_by_key(|placed| placed.record.ticket);
    line
}

/// Whether waiter `first` must be granted before `second`, which is behind it. Readers do not wait for readers. Among
/// permits even a small claim waits behind a big one, which would starve otherwise.
pub(super) const fn stands_before(first: Mode, second: Mode) -> bool {
    !matches!((first, second), (Mode::Shared, Mode::Shared))
}

pub(super) fn is_stalled(record: &Record, now: Instant) -> bool {
    record.signalled.is_some_and(|signalled| now.since(signalled) > STALLED)
}

/// Until when a kept record blocks `mode`. Expired ones are added to `dead`.
fn kept_against(
    records: &[IndexedRecord],
    zero: Option<&IndexedRecord>,
    mode: Mode,
    now: Instant,
    dead: &mut Vec<u32>,
) -> Option<Instant> {
    let mut until = zero.filter(|zero| is_kept(&zero.record, now)).map(|zero| zero.record.kept_until);
    for placed in records.iter().filter(|placed| placed.record.state == RecordState::Kept) {
        if !is_kept(&placed.record, now) {
            dead.push(placed.slot);
        } else if mode == Mode::Exclusive {
            until = until.max(Some(placed.record.kept_until));
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
    let places = |record: &Record| match record.mode {
        Mode::Permits { count, .. } => u64::from(count),
        Mode::Exclusive | Mode::Shared => 0,
    };
    let holders: Vec<&IndexedRecord> = records
        .iter()
        .filter(|placed| {
            matches!(placed.record.state, RecordState::Holding | RecordState::Kept)
                && !dead.contains(&placed.slot)
        })
        .collect();
    let mut taken: u64 = holders.iter().map(|placed| places(&placed.record)).sum();
    let mut first_kept: Option<Instant> = None;
    for placed in holders {
        if taken + u64::from(count) <= u64::from(limit) {
            return Ok(Verdict::Free);
        }
        if placed.record.state == RecordState::Kept {
            let until = placed.record.kept_until;
            first_kept = Some(first_kept.map_or(until, |first| first.min(until)));
        } else if !alive(placed)? {
            dead.push(placed.slot);
            taken -= places(&placed.record);
        }
    }
    if taken + u64::from(count) <= u64::from(limit) {
        return Ok(Verdict::Free);
    }
    Ok(first_kept.map_or(Verdict::Held, Verdict::Kept))
}
