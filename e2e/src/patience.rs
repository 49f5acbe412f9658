//! How long a task waits for what it acquires.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use tokio::time::timeout;

use crate::{
    rng::Rng,
    task::{has_certain_releases, never_gives_up},
};

/// How long a task waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// The task does not wait.
    Try,
    /// The task waits up to this limit.
    Within(Duration),
    /// The task waits without a limit.
    Endless,
    /// The task drops the acquire after this time.
    Cancelled(Duration),
}

impl Patience {
    /// A random patience that is allowed for each of these locks.
    pub(crate) fn draw(rng: &mut Rng, locks: &[&str]) -> Self {
        match rng.below(100) {
            0..20 => Self::Try,
            20..60 if !locks.iter().any(|lock| never_gives_up(lock)) => Self::Within(rng.millis(20..1500)),
            60..85 => Self::Endless,
            _ if locks.iter().any(|lock| has_certain_releases(lock)) => Self::Endless,
            _ => Self::Cancelled(rng.millis(0..60)),
        }
    }

    /// The limit that the history records: 0 for a try, `None` for no limit.
    pub(crate) const fn limit(self) -> Option<u64> {
        match self {
            Self::Try => Some(0),
            Self::Within(limit) => Some(limit.as_nanos() as u64),
            Self::Endless | Self::Cancelled(_) => None,
        }
    }

    /// Whether the acquire may be dropped before it returns.
    pub(crate) const fn may_cancel(self) -> bool {
        matches!(self, Self::Cancelled(_))
    }

    /// Awaits the acquire, but drops it if this patience says so. Returns `None` if the acquire was dropped.
    pub(crate) async fn await_for<T>(self, acquire: impl Future<Output = T>) -> Option<T> {
        match self {
            Self::Cancelled(after) => cancelled(acquire, after).await,
            Self::Try | Self::Within(_) | Self::Endless => Some(acquire.await),
        }
    }
}

/// Awaits the acquire, but drops it if it has not returned within `after`; if `after` is zero, drops it after its first
/// poll. Returns `None` if the acquire was dropped.
async fn cancelled<T>(acquire: impl Future<Output = T>, after: Duration) -> Option<T> {
    let mut acquire = pin!(acquire);
    if after.is_zero() {
        return poll_fn(|cx| match acquire.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
    }
    timeout(after, acquire).await.ok()
}
