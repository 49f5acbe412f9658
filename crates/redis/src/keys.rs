//! The names of keys and channels, and their slots.

use crc::{CRC_16_XMODEM, Crc};
use leasehold_core::{ClaimId, EngineError, Fault, Name};

/// The number of hash slots of a Redis Cluster.
/// <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model>
pub(crate) const SLOTS: usize = 16_384;
/// The prefix of all keys and channels of leasehold except the lock keys.
pub(crate) const SIDE_PREFIX: &str = "leasehold:";
/// The prefix of the side keys of names, before the tag. No lock key begins with this prefix: a name whose key would is
/// refused.
pub(crate) const RESERVED_PREFIX: &str = "leasehold:{";

/// The beginning of the key of the token counter that all slots share (its tag is empty): then come `t` and the prefix
/// of the lock keys.
pub(crate) const COMMON_COUNTER_PREFIX: &str = "leasehold:{}";

/// The keys of one name. The lock key is the prefix and the name, without anything of leasehold, because other programs
/// use that key too.
pub(crate) struct Keys<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) name: &'a str,
    /// The text between the braces of the side keys. It places the side keys in the slot of the lock key, even if the
    /// lock key has braces itself.
    pub(crate) tag: &'static str,
    /// The letter after the tag in the side keys, which names the layout; empty for plain locks.
    pub(crate) layout_letter: &'static str,
    /// The slot of all these keys in a Redis Cluster.
    pub(crate) slot: u16,
}

impl<'a> Keys<'a> {
    /// The keys of a name; an error if its lock key would be a side key.
    pub(crate) fn of(prefix: &'a str, name: &'a Name) -> Result<Self, EngineError> {
        let name = name.as_str();
        if is_side_key(prefix, name) {
            let message = format!(
                "keys that begin with {RESERVED_PREFIX:?} are leasehold's own: choose another name or prefix"
            );
            return Err(EngineError::new(Fault::Misconfigured, message));
        }
        let slot = slot(prefix.as_bytes(), name.as_bytes());
        Ok(Self { prefix, name, tag: tag(slot), layout_letter: "", slot })
    }

    /// The lock key.
    pub(crate) fn lock(&self) -> String {
        format!("{}{}", self.prefix, self.name)
    }

    /// The key of the memo.
    pub(crate) fn memo(&self) -> String {
        format!("{RESERVED_PREFIX}{}}}{}m{}{}", self.tag, self.layout_letter, self.prefix, self.name)
    }
}

/// Whether the lock key would begin like a side key.
fn is_side_key(prefix: &str, name: &str) -> bool {
    match RESERVED_PREFIX.strip_prefix(prefix) {
        Some(rest) => name.starts_with(rest),
        None => prefix.starts_with(RESERVED_PREFIX),
    }
}

/// The key of the token counter of a prefix and slot. Each prefix of lock keys has its own counter, so that a user who
/// has rights only on the keys of one prefix needs no counter of another prefix. Where servers share the slots, there
/// is one counter for each slot; otherwise `slot` is `None`, and there is one counter for all slots.
pub(crate) fn counter_key(prefix: &str, slot: Option<u16>) -> String {
    format!("{RESERVED_PREFIX}{}}}t{prefix}", slot.map_or("", tag))
}

/// A key that is written only to give `WAIT` a write to wait for.
pub(crate) fn wait_key(prefix: &str, slot: Option<u16>) -> String {
    format!("{RESERVED_PREFIX}{}}}w{prefix}", slot.map_or("", tag))
}

/// The key of the fence of a resource, and its slot.
pub(crate) fn fence_key(prefix: &str, resource: &str) -> (String, u16) {
    let slot = slot(prefix.as_bytes(), resource.as_bytes());
    (format!("{RESERVED_PREFIX}{}}}f{prefix}{resource}", tag(slot)), slot)
}

/// The channel on which one client receives notifications.
pub(crate) fn channel(client: ClaimId) -> String {
    format!("{SIDE_PREFIX}news:{client}")
}

/// The channel on which this client receives notifications of a slot, where servers share the slots.
pub(crate) fn slot_channel(client: &str, slot: u16) -> String {
    format!("{RESERVED_PREFIX}{}}}{}", tag(slot), client.strip_prefix(SIDE_PREFIX).unwrap_or(client))
}

/// The part of a slot's channel after the tag: this part is the same in all slots. For any other channel, the whole
/// name.
pub(crate) fn after_tag(channel: &str) -> &str {
    let start = RESERVED_PREFIX.len() + TAG_LENGTH;
    if channel.starts_with(RESERVED_PREFIX) { channel.get(start..).unwrap_or_default() } else { channel }
}

/// The slot of a key that consists of these two parts: the hash of its hash tag, if the key has one, otherwise of the
/// key.
pub(crate) fn slot(prefix: &[u8], name: &[u8]) -> u16 {
    let hash = |parts: [&[u8]; 2]| {
        let mut digest = CRC.digest();
        parts.iter().for_each(|part| digest.update(part));
        digest.finalize() % SLOTS as u16
    };
    if !prefix.contains(&b'{') && !name.contains(&b'{') {
        return hash([prefix, name]);
    }
    let key = [prefix, name].concat();
    let tag = || {
        let open = key.iter().position(|&byte| byte == b'{')? + 1;
        let length = key[open..].iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &key[open..open + length])
    };
    hash([tag().unwrap_or(&key), b""])
}

/// The number of letters of a tag.
const TAG_LENGTH: usize = 4;

/// The checksum that Redis Cluster uses for slots.
const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// For every slot a word of four letters whose hash is that slot. These words are part of the stored format: never
/// change them.
static TAGS: [[u8; TAG_LENGTH]; SLOTS] = {
    let mut tags = [[0; TAG_LENGTH]; SLOTS];
    let mut number = 0;
    // The checksum is linear: 2^14 words that differ in 14 bits fall into 2^14 slots.
    while number < SLOTS {
        let word = [letter(number >> 12), letter(number >> 8), letter(number >> 4), letter(number)];
        tags[CRC.checksum(&word) as usize % SLOTS] = word;
        number += 1;
    }
    tags
};

/// The letter for the lowest four bits of a number.
const fn letter(number: usize) -> u8 {
    b'@' + (number % 16) as u8
}

/// The tag that places a side key in this slot.
fn tag(slot: u16) -> &'static str {
    std::str::from_utf8(&TAGS[usize::from(slot)]).expect("made of letters")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn slot_of(key: &str) -> u16 {
        let slots: HashSet<_> = (0..=key.len())
            .filter(|&end| key.is_char_boundary(end))
            .map(|end| slot(&key.as_bytes()[..end], &key.as_bytes()[end..]))
            .collect();
        assert_eq!(slots.len(), 1, "{key:?} has one slot, wherever its prefix ends");
        slots.into_iter().next().unwrap()
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        // The specification's own examples, and its rules of hash tags.
        assert_eq!(CRC.checksum(b"123456789"), 0x31C3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("{user1000}.following"), slot_of("{user1000}.followers"));
        assert_eq!(slot_of("foo{}{bar}"), CRC.checksum(b"foo{}{bar}") % SLOTS as u16);
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"));
        assert_eq!(slot_of("foo{bar}{zap}"), slot_of("bar"));
    }

    #[test]
    fn every_slot_has_its_own_tag() {
        for number in 0..SLOTS as u16 {
            let key = format!("{{{}}}clock:x", tag(number));
            assert_eq!(slot(b"leasehold:", key.as_bytes()), number);
        }
    }

    #[test]
    fn side_keys_are_in_the_slot_of_their_lock() {
        for name in ["a", "a}b", "{", "{}", "}{", "{a}b", "a{b}c{d}", "ä{ö}"] {
            let name = Name::new(name).unwrap();
            let keys = Keys::of("lock:", &name).unwrap();
            let side_key = format!("leasehold:{{{}}}q{}", keys.tag, keys.lock());
            assert_eq!(slot_of(&keys.lock()), slot_of(&side_key));
        }
    }

    #[test]
    fn the_counter_and_the_channel_of_a_slot_are_in_it() {
        for number in [0, 1, 8191, 16_383] {
            assert_eq!(slot_of(&counter_key("lock:", Some(number))), number);
            let channel_of_slot = slot_channel(&channel(ClaimId([7; 16])), number);
            assert_eq!(slot_of(&channel_of_slot), number);
            assert_eq!(
                format!("{RESERVED_PREFIX}{}{}", tag(number), after_tag(&channel_of_slot)),
                channel_of_slot
            );
        }
    }

    #[test]
    fn a_name_cannot_reach_a_side_key() {
        let side_key = "leasehold:{1}qx";
        let whole = Name::new(side_key).unwrap();
        assert_eq!(Keys::of("", &whole).err().unwrap().fault, Fault::Misconfigured);
        assert!(Keys::of("lock:", &whole).is_ok());
        for end in 1..side_key.len() {
            assert!(Keys::of(&side_key[..end], &Name::new(&side_key[end..]).unwrap()).is_err(), "{end}");
        }
        assert!(Keys::of("leasehold:", &Name::new("a").unwrap()).is_ok());
        assert_eq!(counter_key("lock:", None), "leasehold:{}tlock:");
    }
}
