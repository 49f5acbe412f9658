//! Fences, the other half of a lock: the protected resource stores the largest token, so that a holder that was
//! overtaken changes nothing.

use leasehold_core::{Error, ErrorKind, Token};

/// The error for a holder whose token the resource refuses.
pub(crate) fn overtaken(resource: &str, token: Token, larger: u64) -> Error {
    Error::new(
        ErrorKind::Fenced,
        format!(
            "{resource:?} refused token {token}: it has seen {larger}, so this hold was overtaken; nothing was written"
        ),
    )
}
