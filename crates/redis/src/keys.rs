//! The names of keys and channels, and their slots.

use crc::{CRC_16_XMODEM, Crc};
use leasehold_core::{ClaimId, EngineError, Fault, Name};

/// The hash slots of a Redis Cluster.
/// <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model>
pub(crate) const SLOTS: usize = 16_384;
/// The prefix of every key beside the locks themselves.
pub(crate) const SIDE: &str = "leasehold:";
/// No lock key may begin with this: all side keys of names do.
pub(crate) const RESERVED: &str = "leasehold:{";

/// The prefix of the counter of all slots.
pub(crate) const COUNTER_OF_ALL: &str = "leasehold:{}";

/// The keys of one name. The lock key is the prefix and the name, as foreign programs are given it.
pub(crate) struct Keys<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) name: &'a str,
    /// The text between the braces of its side keys. It places them in the slot of the lock key, whatever braces that
    /// key has.
    pub(crate) tag: &'static str,
    /// The text after the tag in the side keys of a layout.
    pub(crate) mark: &'static str,
    /// Its slot in a Redis Cluster.
    pub(crate) slot: u16,
}

impl<'a> Keys<'a> {
    pub(crate) fn of(prefix: &'a str, name: &'a Name) -> Result<Self, EngineError> {
        let name = name.as_str();
        if reaches_side_keys(prefix, name) {
            let message = format!(
                "keys that begin with {RESERVED:?} are leasehold's own: choose another name or prefix"
            );
            return Err(EngineError::new(Fault::Misconfigured, message));
        }
        let slot = slot(prefix.as_bytes(), name.as_bytes());
        Ok(Self { prefix, name, tag: tag(slot), mark: "", slot })
    }

    pub(crate) fn lock(&self) -> String {
        format!("{}{}", self.prefix, self.name)
    }
}

fn reaches_side_keys(prefix: &str, name: &str) -> bool {
    match RESERVED.strip_prefix(prefix) {
        Some(rest) => name.starts_with(rest),
        None => prefix.starts_with(RESERVED),
    }
}

/// The token counter of a prefix: a user without access to the locks of a prefix needs no access to their tokens. Where
/// servers share the slots, there is one counter for each slot; otherwise one for all.
pub(crate) fn counter(prefix: &str, slot: Option<u16>) -> String {
    format!("{RESERVED}{}}}t{prefix}", slot.map_or("", tag))
}

/// A key that is written only to give `WAIT` a write to wait for.
pub(crate) fn echo(prefix: &str, slot: Option<u16>) -> String {
    format!("{RESERVED}{}}}w{prefix}", slot.map_or("", tag))
}

/// The key of the fence of a resource, and its slot.
pub(crate) fn fence_key(prefix: &str, resource: &str) -> (String, u16) {
    let slot = slot(prefix.as_bytes(), resource.as_bytes());
    (format!("{RESERVED}{}}}f{prefix}{resource}", tag(slot)), slot)
}

/// The channel on which one client receives notifications.
pub(crate) fn channel(client: ClaimId) -> String {
    format!("{SIDE}news:{client}")
}

/// The channel on which this client receives notifications of a slot, where servers share the slots.
pub(crate) fn channel_of(client: &str, slot: u16) -> String {
    format!("{RESERVED}{}}}{}", tag(slot), client.strip_prefix(SIDE).unwrap_or(client))
}

/// The part of that channel after the tag, which is the same in all slots.
pub(crate) fn after_tag(channel: &str) -> &str {
    let tagged = RESERVED.len() + TAG;
    if channel.starts_with(RESERVED) { channel.get(tagged..).unwrap_or_default() } else { channel }
}

/// The slot of a key that consists of these two parts: that of its hash tag, if it has one.
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
const TAG: usize = 4;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// For every slot a word of four letters in that slot. It is part of the layout: never change it.
static TAGS: [[u8; TAG]; SLOTS] = {
    let mut tags = [[0; TAG]; SLOTS];
    let mut number = 0;
    // The checksum is linear: 2^14 words that differ in 14 bits fall into 2^14 slots.
    while number < SLOTS {
        let word = [letter(number >> 12), letter(number >> 8), letter(number >> 4), letter(number)];
        tags[CRC.checksum(&word) as usize % SLOTS] = word;
        number += 1;
    }
    tags
};

const fn letter(number: usize) -> u8 {
    b'@' + (number % 16) as u8
}

fn tag(slot: u16) -> &'static str {
    std::str::from_utf8(&TAGS[usize::from(slot)]).expect("made of letters")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn slot_of(key: &str) -> u16 {
        let slots: HashSet<_> = (0..=key.len())
            .filter(|&at| key.is_char_boundary(at))
            .map(|at| slot(&key.as_bytes()[..at], &key.as_bytes()[at..]))
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
            let side = format!("leasehold:{{{}}}q{}", keys.tag, keys.lock());
            assert_eq!(slot_of(&keys.lock()), slot_of(&side));
        }
    }

    #[test]
    fn the_counter_and_the_channel_of_a_slot_are_in_it() {
        for number in [0, 1, 8191, 16_383] {
            assert_eq!(slot_of(&counter("lock:", Some(number))), number);
            let of_slot = channel_of(&channel(ClaimId([7; 16])), number);
            assert_eq!(slot_of(&of_slot), number);
            assert_eq!(format!("{RESERVED}{}{}", tag(number), after_tag(&of_slot)), of_slot);
        }
    }

    #[test]
    fn a_name_cannot_reach_a_side_key() {
        let side = "leasehold:{1}qx";
        let whole = Name::new(side).unwrap();
        assert_eq!(Keys::of("", &whole).err().unwrap().fault, Fault::Misconfigured);
        assert!(Keys::of("lock:", &whole).is_ok());
        for at in 1..side.len() {
            assert!(Keys::of(&side[..at], &Name::new(&side[at..]).unwrap()).is_err(), "{at}");
        }
        assert!(Keys::of("leasehold:", &Name::new("a").unwrap()).is_ok());
        assert_eq!(counter("lock:", None), "leasehold:{}tlock:");
    }
}
