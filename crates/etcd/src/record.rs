//! The value of a claim's key: `<state> <version> <claim id> <milliseconds> <owner>`. Keys are reused, so the record
//! says to which claim the key belongs now. Conditions of transactions compare the beginning of a record, up to the
//! claim id, by sort order. The milliseconds and the owner are only read.

use std::time::Duration;

use leasehold_core::ClaimId;

/// The version of the format of this text and of the names of keys.
const FORMAT_VERSION: &str = "1";

/// Every record is shorter, in bytes.
pub(crate) const MAX_RECORD_BYTES: usize = 512;

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    /// A claim that holds or waits.
    Claim,
    /// A hold that an operator broke. It stays until its holder releases it or its remaining time is over.
    Broken,
    /// A minimum hold: no client holds the name, and it is blocked for a time.
    MinHold,
}

/// Sorts after every record of a claim and before every other record.
pub(crate) const BEFORE_BROKEN: &[u8] = b"b";
/// Sorts after every record of a claim or of a broken hold, and before every record of a minimum hold.
pub(crate) const BEFORE_MIN_HOLD: &[u8] = b"k";

/// A parsed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) state: RecordState,
    pub(crate) id: ClaimId,
    /// How long the hold lasts: the granted time, or the minimum hold time.
    pub(crate) hold_time: Duration,
    pub(crate) owner: String,
}

impl Record {
    /// The record as it is stored.
    pub(crate) fn text(&self) -> Vec<u8> {
        let state = match self.state {
            RecordState::Claim => 'a',
            RecordState::Broken => 'b',
            RecordState::MinHold => 'k',
        };
        format!("{state} {FORMAT_VERSION} {} {} {}", self.id, self.hold_time.as_millis(), self.owner)
            .into_bytes()
    }

    /// Parses a value; `None` if it is foreign.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        if value.len() > MAX_RECORD_BYTES {
            return None;
        }
        let mut words = std::str::from_utf8(value).ok()?.splitn(5, ' ');
        let state = match words.next()? {
            "a" => RecordState::Claim,
            "b" => RecordState::Broken,
            "k" => RecordState::MinHold,
            _ => return None,
        };
        if words.next()? != FORMAT_VERSION {
            return None;
        }
        let id = ClaimId::read(words.next()?)?;
        let hold_time = Duration::from_millis(words.next()?.parse().ok()?);
        Some(Self { state, id, hold_time, owner: words.next()?.to_owned() })
    }
}

/// Two texts between which every record of this claim sorts, unless its hold was broken or became a minimum hold.
pub(crate) fn claim_record_bounds(id: ClaimId) -> (Vec<u8>, Vec<u8>) {
    let start = format!("a {FORMAT_VERSION} {id}");
    // The character after the space.
    (format!("{start} ").into_bytes(), format!("{start}!").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_sorts_by_its_state() {
        let id = ClaimId([0xab; 16]);
        let record = |state| Record {
            state,
            id,
            hold_time: Duration::from_millis(1500),
            owner: "me @ home".to_owned(),
        };
        for state in [RecordState::Claim, RecordState::Broken, RecordState::MinHold] {
            let text = record(state).text();
            assert_eq!(Record::read(&text), Some(record(state)));
            assert_eq!(*text < *BEFORE_BROKEN, state == RecordState::Claim);
            assert_eq!(*text < *BEFORE_MIN_HOLD, state != RecordState::MinHold);
            let (from, to) = claim_record_bounds(id);
            assert_eq!(*from < *text && *text < *to, state == RecordState::Claim);
            let (from, to) = claim_record_bounds(ClaimId([0xac; 16]));
            assert!(!(*from < *text && *text < *to));
        }
        for foreign in ["", "a", "a 1", "a 1 x 5 y", "a 1 694d7d1a 5 y", "694d7d1a"] {
            assert_eq!(Record::read(foreign.as_bytes()), None, "{foreign:?}");
        }
    }
}
