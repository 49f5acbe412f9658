//! The layout of a state file: a header of 1,024 bytes, then one record of 256 bytes per slot of the table. This file
//! converts bytes to types and back; it does no I/O.
//!
//! | at | content | written by |
//! |---|---|---|
//! | 0 | magic, layout version, lineage, full name | once, under the latch, before anything else |
//! | 576 | table: in use?, number of records ever used, next ticket, boot id | under the latch |
//! | 640 | tokens: boot id, current, promised, ceiling | the exclusive holder, or a shared holder under the latch |
//! | 696 | how the last hold ended | a holder, at its release |
//! | 704 | record 0: the exclusive holder | the exclusive holder |
//! | 1024 | records 1, 2, ... | under the latch; their owner may empty them at any time |
//!
//! Each field that is written without the latch lies in one 512-byte sector and one page, so that a killed process
//! leaves either the whole write or none of it. Numbers are little-endian. No byte that is read is trusted: each is
//! checked.

use crate::{Lineage, MAX_NAME_BYTES, Name, Previous};

/// The size of the header, including record 0.
pub(crate) const HEADER_SIZE: usize = 1024;
/// The size of a record.
pub(crate) const RECORD_SIZE: usize = 256;
/// The offset of record 0.
pub(crate) const RECORD_ZERO_AT: usize = 704;
/// The offset of the fields of the table.
pub(crate) const TABLE_AT: usize = 576;
/// The offset of the tokens.
pub(crate) const TOKENS_AT: usize = 640;
/// The offset of the byte for how the last hold ended. Record 0 follows, so that one write covers both.
pub(crate) const ENDED_AT: usize = 696;
/// The maximum number of claims that wait for or hold one name: 1 MiB of table, which each change of the table reads.
pub(crate) const MAX_CLAIMS: u32 = 4096;
/// The upper bound of tokens and tickets, which are also offsets of byte-range locks.
pub(crate) const TICKET_OR_TOKEN_LIMIT: u64 = 1 << 60;

/// The first bytes of a state file.
const MAGIC: &[u8; 6] = b"LHLOCK";
/// The layout version, which follows the magic.
const VERSION: u16 = 1;
// The offsets in the header of the fields that are written only one time.
const VERSION_AT: usize = 6;
const LINEAGE_AT: usize = 8;
const NAME_LEN_AT: usize = 24;
const NAME_AT: usize = 32;

/// The header of a state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The lineage of the tokens.
    pub(crate) lineage: Lineage,
    pub(crate) table: TableHeader,
    pub(crate) tokens: Tokens,
    /// How the last hold ended.
    pub(crate) ended: Previous,
}

/// The fields of the header that describe the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableHeader {
    /// Whether any record but record 0 is in use. One byte, so that it can be read without the latch.
    pub(crate) in_use: bool,
    /// How many records, from record 1 on, were ever written.
    pub(crate) records: u32,
    /// The ticket of the next claim.
    pub(crate) next_ticket: u64,
    /// The boot in which the records were written.
    pub(crate) boot_id: [u8; 16],
}

/// The token counter. Its rules are in [`tokens`](super::tokens).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// The boot in which the counter was last written.
    pub(crate) boot_id: [u8; 16],
    /// The last token granted.
    pub(crate) current: u64,
    /// No later boot uses a token up to this number. The number is perhaps not on the disk yet.
    pub(crate) promised: u64,
    /// The last value of `promised` that is certainly on disk.
    pub(crate) ceiling: u64,
}

/// Why the bytes are not a valid header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// Nothing was written, or no write reached the disk.
    Blank,
    /// The file is not a state file of this engine.
    Foreign,
    /// A state file of this engine, in an unknown layout version.
    Version(u16),
    /// A state file of this engine, with values that no valid header has.
    Damaged,
}

impl Header {
    /// The header of the state file of a name that was never held.
    pub(crate) fn new(lineage: Lineage, boot_id: [u8; 16]) -> Self {
        let table = TableHeader { in_use: false, records: 0, next_ticket: 1, boot_id };
        Self { lineage, table, tokens: Tokens::default(), ended: Previous::Clean }
    }

    /// The bytes to write for `name`, with record 0 empty.
    pub(crate) fn to_bytes(&self, name: &Name) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..VERSION_AT].copy_from_slice(MAGIC);
        bytes[VERSION_AT..LINEAGE_AT].copy_from_slice(&VERSION.to_le_bytes());
        bytes[LINEAGE_AT..NAME_LEN_AT].copy_from_slice(&self.lineage.get().to_le_bytes());
        let name = name.as_str().as_bytes();
        bytes[NAME_LEN_AT..NAME_LEN_AT + 2].copy_from_slice(&(name.len() as u16).to_le_bytes());
        bytes[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
        bytes[TABLE_AT..TABLE_AT + TableHeader::SIZE].copy_from_slice(&self.table.to_bytes());
        bytes[TOKENS_AT..TOKENS_AT + Tokens::SIZE].copy_from_slice(&self.tokens.to_bytes());
        bytes[ENDED_AT] = ended_to_byte(self.ended);
        bytes
    }

    /// Parses the beginning of a file of `size` bytes.
    pub(crate) fn from_bytes(bytes: &[u8; HEADER_SIZE], size: u64) -> Result<Self, HeaderError> {
        if size == 0 || (size == HEADER_SIZE as u64 && bytes.iter().all(|&byte| byte == 0)) {
            // A power cut can leave the size of the file without its bytes. In that case no token was granted, because
            // the first grant needs a sync of the file.
            return Err(HeaderError::Blank);
        }
        if &bytes[..VERSION_AT] != MAGIC {
            return Err(HeaderError::Foreign);
        }
        match u16::from_le_bytes(bytes_at(bytes, VERSION_AT)) {
            VERSION => {}
            version => return Err(HeaderError::Version(version)),
        }
        let header = Self {
            lineage: Lineage::new(u128::from_le_bytes(bytes_at(bytes, LINEAGE_AT))),
            table: TableHeader::from_bytes(bytes),
            tokens: Tokens::from_bytes(bytes),
            ended: ended_from_byte(bytes[ENDED_AT]),
        };
        header.is_consistent().then_some(header).ok_or(HeaderError::Damaged)
    }

    /// Whether the numbers can be those of a header that this engine wrote.
    fn is_consistent(&self) -> bool {
        let tokens = self.tokens;
        self.table.records <= MAX_CLAIMS
            && self.table.next_ticket < TICKET_OR_TOKEN_LIMIT
            && tokens.current <= tokens.ceiling
            && tokens.ceiling <= tokens.promised
            && tokens.promised < TICKET_OR_TOKEN_LIMIT
    }
}

impl TableHeader {
    pub(crate) const SIZE: usize = 40;
    // The offsets of the fields, from the offset of the table on.
    const IN_USE_AT: usize = 0;
    const NEXT_TICKET_AT: usize = 8;
    const RECORDS_AT: usize = 16;
    const BOOT_AT: usize = 24;

    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[Self::IN_USE_AT] = u8::from(self.in_use);
        bytes[Self::NEXT_TICKET_AT..Self::RECORDS_AT].copy_from_slice(&self.next_ticket.to_le_bytes());
        bytes[Self::RECORDS_AT..Self::RECORDS_AT + 4].copy_from_slice(&self.records.to_le_bytes());
        bytes[Self::BOOT_AT..].copy_from_slice(&self.boot_id);
        bytes
    }

    pub(crate) fn from_bytes(header: &[u8; HEADER_SIZE]) -> Self {
        Self::parse(&bytes_at(header, TABLE_AT))
    }

    /// Parses the bytes of the table alone.
    pub(crate) fn parse(table: &[u8; Self::SIZE]) -> Self {
        Self {
            in_use: table[Self::IN_USE_AT] != 0,
            next_ticket: u64::from_le_bytes(bytes_at(table, Self::NEXT_TICKET_AT)),
            records: u32::from_le_bytes(bytes_at(table, Self::RECORDS_AT)),
            boot_id: bytes_at(table, Self::BOOT_AT),
        }
    }
}

impl Tokens {
    pub(crate) const SIZE: usize = 40;
    // The offsets of the fields after the boot id, from the offset of the tokens on.
    const CURRENT_AT: usize = 16;
    const PROMISED_AT: usize = 24;
    const CEILING_AT: usize = 32;

    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..Self::CURRENT_AT].copy_from_slice(&self.boot_id);
        bytes[Self::CURRENT_AT..Self::PROMISED_AT].copy_from_slice(&self.current.to_le_bytes());
        bytes[Self::PROMISED_AT..Self::CEILING_AT].copy_from_slice(&self.promised.to_le_bytes());
        bytes[Self::CEILING_AT..].copy_from_slice(&self.ceiling.to_le_bytes());
        bytes
    }

    fn from_bytes(header: &[u8; HEADER_SIZE]) -> Self {
        Self {
            boot_id: bytes_at(header, TOKENS_AT),
            current: u64::from_le_bytes(bytes_at(header, TOKENS_AT + Self::CURRENT_AT)),
            promised: u64::from_le_bytes(bytes_at(header, TOKENS_AT + Self::PROMISED_AT)),
            ceiling: u64::from_le_bytes(bytes_at(header, TOKENS_AT + Self::CEILING_AT)),
        }
    }
}

/// The offset of record `slot` in the file.
pub(crate) const fn record_offset(slot: u32) -> u64 {
    match slot {
        0 => RECORD_ZERO_AT as u64,
        _ => (HEADER_SIZE + (slot as usize - 1) * RECORD_SIZE) as u64,
    }
}

/// How a hold ended, as one byte.
pub(crate) const fn ended_to_byte(ended: Previous) -> u8 {
    match ended {
        Previous::Clean => 0,
        Previous::Abandoned => 1,
        Previous::Lapsed => 2,
        Previous::Broken => 3,
        Previous::Unknown => 4,
    }
}

const fn ended_from_byte(byte: u8) -> Previous {
    match byte {
        0 => Previous::Clean,
        1 => Previous::Abandoned,
        2 => Previous::Lapsed,
        3 => Previous::Broken,
        _ => Previous::Unknown,
    }
}

/// The `N` bytes from offset `offset` on. Only called with constant offsets inside `bytes`.
pub(crate) fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N].try_into().expect("the slice has N bytes")
}

/// The full name for which the header was written, as bytes.
pub(crate) fn name_bytes(header: &[u8; HEADER_SIZE]) -> &[u8] {
    let len = usize::from(u16::from_le_bytes(bytes_at(header, NAME_LEN_AT)));
    &header[NAME_AT..NAME_AT + len.min(MAX_NAME_BYTES)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        let mut header = Header::new(Lineage::new(77), [9; 16]);
        header.table = TableHeader { in_use: true, records: 12, next_ticket: 99, boot_id: [3; 16] };
        header.tokens = Tokens { boot_id: [4; 16], current: 5, promised: 8, ceiling: 7 };
        header.ended = Previous::Broken;
        header
    }

    fn name() -> Name {
        Name::new(&"n".repeat(512)).unwrap()
    }

    #[test]
    fn a_header_round_trips_through_bytes() {
        let bytes = header().to_bytes(&name());
        assert_eq!(Header::from_bytes(&bytes, HEADER_SIZE as u64), Ok(header()));
        assert_eq!(name_bytes(&bytes), name().as_str().as_bytes());
    }

    #[test]
    fn foreign_content_is_distinguished() {
        let mut bytes = header().to_bytes(&name());
        assert_eq!(Header::from_bytes(&[0; HEADER_SIZE], 0), Err(HeaderError::Blank));
        assert_eq!(Header::from_bytes(&[0; HEADER_SIZE], HEADER_SIZE as u64), Err(HeaderError::Blank));
        assert_eq!(
            Header::from_bytes(&[0; HEADER_SIZE], 5),
            Err(HeaderError::Foreign),
            "a file of zeros is foreign"
        );
        bytes[6] = 9;
        assert_eq!(Header::from_bytes(&bytes, HEADER_SIZE as u64), Err(HeaderError::Version(9)));
        bytes[0] = b'x';
        assert_eq!(Header::from_bytes(&bytes, HEADER_SIZE as u64), Err(HeaderError::Foreign));
    }

    #[test]
    fn impossible_numbers_are_damage() {
        for damage in [
            |header: &mut Header| header.table.records = MAX_CLAIMS + 1,
            |header: &mut Header| header.table.next_ticket = u64::MAX,
            |header: &mut Header| header.tokens.current = 8,
            |header: &mut Header| header.tokens.promised = 6,
            |header: &mut Header| header.tokens.promised = u64::MAX,
        ] {
            let mut damaged = header();
            damage(&mut damaged);
            assert_eq!(
                Header::from_bytes(&damaged.to_bytes(&name()), HEADER_SIZE as u64),
                Err(HeaderError::Damaged)
            );
        }
    }

    #[test]
    fn fields_written_without_the_latch_are_in_one_sector() {
        assert_eq!(TOKENS_AT / 512, (RECORD_ZERO_AT + RECORD_SIZE - 1) / 512);
        const { assert!(TABLE_AT + TableHeader::SIZE <= TOKENS_AT && TOKENS_AT + Tokens::SIZE <= ENDED_AT) };
        const {
            assert!(
                ENDED_AT + 8 == RECORD_ZERO_AT
                    && RECORD_ZERO_AT + RECORD_SIZE <= HEADER_SIZE
                    && NAME_AT + MAX_NAME_BYTES <= TABLE_AT
            )
        };
        assert_eq!(4096 % RECORD_SIZE, 0, "no record straddles a page");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), HEADER_SIZE), has_magic in any::<bool>()) {
            if has_magic {
                bytes[..8].copy_from_slice(b"LHLOCK\x01\x00");
            }
            let bytes = bytes_at(&bytes, 0);
            let _ = Header::from_bytes(&bytes, HEADER_SIZE as u64);
            prop_assert!(name_bytes(&bytes).len() <= MAX_NAME_BYTES);
        }
    }
}
