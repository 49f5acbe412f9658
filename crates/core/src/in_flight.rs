//! Which requests of a client may still be on their way to its server: R9.
//!
//! On one connection the server applies requests in the order in which they left, so a release that follows all
//! requests of its claim there finds whatever they did. A claim whose request left on a connection that broke before
//! the answer came may still be applied later: its release leaves a tombstone.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{ClaimId, Instant, lock_state::Tombstones};

/// The most claims remembered as unsettled. Core releases most of them, which settles them; beyond this bound all
/// releases leave tombstones for a while.
const MAX_UNSETTLED: usize = 65_536;
/// What is older is forgotten when room is needed: no connection that broke then has anything left under way.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// The requests of one client that were not answered, by the connection on which they left.
#[derive(Debug, Default)]
pub struct InFlight(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Claims whose request was not answered, and the connection on which it left.
    unsettled: HashMap<ClaimId, (u64, Instant)>,
    /// Until then, some may not have found room above.
    overflown: Option<Instant>,
    /// Claims that were released here: no request of them is sent any more.
    released: Tombstones,
}

/// One request on its way. Dropped before it landed, its claim is unsettled.
#[derive(Debug)]
#[must_use = "a flight that is dropped did not land"]
pub struct InFlightRequest<'a> {
    in_flight: &'a InFlight,
    claim: ClaimId,
    connection: u64,
    left: Instant,
    landed: bool,
}

impl InFlight {
    /// A request of the claim leaves on a connection; connections are counted from the oldest.
    pub fn start(&self, claim: ClaimId, connection: u64, left: Instant) -> InFlightRequest<'_> {
        InFlightRequest { in_flight: self, claim, connection, left, landed: false }
    }

    /// Whether the claim was released: nothing of it is to be sent any more.
    pub fn is_released(&self, claim: ClaimId, now: Instant) -> bool {
        self.lock().released.contains(claim, now)
    }

    /// The claim is about to be released, for good until `until`; true if a request of it may still arrive on another
    /// connection than this, so that the release must leave a tombstone.
    pub fn release(&self, claim: ClaimId, connection: u64, now: Instant, until: Instant) -> bool {
        let mut inner = self.lock();
        inner.released.mark_dead(claim, now, until);
        inner.overflown.is_some_and(|until| now < until)
            || inner.unsettled.get(&claim).is_some_and(|&(left_on, _)| left_on != connection)
    }

    /// The release of the claim was answered: nothing of it is left.
    pub fn settle(&self, claim: ClaimId) {
        self.lock().unsettled.remove(&claim);
    }

    /// Whether a request of the claim was not answered, so that it may still arrive.
    pub fn is_unsettled(&self, claim: ClaimId, now: Instant) -> bool {
        let inner = self.lock();
        inner.overflown.is_some_and(|until| now < until) || inner.unsettled.contains_key(&claim)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlightRequest<'_> {
    /// The server answered.
    pub fn complete(mut self) {
        self.landed = true;
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        if self.landed {
            return;
        }
        let mut inner = self.in_flight.lock();
        if inner.unsettled.len() >= MAX_UNSETTLED {
            inner.unsettled.retain(|_, (_, left)| self.left.since(*left) < FORGOTTEN);
        }
        if inner.unsettled.len() >= MAX_UNSETTLED {
            inner.overflown = Some(self.left.after(FORGOTTEN));
        } else {
            // The oldest connection is the one that cannot be followed any more.
            inner.unsettled.entry(self.claim).or_insert((self.connection, self.left));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: ClaimId = ClaimId([7; 16]);
    const NOW: Instant = Instant::from_nanos(0);
    const LATER: Instant = Instant::from_nanos(9);

    #[test]
    fn only_a_request_lost_on_another_connection_can_arrive_after_the_release() {
        let in_flight = InFlight::default();
        in_flight.start(CLAIM, 1, NOW).complete();
        assert!(!in_flight.release(CLAIM, 2, NOW, LATER), "it was answered");
        drop(in_flight.start(CLAIM, 2, NOW));
        assert!(!in_flight.release(CLAIM, 2, NOW, LATER), "the release follows it");
        assert!(in_flight.release(CLAIM, 3, NOW, LATER));
        in_flight.start(CLAIM, 3, NOW).complete();
        assert!(in_flight.release(CLAIM, 3, NOW, LATER), "a later answer says nothing of the lost request");
        in_flight.settle(CLAIM);
        assert!(!in_flight.release(CLAIM, 3, NOW, LATER));
    }

    #[test]
    fn beyond_the_bound_every_release_is_careful() {
        let in_flight = InFlight::default();
        for number in 0..=MAX_UNSETTLED as u128 {
            drop(in_flight.start(ClaimId(number.to_be_bytes()), 1, NOW));
        }
        assert!(in_flight.release(CLAIM, 1, NOW, LATER));
    }
}
