//! Loses, duplicates, delays and reorders calls, by a script or by a seed.

mod engine;
mod notifications;
mod plan;
mod wire;

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use leasehold_core::{ClaimId, Engine, Mode, Name, Notification, Previous, Profile, Release};
use tokio::sync::{Notify, oneshot};

use super::Verb;

pub use plan::{Fault, Rates};

use plan::Plan;
use wire::{Reply, Request};

/// How many requests may be held back. A test that holds back more forgot to deliver them.
const MAX_HELD: usize = 100_000;

/// An engine behind a faulty network. A test keeps a clone of the `Arc` to control the network.
///
/// Late requests arrive when [`deliver_late`](Self::deliver_late) is called; with a seed, they arrive before one of the
/// next calls. A test must deliver them within the engine's `request_life`, because an engine need not handle requests
/// that arrive later.
pub struct Faulty {
    inner: Arc<dyn Engine>,
    profile: Profile,
    state: Mutex<FaultyState>,
    /// Notified when the decorator itself has a notification to deliver.
    wake: Notify,
}

/// A late request, the number of the call before which it arrives (with a seed), and the time after which it is
/// dropped: no network delays a request for longer than the engine's `request_life`.
type Late = (Request, Option<u64>, Instant);

#[derive(Default)]
struct FaultyState {
    plan: Plan,
    /// Whether the session is lost. Every call then fails until `heal`.
    gone: bool,
    /// Requests whose callers got "unknown" already.
    late: Vec<Late>,
    /// Requests that wait until another call of their verb overtakes them.
    overtaken: Vec<(Request, oneshot::Sender<Reply>)>,
    /// Claims that may exist on the engine. The loss of the session ends them.
    live: HashMap<ClaimId, (Name, Mode)>,
    notification: NotificationState,
}

#[derive(Default)]
struct NotificationState {
    ready: Vec<Notification>,
    late: Vec<Notification>,
    overtaken: Vec<Notification>,
}

impl Faulty {
    /// A network without faults until [`next`](Self::next) plans some.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>) -> Self {
        Self::with_plan(inner, Plan::default())
    }

    /// A network with faults drawn from `seed` at these rates. If a call has a planned fault, no fault is drawn for it.
    #[must_use]
    pub fn seeded(inner: Arc<dyn Engine>, seed: u64, rates: Rates) -> Self {
        Self::with_plan(inner, Plan::seeded(seed, rates))
    }

    fn with_plan(inner: Arc<dyn Engine>, plan: Plan) -> Self {
        let profile = super::waiting_profile(&*inner);
        let state = Mutex::new(FaultyState { plan, ..FaultyState::default() });
        Self { inner, profile, state, wake: Notify::new() }
    }

    /// Plans `fault` for the next call of `verb`. If several faults are planned for a verb, its calls meet them one
    /// after the other, in the order of planning.
    pub fn next(&self, verb: Verb, fault: Fault) {
        self.state().plan.push(verb, fault);
    }

    /// The number of planned faults that did not happen yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.state().plan.pending()
    }

    /// Removes all planned faults that did not happen yet.
    pub fn clear_planned(&self) {
        self.state().plan.clear_planned();
    }

    /// Draws no more faults. Planned faults stay.
    pub fn stop_random_faults(&self) {
        self.state().plan.stop_random_faults();
    }

    /// Delivers all late requests and notifications, in the order in which they were sent. No caller gets the answers.
    pub async fn deliver_late(&self) {
        let late = mem::take(&mut self.state().late);
        self.arrive(late).await;
        let mut state = self.state();
        let notification = mem::take(&mut state.notification.late);
        state.notification.ready.extend(notification);
        drop(state);
        self.wake.notify_one();
    }

    /// Ends the session: its claims end on the engine, and every call fails until [`heal`](Self::heal).
    pub async fn lose_session(&self) {
        let live = {
            let mut state = self.state();
            state.gone = true;
            mem::take(&mut state.live)
        };
        let orders: Vec<Release> = live
            .into_iter()
            .map(|(id, (name, mode))| Release {
                id,
                name,
                mode,
                token: None,
                ended: Previous::Abandoned,
                min_hold: None,
            })
            .collect();
        self.inner.release(&orders).await;
    }

    /// Starts a new session: calls pass again, and the first notification is [`Notification::AskAll`], as after a
    /// reconnect.
    pub fn heal(&self) {
        let mut state = self.state();
        state.gone = false;
        state.notification =
            NotificationState { ready: vec![Notification::AskAll], ..NotificationState::default() };
        drop(state);
        self.wake.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, FaultyState> {
        // No code under this lock can panic in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
