//! The main loop of the keeper: starts jobs, fires timers, receives notifications, sleeps.

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

/// The keeper checks its timers at least this often, because the runtime's own timers stop during a suspension of the
/// machine.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// The most timers fired in one round, so that many timers do not delay jobs and notifications.
const TIMERS_AT_ONCE: usize = 4096;

/// A job that other threads leave to the keeper.
pub(crate) enum KeeperJob {
    /// Make a claim and drive it to its end. `first_answer` is the answer to its first request, from an engine that
    /// answers at once.
    Drive {
        claim: Claim,
        control: Arc<Control>,
        first_answer: Option<(Instant, Result<Answer, EngineError>)>,
    },
    /// Send a release.
    Release(Cleanup),
    /// Run this future.
    Spawn(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// Serves one `Locks` until all its handles are dropped and nothing is pending.
pub(crate) fn serve(shared: Arc<Shared>) -> impl Future<Output = ()> + Send + 'static {
    // This value is dropped also when this task is ended by a panic, or with its runtime, even before its first poll.
    let end_on_drop = EndOnDrop(shared);
    async move {
        if let Err(panicked) = end_on_drop.0.catch_panic(main_loop(&end_on_drop.0)).await {
            end_on_drop.0.end_after_panic(&panicked);
        }
    }
}

/// The main loop.
async fn main_loop(shared: &Arc<Shared>) {
    loop {
        start_jobs(shared);
        fire_timers(shared);
        if shared.is_stopping() && shared.pending.is_zero() && shared.table.len() == 0 {
            return;
        }
        let until = shared.timers.sleep_until(shared.now().after(LONGEST_SLEEP));
        // The branches are tried in a fixed order, so that the simulation is repeatable. Nothing starves: after each
        // branch, jobs and timers are handled.
        tokio::select! {
            biased;
            notifications = shared.engine.notifications() => shared.receive(notifications),
            () = shared.wake.notified() => {}
            () = shared.sleep_until(until) => {}
        }
    }
}

/// Starts all queued jobs. The queued releases are sent in one batch, before any claim of the same queue.
fn start_jobs(shared: &Arc<Shared>) {
    let mut cleanups = Vec::new();
    let mut other_jobs = Vec::new();
    for job in shared.take_jobs() {
        match job {
            KeeperJob::Release(cleanup) => cleanups.push(cleanup),
            other => other_jobs.push(other),
        }
    }
    super::clean::start_cleanups(shared, cleanups);
    for job in other_jobs {
        match job {
            KeeperJob::Drive { claim, control, first_answer } => {
                shared.spawn(super::drive::drive(Arc::clone(shared), claim, control, first_answer));
            }
            KeeperJob::Spawn(task) => shared.spawn(task),
            KeeperJob::Release(_) => {}
        }
    }
}

/// Runs the actions of the timers that are due.
fn fire_timers(shared: &Arc<Shared>) {
    let mut renewals = Vec::new();
    let due_timers = shared.timers.take_due(shared.now(), TIMERS_AT_ONCE);
    for (key, action) in due_timers {
        match action {
            TimerAction::Lease(name) => renewals.push((name, key)),
            TimerAction::MaxHold(max_hold) => {
                let (name, id) = *max_hold;
                shared.end_max_hold(&name, id);
            }
            TimerAction::Limit(limit) => {
                let (name, ticket) = *limit;
                shared.handle_limit_timer(&name, ticket);
            }
        }
    }
    renew_due(shared, renewals);
}

/// Ends all waits and holds of a `Locks` when the task that serves it is gone.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    /// No task serves any more: waits end with an error, guards are notified, nothing new is started.
    fn drop(&mut self) {
        self.0.end_all();
    }
}

impl Shared {
    /// Ends all waits and holds after a task of the keeper panicked.
    pub(crate) fn end_after_panic(self: &Arc<Self>, panicked: &Panicked) {
        tracing::error!(engine = self.profile.engine, %panicked, "all holds are given up");
        self.end_all();
    }

    /// Ends all waits with an error, reports all holds lost, and drops the queued jobs.
    fn end_all(self: &Arc<Self>) {
        let unstarted_jobs = self.end_jobs();
        self.stop_waiting();
        self.lose_all(Loss::Closed);
        drop(unstarted_jobs);
    }

    /// Records that the engine answered: from now on requests wait out an outage instead of failing.
    pub(crate) fn set_reached(&self) {
        self.reached.store(true, Ordering::Relaxed);
        self.set_responsive();
    }

    /// Records that the engine carried out a request.
    pub(crate) fn set_responsive(&self) {
        self.unresponsive.store(false, Ordering::Relaxed);
    }

    /// Records that the engine did not answer a request before its caller gave up, or did not carry the request out.
    pub(crate) fn set_unresponsive(&self) {
        self.unresponsive.store(true, Ordering::Relaxed);
    }
}
