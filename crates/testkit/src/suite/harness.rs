//! What the suite needs from the tests of an engine.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine, Name};

use crate::rig::{AT_ONCE, PATIENCE};

/// Places in line end after a minute at the latest.
const AT_REST_LIMIT: Duration = Duration::from_secs(80);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The system under test. All futures run on the suite's own current-thread tokio runtime, with its timers and I/O.
pub trait Harness: Sync {
    /// A new client, independent of all others, of the same system.
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>>;

    /// Lets time pass for the system: moves a manual clock, or really waits, as by default.
    fn advance(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    /// Disturbs the system; `false`: cannot, and nothing happened.
    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool>;

    /// How many cases may run at once, which shortens a run where time really passes: each case has names of its own, but
    /// they share the clock, and what lets time pass for one must do no more for the others.
    fn at_once(&self) -> usize {
        AT_ONCE
    }

    /// How many claims wait on one name in the largest case. By default as many as one name meets in a flash sale.
    fn crowd(&self) -> usize {
        1_000
    }

    /// Whether the system can have a lock of this name. One that cannot refuses it.
    fn takes(&self, _name: &Name) -> bool {
        true
    }

    /// How long, in real time, news may take before they count as lost: not a measure of speed.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// What is left on the system (keys, entries, files that should be gone, ...), after everything that may lapse by
    /// itself has lapsed. Asked after each case, or after all that run at once, when every claim was released; must then be
    /// empty. Each thing is told by a text that contains the name that it belongs to.
    fn at_rest(&self) -> BoxFuture<'_, Vec<String>>;
}

/// What a harness may be asked to do to its system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disturbance {
    /// The system loses every lock, as a restart without durable storage does. Tokens must still grow.
    Forget,
    /// Every connection of every client is cut; the system keeps its locks.
    Cut,
}

/// What `look` finds left once places in line have had the time to end: for harnesses of servers, by [`Harness::at_rest`].
pub async fn left_at_rest(look: impl Fn() -> Vec<String>) -> Vec<String> {
    let limit = tokio::time::Instant::now() + AT_REST_LIMIT;
    loop {
        let left = look();
        if left.is_empty() || tokio::time::Instant::now() > limit {
            return left;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// The size of a crowd where each claim reads all others, so that a large one takes minutes: `few`, unless the variable
/// `LEASEHOLD_CROWD` says another, as at night.
#[must_use]
pub fn crowd_or(few: usize) -> usize {
    std::env::var("LEASEHOLD_CROWD").ok().and_then(|count| count.parse().ok()).unwrap_or(few)
}
