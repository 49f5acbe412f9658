//! One record of the table: a waiter or a holder, as 256 bytes. No I/O.

use std::sync::Arc;

use super::super::{
    kernel::proc::Process,
    table::layout::{RECORD, TICKET_OR_TOKEN_LIMIT, array},
};
use crate::{ClaimId, Instant, MAX_OWNER_BYTES, Mode};

/// The offset in a record of its state, one byte: see [`RecordState`].
pub(crate) const STATE: usize = 0;
/// The offset in a record of the time at which its owner was last signalled.
pub(crate) const SIGNALLED: u64 = 8;
/// The offset in a record of the token of a broken hold.
pub(crate) const BROKEN: u64 = 16;
/// The offset in a record of the end of the minimum hold time.
pub(crate) const MIN_HOLD: u64 = 32;
/// The offset in a record of its ticket.
pub(crate) const TICKET: usize = 56;
// The offsets of the other fields.
const SUM: usize = 24;
const ID: usize = 40;
const TOKEN: usize = 64;
const TOKEN_COUNT: usize = 72;
const MODE: usize = 76;
const STOPS_ON_TERM: usize = 77;
const OWNER_LEN: usize = 78;
const PERMIT_COUNT: usize = 80;
const PERMIT_LIMIT: usize = 84;
const PID: usize = 88;
const PROCESS_STARTED: usize = 96;
const SINCE: usize = 104;
const WAKE_PIPE: usize = 112;
const OWNER: usize = 128;

// The stored numbers of the modes.
const EXCLUSIVE: u8 = 1;
const SHARED: u8 = 2;
const PERMITS: u8 = 3;

/// The id of the wake pipe in the record of a claim that has none.
pub(crate) const NO_WAKE_PIPE: [u8; 16] = [0; 16];

/// The use of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordState {
    /// Not in use.
    Empty = 0,
    /// A claim that waits in the queue.
    Waiting = 1,
    /// A hold.
    Holding = 2,
    /// A hold that ended before its minimum hold time: the name is blocked until `min_hold_until`.
    MinHold = 3,
}

/// A record in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) state: RecordState,
    pub(crate) id: ClaimId,
    pub(crate) mode: Mode,
    /// The position in the order of arrival; 0 on record 0.
    pub(crate) ticket: u64,
    /// The first token of the grant; 0 while waiting.
    pub(crate) token: u64,
    /// How many tokens the grant carries.
    pub(crate) tokens: u32,
    pub(crate) owner: Arc<str>,
    pub(crate) process: Process,
    pub(crate) stops_on_term: bool,
    /// When the claim began to wait or to hold.
    pub(crate) since: Instant,
    /// The id of the wake pipe of a waiting claim; [`NO_WAKE_PIPE`] if there is none.
    pub(crate) wake_pipe: [u8; 16],
    /// The end of the minimum hold time, in the state `MinHold`.
    pub(crate) min_hold_until: Instant,
    /// When its owner was signalled; `None` after the owner asked again.
    pub(crate) signalled: Option<Instant>,
    /// The token of the hold that an operator broke; it counts only if it equals `token`.
    pub(crate) broken: u64,
}

/// The bytes are not a completely written record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Torn;

impl Record {
    /// Whether an operator broke this hold.
    pub(crate) fn is_broken(&self) -> bool {
        self.token != 0 && self.broken == self.token
    }

    /// Whether `token` is one of the tokens of the grant.
    pub(crate) fn carries(&self, token: u64) -> bool {
        self.token != 0 && token >= self.token && token - self.token < u64::from(self.tokens)
    }

    /// Encodes the record.
    pub(crate) fn to_bytes(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(SIGNALLED as usize, &self.signalled.map_or(0, Instant::as_nanos).to_le_bytes());
        put(BROKEN as usize, &self.broken.to_le_bytes());
        put(ID, &self.id.0);
        put(TICKET, &self.ticket.to_le_bytes());
        put(TOKEN, &self.token.to_le_bytes());
        put(TOKEN_COUNT, &self.tokens.to_le_bytes());
        let (mode, count, limit) = match self.mode {
            Mode::Exclusive => (EXCLUSIVE, 0, 0),
            Mode::Shared => (SHARED, 0, 0),
            Mode::Permits { count, limit } => (PERMITS, count, limit),
        };
        put(PERMIT_COUNT, &count.to_le_bytes());
        put(PERMIT_LIMIT, &limit.to_le_bytes());
        put(PID, &self.process.pid.to_le_bytes());
        put(PROCESS_STARTED, &self.process.started.to_le_bytes());
        put(SINCE, &self.since.as_nanos().to_le_bytes());
        put(WAKE_PIPE, &self.wake_pipe);
        put(MIN_HOLD as usize, &self.min_hold_until.as_nanos().to_le_bytes());
        let owner = &self.owner.as_bytes()[..self.owner.len().min(MAX_OWNER_BYTES)];
        put(OWNER, owner);
        bytes[STATE] = self.state as u8;
        bytes[MODE] = mode;
        bytes[STOPS_ON_TERM] = u8::from(self.stops_on_term);
        bytes[OWNER_LEN] = owner.len() as u8;
        let sum = sum(&bytes);
        bytes[SUM..SUM + 8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The bytes with the correct checksum, so that random bytes pass the check.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn with_checksum(bytes: &[u8; RECORD]) -> [u8; RECORD] {
        let mut bytes = *bytes;
        let sum = sum(&bytes);
        bytes[SUM..SUM + 8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a record; `None`: empty.
    pub(crate) fn from_bytes(bytes: &[u8; RECORD]) -> Result<Option<Self>, Torn> {
        let state = match bytes[STATE] {
            state if state == RecordState::Empty as u8 => return Ok(None),
            state if state == RecordState::Waiting as u8 => RecordState::Waiting,
            state if state == RecordState::Holding as u8 => RecordState::Holding,
            state if state == RecordState::MinHold as u8 => RecordState::MinHold,
            _ => return Err(Torn),
        };
        Self::whole(state, bytes).map(Some)
    }

    /// Whether an operator broke the hold of claim `id`; `None` when the record is not in use by that claim. Does not
    /// decode the owner, which a release does not need.
    pub(crate) fn broken_of(bytes: &[u8; RECORD], id: ClaimId) -> Option<bool> {
        let word = |at| u64::from_le_bytes(array(bytes, at));
        let is_its =
            bytes[STATE] != RecordState::Empty as u8 && array(bytes, ID) == id.0 && word(SUM) == sum(bytes);
        is_its.then(|| word(TOKEN) != 0 && word(BROKEN as usize) == word(TOKEN))
    }

    /// Decodes a record in use, and checks that it was written completely.
    fn whole(state: RecordState, bytes: &[u8; RECORD]) -> Result<Self, Torn> {
        let word = |at| u64::from_le_bytes(array(bytes, at));
        let half = |at| u32::from_le_bytes(array(bytes, at));
        let owner_len = usize::from(bytes[OWNER_LEN]);
        if word(SUM) != sum(bytes) || owner_len > MAX_OWNER_BYTES {
            return Err(Torn);
        }
        let owner = std::str::from_utf8(&bytes[OWNER..OWNER + owner_len]).map_err(|_| Torn)?;
        let mode = match (bytes[MODE], half(PERMIT_COUNT), half(PERMIT_LIMIT)) {
            (EXCLUSIVE, ..) => Mode::Exclusive,
            (SHARED, ..) => Mode::Shared,
            (PERMITS, count, limit) if count >= 1 && count <= limit => Mode::Permits { count, limit },
            _ => return Err(Torn),
        };
        let (ticket, token) = (word(TICKET), word(TOKEN));
        if ticket >= TICKET_OR_TOKEN_LIMIT || token >= TICKET_OR_TOKEN_LIMIT {
            return Err(Torn);
        }
        Ok(Self {
            state,
            id: ClaimId(array(bytes, ID)),
            mode,
            ticket,
            token,
            tokens: half(TOKEN_COUNT),
            owner: owner.into(),
            process: Process { pid: half(PID), started: word(PROCESS_STARTED) },
            stops_on_term: bytes[STOPS_ON_TERM] != 0,
            since: Instant::from_nanos(word(SINCE)),
            wake_pipe: array(bytes, WAKE_PIPE),
            min_hold_until: Instant::from_nanos(word(MIN_HOLD as usize)),
            signalled: Some(word(SIGNALLED as usize)).filter(|&at| at != 0).map(Instant::from_nanos),
            broken: word(BROKEN as usize),
        })
    }
}

/// The checksum that distinguishes a completely written record from a torn read. It covers all fields but those that
/// are changed later in place: the state (one byte), the time of the last signal, the broken token, and the end of
/// the minimum hold time.
fn sum(bytes: &[u8; RECORD]) -> u64 {
    // FNV-1a over words instead of bytes: it protects from torn reads, not from malice.
    bytes[ID..].chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        (sum ^ u64::from_le_bytes(array(word, 0))).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in crate::engines::file) fn record() -> Record {
        Record {
            state: RecordState::Holding,
            id: ClaimId([7; 16]),
            mode: Mode::Permits { count: 2, limit: 5 },
            ticket: 11,
            token: 40,
            tokens: 10,
            owner: "ö".repeat(64).into(),
            process: Process { pid: 4, started: 5 },
            stops_on_term: true,
            since: Instant::from_nanos(6),
            wake_pipe: [8; 16],
            min_hold_until: Instant::NEVER,
            signalled: Some(Instant::from_nanos(3)),
            broken: 40,
        }
    }

    #[test]
    fn a_record_round_trips_through_bytes() {
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: u32::MAX }] {
            let record = Record { mode, ..record() };
            assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(Some(record)));
        }
    }

    #[test]
    fn an_emptied_record_is_empty() {
        let mut bytes = record().to_bytes();
        bytes[STATE] = 0;
        assert_eq!(Record::from_bytes(&bytes), Ok(None));
        assert_eq!(Record::from_bytes(&[0; RECORD]), Ok(None));
    }

    #[test]
    fn the_block_and_the_broken_token_are_compared_exactly() {
        let record = record();
        assert_eq!([39, 40, 49, 50].map(|token| record.carries(token)), [false, true, true, false]);
        assert!(record.is_broken() && !Record { broken: 39, ..record.clone() }.is_broken());
        assert!(!Record { broken: 0, token: 0, ..record }.is_broken());
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_noticed(at in ID..RECORD, change in 1..=255_u8) {
            let mut bytes = record().to_bytes();
            bytes[at] ^= change;
            prop_assert_eq!(Record::from_bytes(&bytes), Err(Torn));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), RECORD)) {
            let _ = Record::from_bytes(&Record::with_checksum(&array(&bytes, 0)));
        }
    }
}
