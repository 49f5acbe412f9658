//! The rows of one name, and their conversion to and from `lock_state` entries. Pure.
//!
//! Times are microseconds since 1970 by the database's clock, or, for SQLite files, since the boot of the machine.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    ClaimId, Instant, Mode, Previous,
    lock_state::{Entry, EntryKind},
};

/// Identifies a client: the recipient of notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(pub(crate) u64);

/// The row of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockRow {
    /// The newest token that was minted for the name.
    pub(crate) token: i64,
    /// The fast-path hold, if it still exists.
    pub(crate) holder: Option<ClaimRow>,
    /// The number of claim rows of the name. The fast path is only used where it is 0.
    pub(crate) claims: i32,
    pub(crate) ended: i16,
    pub(crate) ended_upto: i64,
    pub(crate) ended_until: i64,
}

/// The row of a claim, or the part of a name's row that stores its fast-path hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimRow {
    pub(crate) id: ClaimId,
    /// The state, see [`kind_of`]; [`DEAD`] for an ended claim of which a request may still arrive.
    pub(crate) stand: i16,
    /// The position in the order of arrival; 0 where that does not matter.
    pub(crate) place: i64,
    /// 0: exclusive, 1: shared, 2: permits, `count` of `most`.
    pub(crate) mode: i16,
    pub(crate) count: i64,
    pub(crate) most: i64,
    /// The first token of its grant.
    pub(crate) token: i64,
    pub(crate) tokens: i32,
    pub(crate) previous: i16,
    pub(crate) owner: String,
    pub(crate) since: i64,
    pub(crate) expires: i64,
    /// Microseconds.
    pub(crate) claim_time: i64,
    pub(crate) place_since: i64,
    pub(crate) place_expires: i64,
    pub(crate) client: ClientId,
}

/// The value of [`ClaimRow::stand`] for an ended claim (a tombstone).
pub(crate) const DEAD: i16 = 6;

const KINDS: [EntryKind; 6] = [
    EntryKind::Held,
    EntryKind::Pushed,
    EntryKind::Broken,
    EntryKind::MinHold,
    EntryKind::Waiting,
    EntryKind::Silent,
];

/// The first of `tokens` tokens whose last one is `last`. Saturates, because another program may have changed the
/// row.
pub(crate) fn first(last: i64, tokens: i32) -> i64 {
    last.saturating_sub(tokens.into()).saturating_add(1)
}

/// The state that a number in a row means.
pub(crate) fn kind_of(number: i16) -> Option<EntryKind> {
    KINDS.get(usize::try_from(number).ok()?).copied()
}

pub(crate) fn kind_number(kind: EntryKind) -> i16 {
    KINDS.iter().position(|&other| other == kind).map_or(DEAD, |at| at as i16)
}

const PREVIOUS: [Previous; 5] =
    [Previous::Clean, Previous::Abandoned, Previous::Lapsed, Previous::Broken, Previous::Unknown];

pub(crate) fn previous_of(number: i16) -> Previous {
    let known = usize::try_from(number).ok().and_then(|number| PREVIOUS.get(number));
    known.copied().unwrap_or(Previous::Unknown)
}

pub(crate) fn previous_number(previous: Previous) -> i16 {
    PREVIOUS.iter().position(|&other| other == previous).unwrap_or(PREVIOUS.len() - 1) as i16
}

/// The mode as three numbers.
pub(crate) fn mode_numbers(mode: Mode) -> (i16, i64, i64) {
    match mode {
        Mode::Exclusive => (0, 0, 0),
        Mode::Shared => (1, 0, 0),
        Mode::Permits { count, limit } => (2, count.into(), limit.into()),
    }
}

fn mode_of((mode, count, most): (i16, i64, i64)) -> Option<Mode> {
    match mode {
        0 => Some(Mode::Exclusive),
        1 => Some(Mode::Shared),
        2 => Some(Mode::Permits { count: count.try_into().ok()?, limit: most.try_into().ok()? }),
        _ => None,
    }
}

pub(crate) fn instant(micros: i64) -> Instant {
    Instant::from_nanos(u64::try_from(micros).unwrap_or(0).saturating_mul(1000))
}

pub(crate) fn micros(instant: Instant) -> i64 {
    i64::try_from(instant.as_nanos() / 1000).unwrap_or(i64::MAX)
}

pub(crate) fn micros_in(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl ClaimRow {
    /// Until when no request of this ended claim may create anything. For a name in its minimum hold time, it is in
    /// `place_expires`.
    pub(crate) fn dead_until(&self) -> Option<i64> {
        match self.stand {
            DEAD => Some(self.expires),
            stand if kind_of(stand) == Some(EntryKind::MinHold) => {
                Some(self.place_expires).filter(|until| *until > 0)
            }
            _ => None,
        }
    }

    /// The entry of the claim; `None` for a tombstone, or for a row that leasehold did not write.
    pub(crate) fn entry(&self) -> Option<Entry<ClientId>> {
        let kind = kind_of(self.stand)?;
        Some(Entry {
            id: self.id,
            mode: mode_of((self.mode, self.count, self.most))?,
            kind,
            token: u64::try_from(self.token).ok()?,
            tokens: u32::try_from(self.tokens).ok()?,
            previous: previous_of(self.previous),
            owner: Arc::from(self.owner.as_str()),
            since: instant(self.since),
            expires: instant(self.expires),
            claim_time: Duration::from_micros(u64::try_from(self.claim_time).unwrap_or(0)),
            queue_entry: (kind == EntryKind::Pushed)
                .then(|| (instant(self.place_since), instant(self.place_expires))),
            client: self.client,
        })
    }

    pub(crate) fn of(entry: &Entry<ClientId>, place: i64) -> Self {
        let (mode, count, most) = mode_numbers(entry.mode);
        let (place_since, place_expires) =
            entry.queue_entry.map_or((0, 0), |(since, expires)| (micros(since), micros(expires)));
        Self {
            id: entry.id,
            stand: kind_number(entry.kind),
            place,
            mode,
            count,
            most,
            token: i64::try_from(entry.token).unwrap_or(i64::MAX),
            tokens: i32::try_from(entry.tokens).unwrap_or(i32::MAX),
            previous: previous_number(entry.previous),
            owner: entry.owner.as_ref().to_owned(),
            since: micros(entry.since),
            expires: micros(entry.expires),
            claim_time: micros_in(entry.claim_time),
            place_since,
            place_expires,
            client: entry.client,
        }
    }

    /// A tombstone: until then no request of the claim may create anything.
    pub(crate) fn dead(id: ClaimId, until: Instant) -> Self {
        Self {
            id,
            stand: DEAD,
            place: 0,
            mode: 0,
            count: 0,
            most: 0,
            token: 0,
            tokens: 0,
            previous: 0,
            owner: String::new(),
            since: 0,
            expires: micros(until),
            claim_time: 0,
            place_since: 0,
            place_expires: 0,
            client: ClientId::default(),
        }
    }
}
