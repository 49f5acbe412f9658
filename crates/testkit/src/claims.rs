//! Claims for tests of engines.

use std::time::Duration;

use leasehold_core::{Claim, ClaimId, Mode, Name, Release};

/// An exclusive claim of `name` with a new id and the lease time `ttl`. The claim may queue.
///
/// # Panics
/// If `name` is not a valid name, or the operating system has no random numbers.
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

/// The release of a claim by its id, without a token. It ends the claim in either state, as a hold or as a waiter.
#[must_use]
pub fn release_of(claim: &Claim) -> [Release; 1] {
    [Release::of_unused(claim)]
}

/// A new random id.
pub(crate) fn fresh_id() -> ClaimId {
    let mut id = [0; 16];
    getrandom::fill(&mut id).expect("the operating system gives random numbers");
    ClaimId(id)
}
