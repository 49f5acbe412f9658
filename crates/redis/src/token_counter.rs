//! The key of the token counter of a client's prefix.

use std::borrow::Cow;

use leasehold_core::Lineage;

use crate::keys::counter_key;

/// The one lineage of all tokens: a token is larger than the floor (the server's time when the connection was made, in
/// microseconds), so tokens grow even if the server's data is lost.
pub(crate) const LINEAGE: Lineage = Lineage::new(0);

/// The keys that store the newest token, for the prefix of one client.
pub(crate) struct TokenCounter {
    prefix: String,
    /// The key of the counter that all slots share.
    common_key: String,
}

impl TokenCounter {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), common_key: counter_key(prefix, None) }
    }

    /// The key of the counter of this slot; `None`: of the counter that all slots share.
    pub(crate) fn key(&self, slot: Option<u16>) -> Cow<'_, str> {
        slot.map_or(Cow::Borrowed(&self.common_key), |slot| Cow::Owned(counter_key(&self.prefix, Some(slot))))
    }
}
