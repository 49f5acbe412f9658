//! A crate that locks, as the workload sees it.
//!
//! Each is set up as its documentation advises for one server, or for several independent ones, with our lease time; where something is left open, in its favour.
//! What it believes is what its API tells the user.

mod distributed_lock;
mod ours;
mod rslock;

use std::time::Duration;

use leasehold_e2e::Failure;
use tokio::time::{Instant, sleep};

pub(crate) use distributed_lock::Distributed;
pub(crate) use ours::Ours;
pub(crate) use rslock::Rslock;

/// The crates, as cargo calls them; each is also the role of its clients.
pub(crate) const NAMES: [&str; 3] = ["leasehold", "rslock", "distributed-lock"];

/// Those of them that lock on a majority of independent servers as well.
pub(crate) const OF_THREE: [&str; 2] = ["leasehold", "rslock"];

/// The pause between two tries of a crate that knows no waiting: some times what it takes to hand over, and far less than any
/// crate pauses by itself.
const RETRY: Duration = Duration::from_millis(5);

/// A crate that locks.
pub(crate) trait Peer: Send + Sync + Sized + 'static {
    /// What its user owns while it holds.
    type Hold: Send;

    /// A client of the server at `url`, or of the servers of a `redlock://` URL.
    fn connect(url: &str) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Waits for at most `limit`; `None`: it is held by another.
    fn acquire(
        &self,
        name: &str,
        limit: Duration,
    ) -> impl Future<Output = Result<Option<Self::Hold>, Failure>> + Send;

    /// For how long the hold may be believed, as the crate told; `None`: it tells no time.
    fn left(hold: &Self::Hold) -> Option<Duration>;

    /// Whether it says that the hold is still there.
    fn is_held(hold: &Self::Hold) -> bool;

    /// Lets it go.
    fn release(&self, hold: Self::Hold) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The version that was built.
pub(crate) fn version(name: &str) -> Option<&'static str> {
    // Its Redis part is a package by itself.
    let name = if name == "distributed-lock" { "distributed-lock-redis" } else { name };
    let entry = include_str!("../Cargo.lock").split_once(&format!("name = \"{name}\"\nversion = \""))?;
    entry.1.split('"').next()
}

/// Tries again until the limit is over. A try that was begun may end: no crate promises to clean up after one that is dropped.
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
        // Looked at last: who was stopped while asleep begins nothing after the limit.
        if Instant::now() >= end {
            // What failed may have been applied: then "taken" would say too much.
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
