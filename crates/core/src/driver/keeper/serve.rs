//! The main loop of the keeper: begins work, fires timers, receives notifications, sleeps.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{TimerAction, renew::renew_due};
use crate::{
    Answer, Claim, EngineError, Instant, Loss, Panicked, driver::keeper::Cleanup, driver::local::Control,
    driver::shared::Shared,
};

/// The keeper checks its timers at least this often: runtime timers stop while the machine is suspended.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// The most timers fired in one round, so that many timers do not delay work and notifications.
const TIMERS_AT_ONCE: usize = 4096;

/// A job that other threads leave to the keeper.
pub(crate) enum KeeperJob {
    /// Make a claim and drive it to its end. `first` is the first answer, from an engine that answers at once.
    Drive { claim: Claim, control: Arc<Control>, first: Option<(Instant, Result<Answer, EngineError>)> },
    /// Send a release.
    Release(Cleanup),
    /// Run this future.
    Spawn(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// Serves one `Locks` until it has no users and nothing is pending.
pub(crate) fn serve(shared: Arc<Shared>) -> impl Future<Output = ()> + Send + 'static {
    // Dropped also when this task is ended by a panic, or with its runtime, even before its first poll.
    let end_on_drop = EndOnDrop(shared);
    async move {
        if let Err(panicked) = end_on_drop.0.caught(serve_on(&end_on_drop.0)).await {
            end_on_drop.0.end_after_panic(&panicked);
        }
    }
}

/// The main loop.
async fn serve_on(shared: &Arc<Shared>) {
    loop {
        start_jobs(shared);
        fire_timers(shared);
        if shared.is_stopping() && shared.pending.is_zero() && shared.table.len() == 0 {
            return;
        }
        let until = shared.timers.sleep_until(shared.now().after(LONGEST_SLEEP));
        // In a fixed order, so that the simulation is repeatable. Nothing starves: after each branch, work and timers
        // are handled.
        tokio::select! {
            biased;
            batch = shared.engine.notifications() => shared.receive(batch),
            () = shared.wake.notified() => {}
            () = shared.sleep_until(until) => {}
        }
    }
}

/// Starts all queued jobs. The queued releases are sent in one batch, before any claim of the same queue.
fn start_jobs(shared: &Arc<Shared>) {
    let mut cleanups = Vec::new();
    let mut others = Vec::new();
    for work in shared.take_jobs() {
        match work {
            KeeperJob::Release(cleanup) => cleanups.push(cleanup),
            other => others.push(other),
        }
    }
    super::clean::send(shared, cleanups);
    for work in others {
        match work {
            KeeperJob::Drive { claim, control, first } => {
                shared.spawn(super::drive::drive(Arc::clone(shared), claim, control, first));
            }
            KeeperJob::Spawn(task) => shared.spawn(task),
            KeeperJob::Release(_) => {}
        }
    }
}

/// Runs the actions of the timers that are due.
fn fire_timers(shared: &Arc<Shared>) {
    let mut renewals = Vec::new();
    let due = shared.timers.take_due(shared.now(), TIMERS_AT_ONCE);
    for (key, action) in due {
        match action {
            TimerAction::Lease(name) => renewals.push((name, key)),
            TimerAction::MaxHold(due) => shared.end_max_hold(&due.0, due.1),
            TimerAction::Limit(due) => shared.limit_is_due(&due.0, due.1),
        }
    }
    renew_due(shared, renewals);
}

/// Ends everything when the serving task is gone.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    /// No task serves any more: waits end with an error, guards are notified, nothing new is started.
    fn drop(&mut self) {
        self.0.end_all();
    }
}

impl Shared {
    /// Ends everything after a task of the keeper panicked.
    pub(crate) fn end_after_panic(self: &Arc<Self>, panicked: &Panicked) {
        tracing::error!(engine = self.profile.engine, %panicked, "all holds are given up");
        self.end_all();
    }

    /// Ends all waits with an error, reports all holds lost, and drops the queued jobs.
    fn end_all(self: &Arc<Self>) {
        let undone = self.end_jobs();
        self.stop_waiting();
        self.lose_all(Loss::Closed);
        drop(undone);
    }

    /// Records that the engine answered: from now on requests wait until an outage ends.
    pub(crate) fn mark_reached(&self) {
        self.reached.store(true, Ordering::Relaxed);
        self.mark_responsive();
    }

    /// Records that the engine carried out a request.
    pub(crate) fn mark_responsive(&self) {
        self.unresponsive.store(false, Ordering::Relaxed);
    }

    /// Records that the engine did not answer a request before its caller gave up, or refused the pending work.
    pub(crate) fn mark_unresponsive(&self) {
        self.unresponsive.store(true, Ordering::Relaxed);
    }
}
