//! The rows of one name, and their conversion to and from `lock_state` entries. Pure.
//!
//! Times are microseconds since 1970 by the database's clock, or, for SQLite files, since the boot of the machine.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    ClaimId, Instant, KnownMode, Mode, Previous,
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
    /// How the last hold ended, as a [code](previous_code).
    pub(crate) ended: i16,
    /// The last token of the hold that ended last.
    pub(crate) ended_upto: i64,
    /// The time until which a new holder is told how the last hold ended.
    pub(crate) ended_until: i64,
}

/// The row of a claim, or the part of a name's row that stores its fast-path hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimRow {
    pub(crate) id: ClaimId,
    /// The state, see [`kind_of`]; [`TOMBSTONE`] for an ended claim of which a request may still arrive.
    pub(crate) stand: i16,
    /// The place in the queue, in the order of arrival; 0 for a claim that never waited.
    pub(crate) place: i64,
    /// 0: exclusive, 1: shared, 2: permits, `count` of `most`.
    pub(crate) mode: i16,
    /// The number of permits that the claim wants.
    pub(crate) count: i64,
    /// The limit of permits of the name.
    pub(crate) most: i64,
    /// The first token of its grant.
    pub(crate) token: i64,
    /// The number of tokens of its grant.
    pub(crate) tokens: i32,
    /// How the previous hold ended, as a [code](previous_code).
    pub(crate) previous: i16,
    pub(crate) owner: String,
    /// When the claim was granted or entered the queue.
    pub(crate) since: i64,
    /// When the hold or the queue entry ends, unless it is extended.
    pub(crate) expires: i64,
    /// How long a grant lasts without a confirmation, in microseconds.
    pub(crate) claim_time: i64,
    /// For an unconfirmed grant: `since` of its queue entry, to which the claim returns if it does not confirm the
    /// grant.
    pub(crate) place_since: i64,
    /// For an unconfirmed grant: `expires` of its queue entry.
    pub(crate) place_expires: i64,
    /// The client that is notified of its grant.
    pub(crate) client: ClientId,
}

/// The value of [`ClaimRow::stand`] for an ended claim (a tombstone).
pub(crate) const TOMBSTONE: i16 = 6;

/// The kinds of entries, in the order of their codes in the column `stand`.
const KINDS: [EntryKind; 6] = [
    EntryKind::Held,
    EntryKind::Pushed,
    EntryKind::Broken,
    EntryKind::MinHold,
    EntryKind::Waiting,
    EntryKind::Silent,
];

/// The first of `tokens` tokens whose last one is `last_token`. Saturates instead of overflowing, because another
/// program could have written any numbers into the row.
pub(crate) fn first_token(last_token: i64, tokens: i32) -> i64 {
    last_token.saturating_sub(tokens.into()).saturating_add(1)
}

/// The kind of entry that a value of the column `stand` means.
pub(crate) fn kind_of(code: i16) -> Option<EntryKind> {
    KINDS.get(usize::try_from(code).ok()?).copied()
}

/// The value of the column `stand` for an entry of this kind.
pub(crate) fn kind_code(kind: EntryKind) -> i16 {
    KINDS.iter().position(|&other| other == kind).map_or(TOMBSTONE, |code| code as i16)
}

/// The ways in which a hold can end, in the order of their codes in the columns `previous` and `ended`.
const PREVIOUS: [Previous; 5] =
    [Previous::Clean, Previous::Abandoned, Previous::Lapsed, Previous::Broken, Previous::Unknown];

/// The way in which a hold ended, from its code.
pub(crate) fn previous_of(code: i16) -> Previous {
    let known = usize::try_from(code).ok().and_then(|code| PREVIOUS.get(code));
    known.copied().unwrap_or(Previous::Unknown)
}

/// The code of the way in which a hold ended.
pub(crate) fn previous_code(previous: Previous) -> i16 {
    PREVIOUS.iter().position(|&other| other == previous).unwrap_or(PREVIOUS.len() - 1) as i16
}

/// The mode as the values of the columns `mode`, `count` and `most`.
pub(crate) fn mode_codes(mode: Mode) -> (i16, i64, i64) {
    match mode.known() {
        KnownMode::Exclusive => (0, 0, 0),
        KnownMode::Shared => (1, 0, 0),
        KnownMode::Permits { count, limit } => (2, count.into(), limit.into()),
    }
}

/// The mode from the values of the columns `mode`, `count` and `most`; `None` for values that leasehold does not write.
fn mode_of((mode, count, most): (i16, i64, i64)) -> Option<Mode> {
    match mode {
        0 => Some(Mode::Exclusive),
        1 => Some(Mode::Shared),
        2 => Some(Mode::Permits { count: count.try_into().ok()?, limit: most.try_into().ok()? }),
        _ => None,
    }
}

/// The time from its microseconds in a row.
pub(crate) fn instant(micros: i64) -> Instant {
    Instant::from_nanos(u64::try_from(micros).unwrap_or(0).saturating_mul(1000))
}

/// The time as microseconds, for a row.
pub(crate) fn micros(instant: Instant) -> i64 {
    i64::try_from(instant.as_nanos() / 1000).unwrap_or(i64::MAX)
}

/// The duration as microseconds, for a row.
pub(crate) fn duration_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl ClaimRow {
    /// The time until which no request of this ended claim is allowed to create anything; `None` if there is no such
    /// time. The claim of a minimum hold has ended, too: the row of the minimum hold has this time in `place_expires`.
    pub(crate) fn tombstone_until(&self) -> Option<i64> {
        match self.stand {
            TOMBSTONE => Some(self.expires),
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
            // A pushed grant that is not confirmed in time goes back to its place in the queue. The row stores this
            // place as two times: since when the claim waited, and until when its queue entry lasts.
            queue_entry: (kind == EntryKind::Pushed)
                .then(|| (instant(self.place_since), instant(self.place_expires))),
            client: self.client,
        })
    }

    /// The row for an entry at this place in the queue.
    pub(crate) fn of(entry: &Entry<ClientId>, place: i64) -> Self {
        let (mode, count, most) = mode_codes(entry.mode);
        let (place_since, place_expires) =
            entry.queue_entry.map_or((0, 0), |(since, expires)| (micros(since), micros(expires)));
        Self {
            id: entry.id,
            stand: kind_code(entry.kind),
            place,
            mode,
            count,
            most,
            token: i64::try_from(entry.token).unwrap_or(i64::MAX),
            tokens: i32::try_from(entry.tokens).unwrap_or(i32::MAX),
            previous: previous_code(entry.previous),
            owner: entry.owner.as_ref().to_owned(),
            since: micros(entry.since),
            expires: micros(entry.expires),
            claim_time: duration_micros(entry.claim_time),
            place_since,
            place_expires,
            client: entry.client,
        }
    }

    /// The row of a tombstone: until the given time no request of the claim may create anything.
    pub(crate) fn tombstone(id: ClaimId, until: Instant) -> Self {
        Self {
            id,
            stand: TOMBSTONE,
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
