//! What this client knows of the clock of one server.

use crate::lock_mutex;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Instant, ServerClock};

/// What is known of the server's clock, and whether the time in a pushed grant shows since when the claim holds.
#[derive(Default)]
pub(crate) struct ServerTime {
    /// The server's clock, by the answers so far.
    clock: Mutex<ServerClock>,
    /// The server's time when the connection was made, or when slots came to the server later, in microseconds.
    floor: AtomicU64,
    /// Whether pushed grants must be confirmed with the server before they count.
    must_confirm: AtomicBool,
}

impl ServerTime {
    /// Learns from an answer that came at `now` to a request sent at `sent`. If the clock stepped forward, returns the
    /// least size of the step.
    pub(crate) fn learn(&self, sent: Instant, now: Instant, server_micros: u64) -> Option<Duration> {
        lock_mutex(&self.clock).learn(sent, now, Duration::from_micros(server_micros))
    }

    /// Converts the time of a pushed grant, which is by the server's clock, into a time of our clock that is certainly
    /// not after the grant. `None` if the grant must be confirmed with the server before it counts.
    pub(crate) fn granted_since(&self, granted_at: Duration) -> Option<Instant> {
        let must_confirm = self.must_confirm.load(Ordering::Relaxed);
        if must_confirm { None } else { lock_mutex(&self.clock).not_after(granted_at) }
    }

    /// From now on every pushed grant must be confirmed with the server before it counts.
    pub(crate) fn confirm_grants(&self) {
        self.must_confirm.store(true, Ordering::Relaxed);
    }

    /// The floor of the token counter: a counter that is not above it may have lost tokens.
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Relaxed)
    }

    /// Sets the floor: a connection was made when the server's clock was at `floor`.
    pub(crate) fn set_floor(&self, floor: u64) {
        self.floor.store(floor, Ordering::Relaxed);
    }

    /// Raises the floor: slots came to this server when its clock was at `floor`.
    pub(crate) fn raise_floor(&self, floor: u64) {
        self.floor.fetch_max(floor, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_pushed_grant_is_dated_by_the_newest_answer() {
        let time = ServerTime::default();
        // Since when a claim holds whose grant was at 5 s by the server's clock.
        let since = || time.granted_since(Duration::from_secs(5));
        assert_eq!(since(), None, "without an answer the grant must be confirmed");
        // The server's clock was at 4.9 s when ours was at 100 ms. It reached 5 s later, but our clock at that moment
        // is unknown.
        assert_eq!(time.learn(at(100), at(101), 4_900_000), None);
        assert_eq!(since(), Some(at(100)));
        // The server's clock was at 5.3 s when ours was at 500 ms: so ours was at 200 ms or later when the server's was
        // at 5 s.
        assert_eq!(time.learn(at(500), at(501), 5_300_000), None);
        assert_eq!(since(), Some(at(200)));
        time.confirm_grants();
        assert_eq!(since(), None);
    }

    #[test]
    fn the_floor_is_set_by_a_connection_and_raised_by_slots() {
        let time = ServerTime::default();
        time.set_floor(7);
        time.raise_floor(5);
        assert_eq!(time.floor(), 7);
        time.raise_floor(9);
        assert_eq!(time.floor(), 9);
        time.set_floor(3);
        assert_eq!(time.floor(), 3);
    }
}
