//! Fences, the other half of a lock: the protected resource stores the largest token that it was shown, and refuses
//! smaller ones, so that an earlier holder can no longer change the resource.

use leasehold_core::{Error, ErrorKind, Token};

/// The error for a holder whose token the resource refuses, because it has seen the larger token.
pub(crate) fn overtaken(resource: &str, token: Token, larger: u64) -> Error {
    Error::new(
        ErrorKind::Fenced,
        format!(
            "{resource:?} refused token {token}: it has seen {larger}, so this hold was overtaken; nothing was written"
        ),
    )
}
