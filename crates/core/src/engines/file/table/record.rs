//! One record of the table: a waiter or a holder, as 256 bytes. No I/O.

use std::sync::Arc;

use super::super::{
    kernel::proc::Process,
    table::layout::{RECORD_SIZE, TICKET_OR_TOKEN_LIMIT, bytes_at},
};
use crate::{ClaimId, Instant, MAX_OWNER_BYTES, Mode};

/// The offset in a record of its state, one byte: see [`RecordState`].
pub(crate) const STATE_AT: usize = 0;
/// The offset in a record of the time at which its owner was last signalled.
pub(crate) const SIGNALLED_AT: u64 = 8;
/// The offset in a record of the token of a broken hold.
pub(crate) const BROKEN_AT: u64 = 16;
/// The offset in a record of the end of the minimum hold time.
pub(crate) const MIN_HOLD_AT: u64 = 32;
/// The offset in a record of its ticket.
pub(crate) const TICKET_AT: usize = 56;
// The offsets of the other fields.
const CHECKSUM_AT: usize = 24;
const ID_AT: usize = 40;
const TOKEN_AT: usize = 64;
const TOKEN_COUNT_AT: usize = 72;
const MODE_AT: usize = 76;
const STOPS_ON_TERM_AT: usize = 77;
const OWNER_LEN_AT: usize = 78;
const PERMIT_COUNT_AT: usize = 80;
const PERMIT_LIMIT_AT: usize = 84;
const PID_AT: usize = 88;
const PROCESS_STARTED_AT: usize = 96;
const SINCE_AT: usize = 104;
const WAKE_PIPE_AT: usize = 112;
const OWNER_AT: usize = 128;

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
    /// The ticket, by which the queue is ordered; 0 on record 0.
    pub(crate) ticket: u64,
    /// The first token of the grant; 0 while waiting.
    pub(crate) token: u64,
    /// How many tokens the grant carries.
    pub(crate) tokens: u32,
    /// The label of the owner, for operators.
    pub(crate) owner: Arc<str>,
    /// The process of the waiter or holder.
    pub(crate) process: Process,
    /// The process stops on SIGTERM: an operator may break the hold.
    pub(crate) stops_on_term: bool,
    /// When the claim began to wait or to hold.
    pub(crate) since: Instant,
    /// The id of the wake pipe of a waiting claim; [`NO_WAKE_PIPE`] if there is none.
    pub(crate) wake_pipe: [u8; 16],
    /// The end of the minimum hold time, in the state `MinHold`.
    pub(crate) min_hold_until: Instant,
    /// When the waiter was signalled to ask; `None` after it has asked.
    pub(crate) signalled_at: Option<Instant>,
    /// The token of the hold that an operator broke; it counts only if it equals `token`.
    pub(crate) broken_token: u64,
}

/// The error for bytes that are not a completely written record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Torn;

impl Record {
    /// Whether an operator broke this hold.
    pub(crate) fn is_broken(&self) -> bool {
        self.token != 0 && self.broken_token == self.token
    }

    /// Whether `token` is one of the tokens of the grant.
    pub(crate) fn carries(&self, token: u64) -> bool {
        self.token != 0 && token >= self.token && token - self.token < u64::from(self.tokens)
    }

    /// Encodes the record.
    pub(crate) fn to_bytes(&self) -> [u8; RECORD_SIZE] {
        let mut bytes = [0; RECORD_SIZE];
        let mut put =
            |offset: usize, field: &[u8]| bytes[offset..offset + field.len()].copy_from_slice(field);
        put(SIGNALLED_AT as usize, &self.signalled_at.map_or(0, Instant::as_nanos).to_le_bytes());
        put(BROKEN_AT as usize, &self.broken_token.to_le_bytes());
        put(ID_AT, &self.id.0);
        put(TICKET_AT, &self.ticket.to_le_bytes());
        put(TOKEN_AT, &self.token.to_le_bytes());
        put(TOKEN_COUNT_AT, &self.tokens.to_le_bytes());
        let (mode, count, limit) = match self.mode {
            Mode::Exclusive => (EXCLUSIVE, 0, 0),
            Mode::Shared => (SHARED, 0, 0),
            Mode::Permits { count, limit } => (PERMITS, count, limit),
        };
        put(PERMIT_COUNT_AT, &count.to_le_bytes());
        put(PERMIT_LIMIT_AT, &limit.to_le_bytes());
        put(PID_AT, &self.process.pid.to_le_bytes());
        put(PROCESS_STARTED_AT, &self.process.start_ticks.to_le_bytes());
        put(SINCE_AT, &self.since.as_nanos().to_le_bytes());
        put(WAKE_PIPE_AT, &self.wake_pipe);
        put(MIN_HOLD_AT as usize, &self.min_hold_until.as_nanos().to_le_bytes());
        let owner = &self.owner.as_bytes()[..self.owner.len().min(MAX_OWNER_BYTES)];
        put(OWNER_AT, owner);
        bytes[STATE_AT] = self.state as u8;
        bytes[MODE_AT] = mode;
        bytes[STOPS_ON_TERM_AT] = u8::from(self.stops_on_term);
        bytes[OWNER_LEN_AT] = owner.len() as u8;
        let checksum = checksum(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The bytes with the correct checksum, so that a fuzz test gets random bytes past the check.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn with_checksum(bytes: &[u8; RECORD_SIZE]) -> [u8; RECORD_SIZE] {
        let mut bytes = *bytes;
        let checksum = checksum(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a record; `None` if the record is empty.
    pub(crate) fn from_bytes(bytes: &[u8; RECORD_SIZE]) -> Result<Option<Self>, Torn> {
        let state = match bytes[STATE_AT] {
            state if state == RecordState::Empty as u8 => return Ok(None),
            state if state == RecordState::Waiting as u8 => RecordState::Waiting,
            state if state == RecordState::Holding as u8 => RecordState::Holding,
            state if state == RecordState::MinHold as u8 => RecordState::MinHold,
            _ => return Err(Torn),
        };
        Self::decode(state, bytes).map(Some)
    }

    /// Whether an operator broke the hold of claim `id`; `None` when the record is not in use by that claim. Does not
    /// decode the owner, which a release does not need.
    pub(crate) fn read_is_broken(bytes: &[u8; RECORD_SIZE], id: ClaimId) -> Option<bool> {
        let u64_at = |at| u64::from_le_bytes(bytes_at(bytes, at));
        let is_of_claim = bytes[STATE_AT] != RecordState::Empty as u8
            && bytes_at(bytes, ID_AT) == id.0
            && u64_at(CHECKSUM_AT) == checksum(bytes);
        is_of_claim.then(|| u64_at(TOKEN_AT) != 0 && u64_at(BROKEN_AT as usize) == u64_at(TOKEN_AT))
    }

    /// Decodes a record in use, and checks that it was written completely.
    fn decode(state: RecordState, bytes: &[u8; RECORD_SIZE]) -> Result<Self, Torn> {
        let u64_at = |at| u64::from_le_bytes(bytes_at(bytes, at));
        let u32_at = |at| u32::from_le_bytes(bytes_at(bytes, at));
        let owner_len = usize::from(bytes[OWNER_LEN_AT]);
        if u64_at(CHECKSUM_AT) != checksum(bytes) || owner_len > MAX_OWNER_BYTES {
            return Err(Torn);
        }
        let owner = std::str::from_utf8(&bytes[OWNER_AT..OWNER_AT + owner_len]).map_err(|_| Torn)?;
        let mode = match (bytes[MODE_AT], u32_at(PERMIT_COUNT_AT), u32_at(PERMIT_LIMIT_AT)) {
            (EXCLUSIVE, ..) => Mode::Exclusive,
            (SHARED, ..) => Mode::Shared,
            (PERMITS, count, limit) if count >= 1 && count <= limit => Mode::Permits { count, limit },
            _ => return Err(Torn),
        };
        let (ticket, token) = (u64_at(TICKET_AT), u64_at(TOKEN_AT));
        if ticket >= TICKET_OR_TOKEN_LIMIT || token >= TICKET_OR_TOKEN_LIMIT {
            return Err(Torn);
        }
        Ok(Self {
            state,
            id: ClaimId(bytes_at(bytes, ID_AT)),
            mode,
            ticket,
            token,
            tokens: u32_at(TOKEN_COUNT_AT),
            owner: owner.into(),
            process: Process { pid: u32_at(PID_AT), start_ticks: u64_at(PROCESS_STARTED_AT) },
            stops_on_term: bytes[STOPS_ON_TERM_AT] != 0,
            since: Instant::from_nanos(u64_at(SINCE_AT)),
            wake_pipe: bytes_at(bytes, WAKE_PIPE_AT),
            min_hold_until: Instant::from_nanos(u64_at(MIN_HOLD_AT as usize)),
            signalled_at: Some(u64_at(SIGNALLED_AT as usize)).filter(|&at| at != 0).map(Instant::from_nanos),
            broken_token: u64_at(BROKEN_AT as usize),
        })
    }
}

/// The checksum that distinguishes a completely written record from a torn read. It covers all fields but those that
/// are changed later in place: the state (one byte), the time of the last signal, the broken token, and the end of
/// the minimum hold time.
fn checksum(bytes: &[u8; RECORD_SIZE]) -> u64 {
    // FNV-1a over words instead of bytes: it protects from torn reads, not from malice.
    bytes[ID_AT..].chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        (sum ^ u64::from_le_bytes(bytes_at(word, 0))).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
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
            process: Process { pid: 4, start_ticks: 5 },
            stops_on_term: true,
            since: Instant::from_nanos(6),
            wake_pipe: [8; 16],
            min_hold_until: Instant::NEVER,
            signalled_at: Some(Instant::from_nanos(3)),
            broken_token: 40,
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
        bytes[STATE_AT] = 0;
        assert_eq!(Record::from_bytes(&bytes), Ok(None));
        assert_eq!(Record::from_bytes(&[0; RECORD_SIZE]), Ok(None));
    }

    #[test]
    fn the_block_and_the_broken_token_are_compared_exactly() {
        let record = record();
        assert_eq!([39, 40, 49, 50].map(|token| record.carries(token)), [false, true, true, false]);
        assert!(record.is_broken() && !Record { broken_token: 39, ..record.clone() }.is_broken());
        assert!(!Record { broken_token: 0, token: 0, ..record }.is_broken());
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_noticed(offset in ID_AT..RECORD_SIZE, change in 1..=255_u8) {
            let mut bytes = record().to_bytes();
            bytes[offset] ^= change;
            prop_assert_eq!(Record::from_bytes(&bytes), Err(Torn));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), RECORD_SIZE)) {
            let _ = Record::from_bytes(&Record::with_checksum(&bytes_at(&bytes, 0)));
        }
    }
}
