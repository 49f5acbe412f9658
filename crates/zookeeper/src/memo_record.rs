//! The data of the node of a memo: a line of words, a line end, and the bytes of the memo. The words are
//! `leasehold 1 memo <kind> <number> <lineage> <token> <digest or -> <milliseconds> <node>`, where the node is that of
//! the hold which wrote the memo: its name contains the claim id. The server adds the time of the write.

use std::time::Duration;

use leasehold_core::{
    ClaimId, Lineage, MAX_MEMO_BYTES, MemoKind, MemoVersion, MemoWrite, NO_DIGEST, Token, digest_text,
};

use crate::{keys::id_of, wire::Stat};

/// The first words of the data.
const START: &str = "leasehold 1 memo ";
/// The number of words after these.
const WORDS: usize = 7;

/// A memo as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct MemoRecord {
    pub(crate) kind: MemoKind,
    pub(crate) version: MemoVersion,
    pub(crate) token: Token,
    pub(crate) print: Option<[u8; 32]>,
    /// For how many milliseconds it is kept after the time of its write.
    keep_millis: i64,
    /// The name of the node of the hold which wrote it.
    pub(crate) holder: String,
    pub(crate) bytes: Vec<u8>,
}

impl MemoRecord {
    /// What a write stores under the hold of the node `holder`.
    pub(crate) fn of(write: &MemoWrite, holder: &str) -> Self {
        let memo = &write.memo;
        // The server gives times in whole milliseconds. With one millisecond more, no memo ends too early.
        let keep_millis = memo.keep().as_nanos().div_ceil(1_000_000) + 1;
        Self {
            kind: memo.kind().clone(),
            version: write.version,
            token: write.token,
            print: memo.digest().copied(),
            keep_millis: i64::try_from(keep_millis).unwrap_or(i64::MAX),
            holder: holder.to_owned(),
            bytes: memo.bytes().to_vec(),
        }
    }

    /// The data of its node.
    pub(crate) fn data(&self) -> Vec<u8> {
        let Self { kind, version, token, keep_millis, holder, .. } = self;
        let print = digest_text(self.print.as_ref());
        let (number, Token { lineage, number: token }) = (version.number, token);
        let mut data =
            format!("{START}{kind} {number} {lineage} {token} {print} {keep_millis} {holder}\n").into_bytes();
        data.extend_from_slice(&self.bytes);
        data
    }

    /// Reads the data of a node; `None` if it is no memo of leasehold.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let line_end = data.iter().position(|&byte| byte == b'\n')?;
        let (line, bytes) = (std::str::from_utf8(&data[..line_end]).ok()?, &data[line_end + 1..]);
        let words: Vec<&str> = line.strip_prefix(START)?.split(' ').collect();
        let [kind, number, lineage, token, print, keep_millis, holder] =
            <[&str; WORDS]>::try_from(words).ok()?;
        if bytes.len() > MAX_MEMO_BYTES || holder.contains('/') {
            return None;
        }
        let print = if print == NO_DIGEST { None } else { Some(number_of(print)?) };
        let lineage = Lineage::new(u128::from_be_bytes(number_of(lineage)?));
        Some(Self {
            kind: MemoKind::new(kind).ok()?,
            version: MemoVersion { id: id_of(holder)?, number: decimal(number)? },
            token: Token { lineage, number: decimal(token)? },
            print,
            keep_millis: i64::try_from(decimal(keep_millis)?).ok()?,
            holder: holder.to_owned(),
            bytes: bytes.to_vec(),
        })
    }

    /// How long a memo is still kept that the server wrote as `stat` says, at `now` by the server's clock, in
    /// milliseconds; `None` if it has ended.
    pub(crate) fn left(&self, stat: &Stat, now: i64) -> Option<Duration> {
        // After the clock of the servers went back, a memo seems to be of the future.
        let age = now.saturating_sub(stat.mtime).max(0);
        let left = u64::try_from(self.keep_millis.saturating_sub(age)).ok()?;
        (left > 0).then(|| Duration::from_millis(left))
    }

    /// The claim that wrote it.
    pub(crate) const fn claim(&self) -> ClaimId {
        self.version.id
    }
}

/// The bytes with these hexadecimal digits.
fn number_of<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let is_lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * BYTES || !text.bytes().all(is_lower_hex) {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// A number as leasehold writes it.
fn decimal(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use leasehold_core::{HoldAfter, Name, NewMemo};

    use super::*;

    const HOLDER: &str = "_c_abababab-abab-abab-abab-abababababab-lock-0000000007";

    fn write(bytes: &[u8], keep: Duration) -> MemoWrite {
        let token = Token { lineage: Lineage::new(1 << 100), number: 1 << 60 };
        MemoWrite {
            name: Name::new("n").unwrap(),
            version: MemoVersion { id: ClaimId([0xab; 16]), number: 9 },
            hold_token: token,
            token,
            memo: NewMemo::new(MemoKind::ONCE, bytes, keep).unwrap(),
            after: HoldAfter::Keep,
        }
    }

    #[test]
    fn a_memo_is_read_as_it_was_written() {
        let write = write(b"a b\0\n\xff", Duration::from_secs(1));
        let without_print = MemoRecord::of(&write, HOLDER);
        assert_eq!(without_print.version, write.version);
        let print = std::array::from_fn(|index| index as u8 * 8);
        let with_print = MemoRecord { print: Some(print), ..without_print.clone() };
        for record in [without_print, with_print] {
            assert!(MemoRecord::read(&record.data()).unwrap() == record);
        }
    }

    #[test]
    fn only_what_leasehold_wrote_is_a_memo() {
        let (lineage, print) = ("0".repeat(32), "0f".repeat(32));
        let text = format!("leasehold 1 memo once 9 {lineage} 7 {print} 1001 {HOLDER}\n");
        assert!(MemoRecord::read(text.as_bytes()).is_some());
        let longest = text.clone() + &"x".repeat(MAX_MEMO_BYTES);
        assert_eq!(MemoRecord::read(longest.as_bytes()).unwrap().bytes.len(), MAX_MEMO_BYTES);
        for foreign in [
            String::new(),
            longest + "x",
            text.replace('\n', ""),
            text.replace("memo", "claim"),
            text.replace(" 1 ", " 2 "),
            text.replace("once", "Once"),
            text.replace(" 9 ", " 09 "),
            text.replace(" 9 ", " -9 "),
            text.replace(" 7 ", " 7  "),
            text.replace(&lineage, &lineage[1..]),
            text.replace(&print, &print[2..]),
            text.replace("0f", "0F"),
            text.replace("1001", "+1001"),
            text.replace("1001", "18446744073709551615"),
            text.replace("_c_", "../_c_"),
            text.replace("-lock-", "/lock-"),
            text.replace("_c_", "_d_"),
        ] {
            assert!(MemoRecord::read(foreign.as_bytes()).is_none(), "{foreign:.200}");
        }
    }

    #[test]
    fn a_memo_is_kept_for_its_time_by_the_clock_of_the_server() {
        let stat = Stat { mtime: 5_000, ..Stat::default() };
        let left = |keep, now| {
            let record = MemoRecord::of(&write(b"", keep), HOLDER);
            record.left(&stat, now).map(|left| left.as_millis())
        };
        let second = Duration::from_secs(1);
        assert_eq!(
            [5_000, 5_001, 6_000, 6_001].map(|now| left(second, now)),
            [Some(1001), Some(1000), Some(1), None]
        );
        assert_eq!(left(second, 4_000), Some(1001), "the clock went back");
        assert_eq!(left(Duration::from_nanos(1_000_001), 5_002), Some(1), "times are rounded up");
        assert_eq!(left(second, i64::MAX), None);
    }
}
