//! The token counter of a client's prefix.

use std::borrow::Cow;

use leasehold_core::Lineage;

use crate::keys::counter;

/// The one lineage of all tokens: a token is larger than the server's microseconds at its grant, so tokens grow
/// whatever happens to the server's data.
pub(crate) const LINEAGE: Lineage = Lineage::new(0);

/// The keys that hold the newest token.
pub(crate) struct TokenCounter {
    prefix: String,
    /// The key, if all slots share one.
    of_all: String,
}

impl TokenCounter {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), of_all: counter(prefix, None) }
    }

    /// The key of a slot, or of all slots.
    pub(crate) fn key(&self, slot: Option<u16>) -> Cow<'_, str> {
        slot.map_or(Cow::Borrowed(&self.of_all), |slot| Cow::Owned(counter(&self.prefix, Some(slot))))
    }
}
