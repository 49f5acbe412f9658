//! What keys are called.

use std::sync::LazyLock;

use crc::{CRC_16_XMODEM, Crc};
use leasehold_core::{ClaimId, EngineError, Fault, Name};

/// The hash slots of a Redis Cluster.
/// <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model>
const SLOTS: usize = 16_384;
/// What every key beside the locks themselves begins with.
pub(crate) const SIDE: &str = "leasehold:";
/// No lock key may begin like this: the side keys of a name have no other form.
const RESERVED: &str = "leasehold:{";

/// The keys of one name.
pub(crate) struct Keys {
    /// The lock itself, as foreign programs are given it.
    pub(crate) lock: String,
    /// What its side keys begin with. In the hash slot of the lock key, whatever braces that one holds.
    pub(crate) side: String,
}

impl Keys {
    pub(crate) fn of(prefix: &str, name: &Name) -> Result<Self, EngineError> {
        let lock = format!("{prefix}{name}");
        if lock.starts_with(RESERVED) {
            let message = format!(
                "keys that begin with {RESERVED:?} are leasehold's own: choose another name or prefix"
            );
            return Err(EngineError::new(Fault::Misconfigured, message));
        }
        let side = format!("{RESERVED}{}}}", &TAGS[slot(lock.as_bytes())]);
        Ok(Self { lock, side })
    }
}

/// The counter of tokens.
pub(crate) const COUNTER: &str = "leasehold:t";

/// The channel on which one client hears news.
pub(crate) fn channel(client: ClaimId) -> String {
    format!("{SIDE}news:{client}")
}

/// The slot of a key: of its hash tag, if it has one.
fn slot(key: &[u8]) -> usize {
    let tag = || {
        let open = key.iter().position(|&byte| byte == b'{')? + 1;
        let length = key[open..].iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &key[open..open + length])
    };
    usize::from(CRC.checksum(tag().unwrap_or(key))) % SLOTS
}

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// For every slot the first number, written to base 36, that falls into it. A part of the layout: never to change.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut tags = vec![String::new(); SLOTS];
    let mut missing = SLOTS;
    let mut number: u32 = 0;
    while missing > 0 {
        let text = base36(number);
        let tag = &mut tags[usize::from(CRC.checksum(text.as_bytes())) % SLOTS];
        if tag.is_empty() {
            *tag = text;
            missing -= 1;
        }
        number += 1;
    }
    tags
});

fn base36(mut number: u32) -> String {
    let mut text = Vec::new();
    loop {
        text.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize] as char);
        number /= 36;
        if number == 0 {
            return text.iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        // The specification's own example, and the rules of hash tags.
        assert_eq!(CRC.checksum(b"123456789"), 0x31C3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{}{bar}"), usize::from(CRC.checksum(b"foo{}{bar}")) % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
    }

    #[test]
    fn every_slot_has_a_tag_of_its_own_that_falls_into_it() {
        assert_eq!(TAGS.iter().collect::<HashSet<_>>().len(), SLOTS);
        for (number, tag) in TAGS.iter().enumerate() {
            assert_eq!(slot(format!("leasehold:{{{tag}}}clock:x").as_bytes()), number);
        }
    }

    #[test]
    fn side_keys_are_in_the_slot_of_their_lock_whatever_it_holds() {
        for name in ["a", "a}b", "{", "{}", "}{", "{a}b", "a{b}c{d}", "ä{ö}"] {
            let keys = Keys::of("lock:", &Name::new(name).unwrap()).unwrap();
            assert_eq!(slot(keys.lock.as_bytes()), slot(format!("{}q{}", keys.side, keys.lock).as_bytes()));
        }
    }

    #[test]
    fn a_name_cannot_reach_a_side_key() {
        let taken = Name::new("leasehold:{1}qx").unwrap();
        assert_eq!(Keys::of("", &taken).err().unwrap().fault, Fault::Misconfigured);
        assert!(Keys::of("lock:", &taken).is_ok());
        assert!(Keys::of("leasehold:", &Name::new("{1}qx").unwrap()).is_err());
    }
}
