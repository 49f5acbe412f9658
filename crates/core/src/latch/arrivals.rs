//! Who has counted down at a latch: the content of its memo.

use std::collections::BTreeSet;

/// The longest name of a party, in bytes: as that of a lock.
const MAX_PARTY_BYTES: usize = crate::MAX_NAME_BYTES;

/// The format of the content.
const VERSION: &str = "1";

/// Who has counted down at a [`Latch`](crate::Latch).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals {
    count: u32,
    parties: BTreeSet<String>,
}

impl Arrivals {
    /// How many parties the latch waits for in all.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:latch-count")?;
    /// assert_eq!(locks.latch("import", 3).count_down_blocking("shard-a")?.count(), 3);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// How many parties are still to count down.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:latch-missing")?;
    /// assert_eq!(locks.latch("import", 3).count_down_blocking("shard-a")?.missing(), 2);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn missing(&self) -> u32 {
        self.count.saturating_sub(u32::try_from(self.parties.len()).unwrap_or(u32::MAX))
    }

    /// Whether all parties have counted down.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:latch-open")?;
    /// assert!(locks.latch("import", 1).count_down_blocking("shard-a")?.is_open());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.missing() == 0
    }

    /// The names of the parties that have counted down, in order.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:latch-parties")?;
    /// let arrivals = locks.latch("import", 3).count_down_blocking("shard-a")?;
    /// assert!(arrivals.parties().eq(["shard-a"]));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn parties(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parties.iter().map(String::as_str)
    }

    /// No party has counted down.
    pub(super) const fn none(count: u32) -> Self {
        Self { count, parties: BTreeSet::new() }
    }

    pub(super) fn contains(&self, party: &str) -> bool {
        self.parties.contains(party)
    }

    /// With one more party.
    pub(super) fn with(mut self, party: &str) -> Self {
        self.parties.insert(party.to_owned());
        self
    }

    /// The content of the memo: the version and the count, then the name of a party on each line.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = format!("{VERSION} {}", self.count);
        for party in &self.parties {
            text.push('\n');
            text.push_str(party);
        }
        text.into_bytes()
    }

    /// The arrivals in the content of a memo; `None` if it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(bytes).ok()?.split('\n');
        let count = lines.next()?.strip_prefix(VERSION)?.strip_prefix(' ')?;
        let is_plain = count.bytes().all(|byte| byte.is_ascii_digit());
        let count = is_plain.then(|| count.parse().ok()).flatten().filter(|count| *count > 0)?;
        let mut parties = BTreeSet::new();
        for party in lines {
            if check_party(party).is_err() || !parties.insert(party.to_owned()) {
                return None;
            }
        }
        Some(Self { count, parties })
    }
}

/// What is wrong with the name of a party.
pub(super) fn check_party(party: &str) -> Result<(), String> {
    if (1..=MAX_PARTY_BYTES).contains(&party.len()) && !party.chars().any(char::is_control) {
        return Ok(());
    }
    let start: String = party.chars().take(40).collect();
    Err(format!(
        "{start:?} is no name of a party: give 1 to {MAX_PARTY_BYTES} bytes without control characters"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_read_as_they_were_written() {
        let none = Arrivals::none(3);
        let some = none.clone().with("shard b").with("ä").with("shard b");
        assert_eq!((some.missing(), some.parties().len()), (1, 2));
        for arrivals in [none, some] {
            assert_eq!(Arrivals::decode(&arrivals.encode()), Some(arrivals));
        }
    }

    #[test]
    fn other_bytes_are_no_arrivals() {
        for bytes in
            ["", "1", "1 ", "1 0", "1 x", "1 +3", "2 3", "1 3\n", "1 3\na\na", "1 3\na\r", "1 99999999999"]
        {
            assert_eq!(Arrivals::decode(bytes.as_bytes()), None, "{bytes:?}");
        }
        assert_eq!(Arrivals::decode(b"1 3\n\xff"), None);
    }

    #[test]
    fn names_of_parties_have_a_length_and_no_control_characters() {
        let longest = "x".repeat(MAX_PARTY_BYTES);
        assert!(check_party("a").is_ok() && check_party(&longest).is_ok());
        for party in ["", "a\nb", "a\u{7f}", &format!("{longest}x")] {
            assert!(check_party(party).unwrap_err().contains("no name of a party"), "{party:?}");
        }
    }
}
