//! The interface of the workload to a lock crate.
//!
//! Each crate is set up as its documentation advises for one server, or for several independent ones, with our lease
//! time; where the documentation leaves something open, the choice favours the crate. Clients know only what the API
//! of the crate reports.

mod distributed_lock;
mod ours;
mod rslock;

use std::time::Duration;

use leasehold_e2e::Failure;
use tokio::time::{Instant, sleep};

pub(crate) use distributed_lock::Distributed;
pub(crate) use ours::Ours;
pub(crate) use rslock::Rslock;

/// The names of the crates in cargo. Each is also the role of its clients.
pub(crate) const NAMES: [&str; 3] = ["leasehold", "rslock", "distributed-lock"];

/// The crates that also lock on a majority of independent servers.
pub(crate) const OF_THREE: [&str; 2] = ["leasehold", "rslock"];

/// The pause between two tries of a crate that cannot wait: several times the duration of a hand-over, and far less
/// than the pauses of any crate.
const RETRY: Duration = Duration::from_millis(5);

/// A crate that locks.
pub(crate) trait Peer: Send + Sync + Sized + 'static {
    /// The value that its user owns while it holds.
    type Hold: Send;

    /// A client of the server at `url`, or of the servers of a `redlock://` URL.
    fn connect(url: &str) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Waits for at most `limit`. `None`: another client holds the lock.
    fn acquire(
        &self,
        name: &str,
        limit: Duration,
    ) -> impl Future<Output = Result<Option<Self::Hold>, Failure>> + Send;

    /// For how long the hold is valid, as the crate reports. `None`: the crate reports no time.
    fn left(hold: &Self::Hold) -> Option<Duration>;

    /// Whether the crate reports that the hold still exists.
    fn is_held(hold: &Self::Hold) -> bool;

    /// Releases the hold.
    fn release(&self, hold: Self::Hold) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The version that was built.
pub(crate) fn version(name: &str) -> Option<&'static str> {
    // Its Redis part is a separate package.
    let name = if name == "distributed-lock" { "distributed-lock-redis" } else { name };
    let entry = include_str!("../Cargo.lock").split_once(&format!("name = \"{name}\"\nversion = \""))?;
    entry.1.split('"').next()
}

/// Repeats tries until the limit is over. A try that has started may complete, because no crate promises to clean up
/// after a dropped one.
async fn retried<H, F>(limit: Duration, mut once: impl FnMut() -> F) -> Result<Option<H>, Failure>
where
    F: Future<Output = Result<Option<H>, Failure>>,
{
    let end = Instant::now() + limit;
    let mut failed = None;
    loop {
        match once().await {
            Ok(Some(hold)) => return Ok(Some(hold)),
            Ok(None) => {}
            Err(failure) => failed = Some(failure),
        }
        sleep(RETRY).await;
        // The clock is read last: a process that was stopped during the pause must not begin a try after the limit.
        if Instant::now() >= end {
            // A failed try may have been applied, so "taken" would say too much.
            return failed.map_or(Ok(None), Err);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_known() {
        for name in NAMES {
            let version = version(name).unwrap_or_default();
            assert!(version.split('.').count() == 3, "{name}: {version:?}");
        }
        assert_eq!(version("no-such-crate"), None);
    }
}
