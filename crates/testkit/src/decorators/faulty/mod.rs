//! Loses, repeats, delays and reorders what passes, by a script or by a seed.

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

/// How many requests may be held back: a test that holds more has forgotten to deliver them.
const MAX_HELD: usize = 100_000;

/// An engine whose wire has faults. Clone the `Arc` to keep control of it.
///
/// Held-back requests arrive when [`deliver_late`](Self::deliver_late) is called, in seeded mode after some more calls. A test
/// must deliver within the engine's `request_life`, or it asks for more than the contract promises.
pub struct Faulty {
    inner: Arc<dyn Engine>,
    profile: Profile,
    state: Mutex<FaultyState>,
    /// Rings when there is news to deliver that the engine below knows nothing of.
    wake: Notify,
}

/// A request with the call before which it arrives, in seeded mode, and the time until which it can: no network keeps a
/// request for longer than the engine's `request_life`.
type Late = (Request, Option<u64>, Instant);

#[derive(Default)]
struct FaultyState {
    plan: Plan,
    /// The session is gone: every call fails until it is healed.
    gone: bool,
    /// Sent by callers that have given up already.
    late: Vec<Late>,
    /// Waiting for another call of their verb to overtake them.
    overtaken: Vec<(Request, oneshot::Sender<Reply>)>,
    /// Claims that may stand on the engine: what a lost session takes with it.
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
    /// A wire without faults until [`next`](Self::next) plans some.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>) -> Self {
        Self::with_plan(inner, Plan::default())
    }

    /// A wire with faults drawn from `seed` at these rates; planned ones still come first.
    #[must_use]
    pub fn seeded(inner: Arc<dyn Engine>, seed: u64, rates: Rates) -> Self {
        Self::with_plan(inner, Plan::seeded(seed, rates))
    }

    fn with_plan(inner: Arc<dyn Engine>, plan: Plan) -> Self {
        let profile = super::waiting_profile(&*inner);
        let state = Mutex::new(FaultyState { plan, ..FaultyState::default() });
        Self { inner, profile, state, wake: Notify::new() }
    }

    /// The next call of `verb` meets `fault`; several stand in line.
    pub fn next(&self, verb: Verb, fault: Fault) {
        self.state().plan.push(verb, fault);
    }

    /// How many planned faults were not met yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.state().plan.pending()
    }

    /// Planned faults that were not met yet are not met any more.
    pub fn forgive(&self) {
        self.state().plan.forgive();
    }

    /// From now on no faults are drawn; planned ones stay.
    pub fn calm(&self) {
        self.state().plan.calm();
    }

    /// Delivers everything that was held back as late, in the order in which it was sent. The answers reach nobody.
    pub async fn deliver_late(&self) {
        let late = mem::take(&mut self.state().late);
        self.arrive(late).await;
        let mut state = self.state();
        let notification = mem::take(&mut state.notification.late);
        state.notification.ready.extend(notification);
        drop(state);
        self.wake.notify_one();
    }

    /// The session is gone: its claims are lost on the engine, and every call fails until [`heal`](Self::heal).
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
                keep: None,
            })
            .collect();
        self.inner.release(&orders).await;
    }

    /// There is a new session: calls pass again, and news begin with [`Notification::AskAll`], as after a reconnect.
    pub fn heal(&self) {
        let mut state = self.state();
        state.gone = false;
        state.notification =
            NotificationState { ready: vec![Notification::AskAll], ..NotificationState::default() };
        drop(state);
        self.wake.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, FaultyState> {
        // No code under this lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
