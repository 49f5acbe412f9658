//! The requests of a client that may still be in flight to its server: R9.
//!
//! On one connection the server applies requests in the order in which they were sent. So a release that follows all
//! requests of its claim on the same connection finds everything that they created. A claim whose request was sent on a
//! connection that broke before the answer came may still be applied later: its release leaves a tombstone.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{ClaimId, Instant, pure::lock_state::Tombstones};

/// The most claims remembered as unsettled: those with an unanswered request that may still arrive. A release settles a
/// claim. When the limit is exceeded, every release leaves a tombstone for the next hour, also that of a settled claim.
const MAX_UNSETTLED: usize = 65_536;
/// When there are too many unsettled claims, those older than this are forgotten: their connection broke so long ago
/// that none of its requests can still be in flight.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// The unanswered requests of one client, by the connection on which they were sent.
#[derive(Debug, Default)]
pub struct InFlight(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The claims with an unanswered request: the connection on which it was sent, and when.
    unsettled: HashMap<ClaimId, (u64, Instant)>,
    /// Until when unsettled claims may be missing in the map above, because it was full.
    incomplete_until: Option<Instant>,
    /// Claims that this client has released: no request of them is sent any more.
    released: Tombstones,
}

/// One request in flight. If it is dropped before its answer, its claim is unsettled.
#[derive(Debug)]
#[must_use = "a request that is dropped counts as unanswered"]
pub struct InFlightRequest<'a> {
    in_flight: &'a InFlight,
    claim: ClaimId,
    connection: u64,
    sent_at: Instant,
    answered: bool,
}

impl InFlight {
    /// Records that a request of the claim is sent on a connection. Connections are numbered in the order in which they
    /// were made.
    pub fn start(&self, claim: ClaimId, connection: u64, sent_at: Instant) -> InFlightRequest<'_> {
        InFlightRequest { in_flight: self, claim, connection, sent_at, answered: false }
    }

    /// Whether the claim was released: no request of it is to be sent any more.
    pub fn is_released(&self, claim: ClaimId, now: Instant) -> bool {
        self.lock().released.contains(claim, now)
    }

    /// Remembers the claim, which is about to be released, as released until `remember_until`. True if a request of the
    /// claim may still arrive on another connection, so that the release has to leave a tombstone.
    pub fn release(&self, claim: ClaimId, connection: u64, now: Instant, remember_until: Instant) -> bool {
        let mut inner = self.lock();
        inner.released.add(claim, now, remember_until);
        inner.incomplete_until.is_some_and(|until| now < until)
            || inner.unsettled.get(&claim).is_some_and(|&(sent_on, _)| sent_on != connection)
    }

    /// Forgets the unanswered requests of a claim whose release was answered: nothing of the claim is left.
    pub fn settle(&self, claim: ClaimId) {
        self.lock().unsettled.remove(&claim);
    }

    /// Whether the claim has an unanswered request, which may still arrive. Also true while such requests may be
    /// missing in the map.
    pub fn is_unsettled(&self, claim: ClaimId, now: Instant) -> bool {
        let inner = self.lock();
        inner.incomplete_until.is_some_and(|until| now < until) || inner.unsettled.contains_key(&claim)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlightRequest<'_> {
    /// Records that the request was answered.
    pub fn complete(mut self) {
        self.answered = true;
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut inner = self.in_flight.lock();
        if inner.unsettled.len() >= MAX_UNSETTLED {
            inner.unsettled.retain(|_, (_, sent_at)| self.sent_at.since(*sent_at) < FORGET_AFTER);
        }
        if inner.unsettled.len() >= MAX_UNSETTLED {
            inner.incomplete_until = Some(self.sent_at.after(FORGET_AFTER));
        } else {
            // Keeps the oldest connection: a release on the current connection cannot follow a request that was sent on
            // an older one.
            inner.unsettled.entry(self.claim).or_insert((self.connection, self.sent_at));
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
    fn only_a_request_lost_on_another_connection_can_be_late() {
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
    fn beyond_the_bound_every_release_leaves_a_tombstone() {
        let in_flight = InFlight::default();
        for number in 0..=MAX_UNSETTLED as u128 {
            drop(in_flight.start(ClaimId(number.to_be_bytes()), 1, NOW));
        }
        assert!(in_flight.release(CLAIM, 1, NOW, LATER));
    }
}
