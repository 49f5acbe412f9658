//! The bytes of a memo file. Pure.
//!
//! ```text
//! 0    magic, 8 bytes          64   number of the write       152  digest, 32 bytes (zero without one)
//! 8    boot id, 16 bytes       72   lineage, 16 bytes         184  kind, 16 bytes, filled with zeros
//! 24   written: after boot     88   token                     200  checksum of the rest, 32 bytes
//! 32   written: time of day    96   whether it has a digest   232  content
//! 40   keep                    97   whether its hold ends with it
//! 48   claim id, 16 bytes      144  length of the content
//! ```
//!
//! Numbers have 8 bytes, little end first; times are in nanoseconds.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::super::table::layout::bytes_at;
use crate::{
    ClaimId, HoldAfter, Instant, Lineage, MAX_MEMO_BYTES, MAX_MEMO_KEEP, MemoKind, MemoVersion, MemoWrite,
    NewMemo, Token,
};

pub(crate) const MAGIC: &[u8; 8] = b"LHMEMO1\n";
const BOOT_ID_AT: usize = 8;
const SINCE_BOOT_AT: usize = 24;
const TIME_OF_DAY_AT: usize = 32;
const KEEP_AT: usize = 40;
const ID_AT: usize = 48;
const NUMBER_AT: usize = 64;
const LINEAGE_AT: usize = 72;
const TOKEN_AT: usize = 88;
const HAS_PRINT_AT: usize = 96;
const ENDS_HOLD_AT: usize = 97;
const LEN_AT: usize = 144;
const PRINT_AT: usize = 152;
const KIND_AT: usize = 184;
const KIND_SIZE: usize = 16;
const CHECKSUM_AT: usize = 200;
const CONTENT_AT: usize = 232;

/// The size of the largest memo file.
pub(crate) const MAX_SIZE: usize = CONTENT_AT + MAX_MEMO_BYTES;
/// The part of the file before the content.
pub(crate) const HEADER_SIZE: usize = CONTENT_AT;
/// The part of the file that tells when the memo ends, and which claim wrote it.
pub(crate) const TIMES_SIZE: usize = NUMBER_AT;

/// The moment of a write or a read, by the two clocks that decide when a memo ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) boot_id: [u8; 16],
    /// By the clock that counts from the boot of the machine.
    pub(crate) since_boot: Instant,
    /// Since 1970, by the time of day of the machine.
    pub(crate) time_of_day: Duration,
}

/// A memo as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredMemo {
    pub(crate) kind: MemoKind,
    pub(crate) bytes: Vec<u8>,
    pub(crate) print: Option<[u8; 32]>,
    pub(crate) version: MemoVersion,
    pub(crate) token: Token,
    /// Whether the hold was about to be released when the memo was written. The release follows at once; readers count
    /// the hold as released already, so that the write and the release are one step for them (R28).
    pub(crate) ends_hold: bool,
}

/// The file of a memo that is written now.
pub(crate) fn encode(write: &MemoWrite, now: Moment) -> Vec<u8> {
    let memo: &NewMemo = &write.memo;
    let mut bytes = vec![0; CONTENT_AT];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, MAGIC);
    put(BOOT_ID_AT, &now.boot_id);
    put(SINCE_BOOT_AT, &now.since_boot.as_nanos().to_le_bytes());
    put(TIME_OF_DAY_AT, &nanos(now.time_of_day).to_le_bytes());
    put(KEEP_AT, &nanos(memo.keep()).to_le_bytes());
    put(ID_AT, &write.version.id.0);
    put(NUMBER_AT, &write.version.number.to_le_bytes());
    put(LINEAGE_AT, &write.token.lineage.get().to_le_bytes());
    put(TOKEN_AT, &write.token.number.to_le_bytes());
    put(HAS_PRINT_AT, &[u8::from(memo.digest().is_some())]);
    put(ENDS_HOLD_AT, &[u8::from(write.after == HoldAfter::Release)]);
    put(LEN_AT, &(memo.bytes().len() as u64).to_le_bytes());
    put(PRINT_AT, memo.digest().unwrap_or(&[0; 32]));
    put(KIND_AT, memo.kind().as_str().as_bytes());
    bytes.extend_from_slice(memo.bytes());
    let checksum = checksum(&bytes);
    bytes[CHECKSUM_AT..CONTENT_AT].copy_from_slice(&checksum);
    bytes
}

/// The memo in a file; `None` if leasehold did not write the file as it is.
pub(crate) fn decode(bytes: &[u8]) -> Option<StoredMemo> {
    let content = bytes.get(CONTENT_AT..)?;
    let is_ours = bytes.starts_with(MAGIC)
        && number_at(bytes, LEN_AT) == content.len() as u64
        && bytes[CHECKSUM_AT..CONTENT_AT] == checksum(bytes);
    if !is_ours {
        return None;
    }
    let kind = bytes[KIND_AT..KIND_AT + KIND_SIZE].split(|byte| *byte == 0).next()?;
    let kind = MemoKind::new(std::str::from_utf8(kind).ok()?).ok()?;
    let lineage = Lineage::new(u128::from_le_bytes(bytes_at(bytes, LINEAGE_AT)));
    Some(StoredMemo {
        kind,
        bytes: content.to_vec(),
        print: (bytes[HAS_PRINT_AT] == 1).then(|| bytes_at(bytes, PRINT_AT)),
        version: MemoVersion { id: ClaimId(bytes_at(bytes, ID_AT)), number: number_at(bytes, NUMBER_AT) },
        token: Token { lineage, number: number_at(bytes, TOKEN_AT) },
        ends_hold: bytes[ENDS_HOLD_AT] == 1,
    })
}

/// How long the memo in a file is still kept; `None` if it has ended. Within one boot the clock of the machine decides.
/// Across a reboot only the time of day is left: if it was set back meanwhile, or was ahead at the write, the memo is
/// kept for longer, and until then `keep` is left; if it was set forward, the memo ends too early.
pub(crate) fn left(bytes: &[u8], now: Moment) -> Option<Duration> {
    if bytes.len() < TIMES_SIZE || !bytes.starts_with(MAGIC) {
        return None;
    }
    let is_same_boot = bytes_at::<16>(bytes, BOOT_ID_AT) == now.boot_id;
    let age = if is_same_boot {
        now.since_boot.since(Instant::from_nanos(number_at(bytes, SINCE_BOOT_AT)))
    } else {
        now.time_of_day.saturating_sub(Duration::from_nanos(number_at(bytes, TIME_OF_DAY_AT)))
    };
    let keep = Duration::from_nanos(number_at(bytes, KEEP_AT)).min(MAX_MEMO_KEEP);
    keep.checked_sub(age).filter(|left| !left.is_zero())
}

/// The claim that wrote the memo, by the first [`TIMES_SIZE`] bytes of its file.
pub(crate) fn writer(times: &[u8; TIMES_SIZE]) -> ClaimId {
    ClaimId(bytes_at(times, ID_AT))
}

/// The checksum of all bytes but its own.
fn checksum(bytes: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(&bytes[..CHECKSUM_AT]);
    hash.update(&bytes[CONTENT_AT..]);
    hash.finalize().into()
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

/// A time in nanoseconds; the longest memo and the time of day until 2554 fit.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    const HOUR: Duration = Duration::from_secs(3600);

    fn moment(boot: u8, since_boot: Duration, time_of_day: Duration) -> Moment {
        let since_boot = Instant::from_nanos(nanos(since_boot));
        Moment { boot_id: [boot; 16], since_boot, time_of_day }
    }

    fn write(bytes: &[u8]) -> MemoWrite {
        let token = Token { lineage: Lineage::new(u128::MAX - 5), number: 9 };
        MemoWrite {
            name: Name::new("n").unwrap(),
            version: MemoVersion { id: ClaimId([7; 16]), number: 3 },
            hold_token: token,
            token,
            memo: NewMemo::new(MemoKind::new("abcdefghijklmnop").unwrap(), bytes, HOUR)
                .unwrap()
                .print([9; 32]),
            after: HoldAfter::Keep,
        }
    }

    #[test]
    fn a_memo_is_decoded_as_it_was_encoded_and_no_other_bytes_are_a_memo() {
        let write = write(&[1, 0, 2]);
        let file = encode(&write, moment(1, HOUR, HOUR * 10));
        let decoded = decode(&file).unwrap();
        assert_eq!((&decoded.kind, &decoded.bytes[..]), (write.memo.kind(), write.memo.bytes()));
        assert_eq!(
            (decoded.print, decoded.version, decoded.token),
            (Some([9; 32]), write.version, write.token)
        );
        for cut in 0..file.len() {
            assert_eq!(decode(&file[..cut]), None, "cut at {cut}");
        }
        for index in 0..file.len() {
            let mut changed = file.clone();
            changed[index] ^= 1;
            assert_eq!(decode(&changed), None, "byte {index} differs");
        }
        assert_eq!(encode(&self::write(&[0; MAX_MEMO_BYTES]), moment(1, HOUR, HOUR)).len(), MAX_SIZE);
    }

    #[test]
    fn a_memo_ends_by_the_clock_of_its_boot_and_after_a_reboot_by_the_time_of_day() {
        let file = encode(&write(b"x"), moment(1, HOUR * 5, HOUR * 1000));
        let second = Duration::from_secs(1);
        for (now, expected) in [
            // The time of day was set: within a boot it does not count.
            (moment(1, HOUR * 6 - second, HOUR * 9000), Some(second)),
            (moment(1, HOUR * 6, HOUR * 1000), None),
            (moment(1, HOUR * 5, HOUR), Some(HOUR)),
            // After a reboot the clock of the machine begins anew.
            (moment(2, HOUR * 5, HOUR * 1001 - second), Some(second)),
            (moment(2, Duration::ZERO, HOUR * 1001), None),
            (moment(2, Duration::ZERO, HOUR * 1000), Some(HOUR)),
            // Set back: kept for longer, for one `keep` at most.
            (moment(2, Duration::ZERO, HOUR), Some(HOUR)),
        ] {
            assert_eq!(left(&file, now), expected, "{now:?}");
            assert_eq!(left(&file[..TIMES_SIZE], now), expected, "the times alone");
        }
        assert_eq!(left(b"LHMEMO1\n", moment(1, HOUR, HOUR)), None);
    }
}
