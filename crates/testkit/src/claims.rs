//! Claims for tests of engines.

use std::time::Duration;

use leasehold_core::{Claim, ClaimId, Mode, Name};

/// An exclusive claim of `name` with a new id, which may queue and lasts for `ttl`.
///
/// # Panics
/// When that is no name, or the operating system has no random numbers.
#[must_use]
pub fn exclusive(name: &str, ttl: Duration) -> Claim {
    Claim {
        id: fresh_id(),
        name: Name::new(name).expect("a test knows what a name is"),
        mode: Mode::Exclusive,
        ttl,
        claim_time: ttl,
        may_queue: true,
        tokens: 1,
        owner: "test".into(),
        stops_on_term: false,
    }
}

/// An id that no other claim has.
pub(crate) fn fresh_id() -> ClaimId {
    let mut id = [0; 16];
    getrandom::fill(&mut id).expect("the operating system gives random numbers");
    ClaimId(id)
}
