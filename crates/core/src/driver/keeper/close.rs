//! Closing a `Locks`: waits end, and guards get time to be dropped.

use std::{sync::Arc, time::Duration};

use crate::{Error, ErrorKind, Loss, driver::shared::Shared};

/// How often `close` checks whether any hold or pending work is left. Polling is enough, because nothing but `close`
/// waits for the end of the last of them.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Waits, on the keeper, until no guard is left and nothing is pending, for at most `limit`; then reports the remaining
/// holds lost. Returns the number of these holds.
pub(crate) async fn close(shared: &Arc<Shared>, limit: Duration) -> usize {
    if !shared.is_served() {
        return 0;
    }
    let (tx, rx) = tokio::sync::oneshot::channel();
    let until = shared.now().after(limit);
    let task_shared = Arc::clone(shared);
    shared.queue_job(super::KeeperJob::Spawn(Box::pin(async move {
        while task_shared.now() < until && !(task_shared.table.len() == 0 && task_shared.pending.is_zero()) {
            task_shared.keeper.sleep(CHECK_INTERVAL).await;
        }
        let _ = tx.send(task_shared.lose_all(Loss::Closed));
    })));
    rx.await.unwrap_or_else(|_| shared.lose_all(Loss::Closed))
}

impl Shared {
    /// Ends all waits with an error and closes the `Locks` to new requests. Claims in flight are undone by their
    /// drivers.
    pub(crate) fn stop_waiting(self: &Arc<Self>) {
        self.set_closed();
        self.followers.hint_all();
        let mut waiters = Vec::new();
        for mut shard in self.table.shards() {
            for (name, state) in shard.iter_mut() {
                if let Some(claim) = state.claim.take() {
                    claim.control.cancel();
                }
                waiters.extend(state.queue.take_all().map(|waiter| (name.clone(), waiter)));
            }
            shard.retain(|_, state| !state.is_idle());
        }
        for (name, waiter) in waiters {
            let message = format!(
                "the wait for {:?} ended: its Locks was closed, or its keeper is gone",
                name.as_str()
            );
            self.fail_request(&name, waiter, Error::new(ErrorKind::Closed, message));
        }
    }

    /// Reports to every guard that its hold is lost; returns the number of holds.
    pub(crate) fn lose_all(&self, loss: Loss) -> usize {
        let (mut lost_holds, mut reports) = (0, Vec::new());
        for mut shard in self.table.shards() {
            for (name, state) in shard.iter_mut() {
                for hold in &mut state.holds {
                    reports.push((name.clone(), hold.mark_lost(loss)));
                    lost_holds += 1;
                }
            }
        }
        for (name, guards) in reports {
            self.observer.lost(&name, &guards, loss, None);
        }
        lost_holds
    }
}
