//! What the suite needs from the tests of an engine.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine, MAX_NAME_BYTES, Name};

use crate::rig::{AT_ONCE, PATIENCE};

/// How long to wait until nothing is left on the system. The last queue entries end after a minute. A client of
/// ZooKeeper that could not delete an ended memo on a busy machine tries again after a minute.
const AT_REST_LIMIT: Duration = Duration::from_secs(150);
/// The interval between two checks of what is left.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The system under test. All futures run on the suite's own current-thread tokio runtime, with its timers and I/O.
pub trait Harness: Sync {
    /// A new client, independent of all others, of the same system.
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>>;

    /// Lets time pass for the system: moves a manual clock, or really waits (the default).
    fn advance(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    /// Disturbs the system. `false`: the harness cannot produce this disturbance, and nothing happened.
    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool>;

    /// How many cases may run in parallel. Parallel cases shorten a run if time really passes. Each case uses its own
    /// names, but all cases share the clock: when time passes for one case, this must have no other effect on the other
    /// cases.
    fn parallel_cases(&self) -> usize {
        AT_ONCE
    }

    /// How many claims wait on one name in the largest case. The default is the load on one name in a flash sale.
    fn max_waiters(&self) -> usize {
        1_000
    }

    /// The longest name that a client accepts, in bytes. A prefix that is stored before each name makes it shorter.
    fn longest_name(&self) -> usize {
        MAX_NAME_BYTES
    }

    /// Whether the client of the next waiter grants a released name, a little after the release. By default the release
    /// itself grants, and all clients see the next holder at once.
    fn grants_after_releases(&self) -> bool {
        false
    }

    /// Whether the system can store a lock of this name. If it cannot, the engine refuses the name.
    fn accepts(&self, _name: &Name) -> bool {
        true
    }

    /// What the system stores of a hold, for those who look at it.
    fn stored(&self) -> Stored {
        Stored::Everything
    }

    /// How long, in real time, a notification may take before it counts as lost. It is so long that only a lost
    /// notification exceeds it.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// What is left on the system (keys, entries, files, ...) after everything that can lapse has lapsed. The suite
    /// calls this function after each case, or after all parallel cases. At that time every claim has been released, so
    /// nothing may be left. Each item is a text that contains the name that the item belongs to.
    fn leftovers(&self) -> BoxFuture<'_, Vec<String>>;
}

/// What a system stores of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stored {
    /// The name, the claim id, the token and the label of the owner.
    Everything,
    /// The claim id and the token; the name only as a hash, and no label.
    HashedNames,
    /// Only that the name is held.
    NamesOnly,
}

/// A disturbance of the system by the harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disturbance {
    /// The system loses every lock, as a restart without durable storage does. Tokens must still grow.
    Forget,
    /// Every connection of every client is cut; the system keeps its locks.
    Cut,
    /// The answers on all current connections of clients are held from now on; the requests arrive. Connections that
    /// are made later have their answers. [`Cut`](Self::Cut) follows, by which the held answers are lost.
    HoldAnswers,
}

/// Calls `look` until nothing is left, or until all queue entries have had time to end. Returns what is left then.
/// Harnesses with a server call it in [`Harness::leftovers`].
pub async fn wait_for_no_leftovers(look: impl Fn() -> Vec<String>) -> Vec<String> {
    let limit = tokio::time::Instant::now() + AT_REST_LIMIT;
    loop {
        let left = look();
        if left.is_empty() || tokio::time::Instant::now() > limit {
            return left;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// The number of waiters in the largest case for an engine where each claim reads all other claims, so that a large
/// number would take minutes. Returns the value of the variable `LEASEHOLD_CROWD`, which nightly runs set; otherwise
/// `few`.
#[must_use]
pub fn max_waiters_or(few: usize) -> usize {
    std::env::var("LEASEHOLD_CROWD").ok().and_then(|count| count.parse().ok()).unwrap_or(few)
}
