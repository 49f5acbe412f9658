//! The value of the key of a memo: `<version> <kind> <claim id> <number> <token> <lineage> <digest> <time> <life>
//! <bytes>`.
//!
//! The server ends a memo, by its lease. The time at which the memo was written and how long its lease lasts from then
//! on only tell a reader how much time is left, without a further request.

use std::time::Duration;

use leasehold_core::{
    ClaimId, Lineage, MAX_MEMO_BYTES, MemoKind, MemoVersion, MemoWrite, Token, digest_text, read_digest,
};

/// The version of this text.
const VERSION: &str = "1";
/// The number of words before the bytes.
const HEADER_WORDS: usize = 9;

/// A stored memo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoRecord {
    pub(crate) kind: MemoKind,
    pub(crate) version: MemoVersion,
    /// The token of the guard that wrote it.
    pub(crate) token: Token,
    pub(crate) print: Option<[u8; 32]>,
    /// The time of day of its writer at the write, counted from 1970.
    pub(crate) written_at: Duration,
    /// How long the server keeps it at most, counted from then.
    pub(crate) life: Duration,
    pub(crate) bytes: Vec<u8>,
}

impl MemoRecord {
    /// The record of this write.
    pub(crate) fn of(write: &MemoWrite, written_at: Duration, life: Duration) -> Self {
        let memo = &write.memo;
        Self {
            kind: memo.kind().clone(),
            version: write.version,
            token: write.token,
            print: memo.digest().copied(),
            written_at,
            life,
            bytes: memo.bytes().to_vec(),
        }
    }

    /// The record as it is stored.
    pub(crate) fn text(&self) -> Vec<u8> {
        let Self { kind, version: MemoVersion { id, number }, token, print, written_at, life, bytes } = self;
        let print = digest_text(print.as_ref());
        let (lineage, token) = (token.lineage.get(), token.number);
        let (written_at, life) = (written_at.as_millis(), life.as_millis());
        let header =
            format!("{VERSION} {kind} {id} {number} {token} {lineage:x} {print} {written_at} {life} ");
        [header.as_bytes(), bytes].concat()
    }

    /// Parses a value; `None` if leasehold did not write it.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let mut parts = value.splitn(HEADER_WORDS + 1, |&byte| byte == b' ');
        let mut word = || std::str::from_utf8(parts.next()?).ok();
        if word()? != VERSION {
            return None;
        }
        let kind = MemoKind::new(word()?).ok()?;
        let id = ClaimId::read(word()?)?;
        let version = MemoVersion { id, number: word()?.parse().ok()? };
        let number = word()?.parse().ok()?;
        let lineage = Lineage::new(u128::from_str_radix(word()?, 16).ok()?);
        let print = read_digest(word()?)?;
        let mut millis = || word()?.parse().ok().map(Duration::from_millis);
        let (written_at, life) = (millis()?, millis()?);
        let bytes = parts.next().filter(|bytes| bytes.len() <= MAX_MEMO_BYTES)?.to_vec();
        Some(Self { kind, version, token: Token { lineage, number }, print, written_at, life, bytes })
    }

    /// How much of its life is left at this time of day; zero if the server has to be asked, because its life seems to
    /// be over. The clocks of the writer and of this machine may differ: then only this figure is wrong.
    pub(crate) fn left(&self, time_of_day: Duration) -> Duration {
        self.life.saturating_sub(time_of_day.saturating_sub(self.written_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "000102030405060708090a0b0c0d0e0f";

    fn record(bytes: &[u8]) -> MemoRecord {
        MemoRecord {
            kind: MemoKind::ONCE,
            version: MemoVersion { id: ClaimId([7; 16]), number: u64::MAX },
            token: Token { lineage: Lineage::new(u128::MAX), number: 17 },
            print: None,
            written_at: Duration::from_millis(5000),
            life: Duration::from_millis(300),
            bytes: bytes.to_vec(),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for bytes in [b"".as_slice(), b" a b\0\n\xff", &[b'x'; MAX_MEMO_BYTES]] {
            for print in [None, Some(std::array::from_fn(|index| index as u8 * 8))] {
                let record = MemoRecord { print, ..record(bytes) };
                assert_eq!(MemoRecord::read(&record.text()), Some(record));
            }
        }
    }

    #[test]
    fn only_what_leasehold_wrote_is_a_memo() {
        let text = format!("1 once {ID} 7 17 ff - 5000 300 x");
        assert_eq!(MemoRecord::read(text.as_bytes()).unwrap().bytes, b"x");
        for foreign in [
            String::new(),
            "1".to_owned(),
            format!("2{}", &text[1..]),
            text.replace("once", "Once"),
            text.replace(ID, &ID[1..]),
            text.replace(" 7 ", " -7 "),
            text.replace(" - ", " -- "),
            text.replace(" - ", &format!(" {}+1 ", "0".repeat(62))),
            text.replace(" 300 x", " 300"),
            text.replace('x', &"x".repeat(MAX_MEMO_BYTES + 1)),
        ] {
            assert_eq!(MemoRecord::read(foreign.as_bytes()), None, "{foreign:.100}");
        }
    }

    /// The clock of a reader that differs changes the figure only, and not beyond the life of the memo.
    #[test]
    fn the_time_left_is_counted_from_the_write() {
        let left = |millis| record(b"").left(Duration::from_millis(millis)).as_millis();
        assert_eq!([5000, 5299, 5300, 9000, 0].map(left), [300, 1, 0, 0, 300]);
    }
}
