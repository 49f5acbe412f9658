//! The data of a claim's node: `leasehold 1 <state> <milliseconds> <owner>`. If the name of the node does not contain
//! the claim id, as with `layout=plain`, the data contains it: `leasehold 2 <state> <milliseconds> <claim id> <owner>`.
//! Other programs write other data: Curator an address, kazoo any text, programs written by hand mostly nothing.

use std::time::Duration;

use leasehold_core::ClaimId;

/// The beginning of data that a leasehold client wrote.
const OURS: &str = "leasehold";
/// The version of the format of this text and of the names of nodes.
const FORMAT_VERSION: &str = "1";
/// The version of the format with the claim id.
const FORMAT_WITH_ID: &str = "2";
/// The longest data, in bytes, that is read as a record or as an owner.
pub(crate) const MAX_DATA_BYTES: i32 = 4096;
/// What Curator's `Revoker` writes to ask a holder to release.
const REVOKE: &[u8] = b"__REVOKE__";

/// The data of a node of a leasehold client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Whether an operator broke the hold.
    pub(crate) broken: bool,
    /// How long the hold lasts after the last request of its client: the timeout of its session, or less.
    pub(crate) hold_time: Duration,
    /// The claim id; `None` if the name of the node contains it.
    pub(crate) id: Option<ClaimId>,
    pub(crate) owner: String,
}

impl Record {
    /// The record as it is stored.
    pub(crate) fn text(&self) -> Vec<u8> {
        let state = if self.broken { "broken" } else { "claim" };
        let millis = self.hold_time.as_millis();
        match self.id {
            None => format!("{OURS} {FORMAT_VERSION} {state} {millis} {}", self.owner),
            Some(id) => format!("{OURS} {FORMAT_WITH_ID} {state} {millis} {id} {}", self.owner),
        }
        .into_bytes()
    }

    /// Parses the data of a node; `None` if another program wrote it.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let (ours, rest) = std::str::from_utf8(data).ok()?.split_once(' ')?;
        let (version, rest) = rest.split_once(' ')?;
        let has_id = match version {
            _ if ours != OURS => return None,
            FORMAT_VERSION => false,
            FORMAT_WITH_ID => true,
            _ => return None,
        };
        let mut words = rest.splitn(if has_id { 4 } else { 3 }, ' ');
        let broken = match words.next()? {
            "claim" => false,
            "broken" => true,
            _ => return None,
        };
        let hold_time = Duration::from_millis(words.next()?.parse().ok()?);
        let id = if has_id { Some(ClaimId::read(words.next()?)?) } else { None };
        Some(Self { broken, hold_time, id, owner: words.next()?.to_owned() })
    }
}

/// Whether the holder of this node has to release it.
pub(crate) fn is_broken(data: &[u8]) -> bool {
    data == REVOKE || Record::read(data).is_some_and(|record| record.broken)
}

/// The limit in the data of the directory of permits; `None` if another program created it.
pub(crate) fn read_limit(data: &[u8]) -> Option<u32> {
    let mut words = std::str::from_utf8(data).ok()?.split(' ');
    let ours = words.next()? == OURS && words.next()? == FORMAT_VERSION && words.next()? == "limit";
    ours.then(|| words.next()?.parse().ok())?
}

/// The data of the directory of permits.
pub(crate) fn limit_text(limit: u32) -> Vec<u8> {
    format!("{OURS} {FORMAT_VERSION} limit {limit}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ClaimId = ClaimId([0xab; 16]);

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for (broken, id) in [(false, None), (true, None), (false, Some(ID)), (true, Some(ID))] {
            let (hold_time, owner) = (Duration::from_millis(1500), "me @ home".to_owned());
            let record = Record { broken, hold_time, id, owner };
            assert_eq!(Record::read(&record.text()), Some(record.clone()));
            assert_eq!(is_broken(&record.text()), broken);
        }
        assert!(is_broken(b"__REVOKE__"));
        for foreign in [
            "",
            "leasehold",
            "leasehold 1",
            "leasehold 2 claim 5 y z",
            "leasehold 3 claim 5 y",
            "leasehold 1 kept 5 y",
            "10.0.0.7",
        ] {
            assert_eq!(Record::read(foreign.as_bytes()), None, "{foreign:?}");
        }
        assert_eq!(read_limit(&limit_text(7)), Some(7));
        assert_eq!(read_limit(b""), None);
    }
}
