//! A sleep by the world's clock.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use leasehold_core::Instant;

use super::{Group, Scheduler, agenda::Key};

/// A future that resolves at a time of the world's clock. If its group is suspended before this time, the future
/// resolves later by the length of the suspension.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub(crate) struct Sleep {
    scheduler: Arc<Scheduler>,
    group: Group,
    /// When the sleep ends.
    at: Instant,
    /// The total time for which the group had been suspended when `at` was computed.
    suspended: Duration,
    /// The entry in the agenda that wakes the task.
    entry: Option<Key>,
}

impl Sleep {
    pub(super) fn new(scheduler: &Arc<Scheduler>, group: Group, at: Instant) -> Self {
        let suspended = scheduler.suspended(group);
        Self { scheduler: Arc::clone(scheduler), group, at, suspended, entry: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let suspended = self.scheduler.suspended(self.group);
        let more = suspended.saturating_sub(std::mem::replace(&mut self.suspended, suspended));
        self.at = self.at.after(more);
        let entry = self.entry.take();
        if self.scheduler.now() < self.at {
            self.entry = Some(self.scheduler.wake_at(self.at, cx.waker(), entry));
            return Poll::Pending;
        }
        if let Some(entry) = entry {
            self.scheduler.forget(entry);
        }
        Poll::Ready(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.scheduler.forget(entry);
        }
    }
}
