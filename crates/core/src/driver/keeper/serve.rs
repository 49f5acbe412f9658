//! The main loop of the keeper: begins work, fires timers, receives notifications, sleeps.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{Due, renew::renew_due};
use crate::{
    Answer, Claim, EngineError, Instant, Loss, Panicked, driver::keeper::Cleanup, driver::local::Control,
    driver::shared::Shared,
};

/// The keeper checks its timers at least this often: runtime timers stop while the machine is suspended.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// The most timers fired in one round, so that many timers do not delay work and notifications.
const TIMERS_AT_ONCE: usize = 4096;

/// Work for the keeper.
pub(crate) enum Work {
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
    let orphan = Orphan(shared);
    async move {
        if let Err(panicked) = orphan.0.caught(serve_on(&orphan.0)).await {
            orphan.0.end_after_panic(&panicked);
        }
    }
}

async fn serve_on(shared: &Arc<Shared>) {
    loop {
        begin(shared);
        fire(shared);
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

/// Begins all pending work. All releases that are pending now leave in one batch, before any claim that came with them.
fn begin(shared: &Arc<Shared>) {
    let mut cleanups = Vec::new();
    let mut others = Vec::new();
    for work in shared.take_work() {
        match work {
            Work::Release(cleanup) => cleanups.push(cleanup),
            other => others.push(other),
        }
    }
    super::clean::send(shared, cleanups);
    for work in others {
        match work {
            Work::Drive { claim, control, first } => {
                shared.spawn(super::drive::drive(Arc::clone(shared), claim, control, first));
            }
            Work::Spawn(task) => shared.spawn(task),
            Work::Release(_) => {}
        }
    }
}

fn fire(shared: &Arc<Shared>) {
    let mut renewals = Vec::new();
    let due = shared.timers.take_due(shared.now(), TIMERS_AT_ONCE);
    for (key, due) in due {
        match due {
            Due::Lease(name) => renewals.push((name, key)),
            Due::MaxHold(due) => shared.end_max_hold(&due.0, due.1),
            Due::Limit(due) => shared.limit_is_due(&due.0, due.1),
        }
    }
    renew_due(shared, renewals);
}

/// Ends everything when the serving task is gone.
struct Orphan(Arc<Shared>);

impl Drop for Orphan {
    /// No task serves any more: waits end with an error, guards are notified, nothing new is started.
    fn drop(&mut self) {
        self.0.end_all();
    }
}

impl Shared {
    /// A task of the keeper panicked.
    pub(crate) fn end_after_panic(self: &Arc<Self>, panicked: &Panicked) {
        tracing::error!(engine = self.profile.engine, %panicked, "all holds are given up");
        self.end_all();
    }

    fn end_all(self: &Arc<Self>) {
        let undone = self.end_work();
        self.stop_waiting();
        self.lose_all(Loss::Closed);
        drop(undone);
    }

    /// The engine answered: from now on outages are waited out.
    pub(crate) fn note_contact(&self) {
        self.contacted.store(true, Ordering::Relaxed);
        self.contact_restored();
    }

    /// The engine carried out a request.
    pub(crate) fn contact_restored(&self) {
        self.silent.store(false, Ordering::Relaxed);
    }

    /// The engine did not answer a request before its caller gave up, or refused the pending work.
    pub(crate) fn fell_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }
}
