//! The true state of the server at one instant, which only a model can know: which attempts hold and which wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use leasehold_core::{ClaimId, Instant, View};
use leasehold_testkit::history::{AttemptId, Held, What};

use crate::{journal::Journal, network::Network, plan::Plan};

/// Observes the server, and matches its claims with attempts.
pub(crate) struct Truths {
    journal: Arc<Journal>,
    network: Arc<Network>,
    plan: Arc<Plan>,
    inner: Mutex<TruthState>,
}

/// The state of the observer.
#[derive(Default)]
struct TruthState {
    /// The claim by which each granted attempt was granted.
    claims: BTreeMap<AttemptId, String>,
    /// The attempts that began.
    begun: BTreeSet<AttemptId>,
    /// The attempts that are over: their release was called, or they ended without a grant.
    over: BTreeSet<AttemptId>,
    /// The attempts that had begun when the server lost data, or when its clock was set forward. When such an attempt
    /// is over, the server may still have its claim, or may have it again because of a late request.
    may_return: BTreeSet<AttemptId>,
    /// For each claim, the attempts that hold by it. Several requests of one process may share a claim, unless each
    /// request carries the id of its attempt.
    holders: BTreeMap<String, Vec<AttemptId>>,
}

impl Truths {
    /// An observer without observations.
    #[must_use]
    pub(crate) fn new(journal: Arc<Journal>, network: Arc<Network>, plan: Arc<Plan>) -> Self {
        Self { journal, network, plan, inner: Mutex::default() }
    }

    /// Records that an attempt was granted by a claim. Returns the earliest and the latest time from which the lease of
    /// the claim can count, see [`Network::lease_start`].
    pub(crate) fn granted(&self, attempt: AttemptId, claim: ClaimId) -> Option<(Instant, Instant)> {
        let mut inner = self.lock();
        inner.claims.insert(attempt, claim.to_string());
        inner.holders.entry(claim.to_string()).or_default().push(attempt);
        self.network.lease_start(claim)
    }

    /// Records that an attempt begins.
    pub(crate) fn begun(&self, attempt: AttemptId) {
        self.lock().begun.insert(attempt);
    }

    /// Records that the release of an attempt is about to be called, or that the attempt has ended without a grant.
    /// Returns whether other attempts still hold by the same claim.
    pub(crate) fn over(&self, attempt: AttemptId) -> bool {
        let mut inner = self.lock();
        inner.over.insert(attempt);
        let Some(claim) = inner.claims.get(&attempt).cloned() else { return false };
        let Some(holders) = inner.holders.get_mut(&claim) else { return false };
        holders.retain(|holder| *holder != attempt);
        !holders.is_empty()
    }

    /// Records that the server loses data, or that its clock is set forward.
    pub(crate) fn forget(&self) {
        let mut inner = self.lock();
        inner.may_return = inner.begun.clone();
    }

    /// A token of the current holder of a lock.
    pub(crate) fn holder(&self, name: &str) -> Option<u64> {
        let now = self.journal.scheduler().now();
        let views = self.network.server(|machine| machine.views(now));
        views.iter().find(|view| view.name.as_str() == name)?.holders.first()?.token
    }

    /// Observes every lock, and records its state now.
    pub(crate) fn observe(&self) {
        let now = self.journal.scheduler().now();
        let views = self.network.server(|machine| machine.views(now));
        for lock in &self.plan.locks {
            let view = views.iter().find(|view| view.name.as_str() == lock.name);
            let (mut holders, mut waiters) = (Vec::new(), Vec::new());
            if let Some(view) = view {
                self.read(view, &mut holders, &mut waiters);
            }
            self.journal.note(lock.name, What::Truth { until: now.as_nanos(), holders, waiters });
        }
    }

    /// Adds the attempts that hold and that wait according to a view.
    fn read(&self, view: &View, holders: &mut Vec<Held>, waiters: &mut Vec<AttemptId>) {
        let (inner, now) = (self.lock(), self.journal.scheduler().now());
        for holder in &view.holders {
            let expires = holder.remaining.map(|left| now.after(left).as_nanos());
            let mut attempts = inner.holders.get(&holder.id).cloned().unwrap_or_default();
            // This attempt is not in `holders`: it has not got its answer yet, or has called its release already.
            let attempt_named = self.attempt_named(&inner, &holder.owner, &holder.id);
            attempts.extend(attempt_named.filter(|attempt| !attempts.contains(attempt)));
            // As long as the user has not got the grant, the user has no deadline to compare with the expiry on the
            // server.
            let expires = |attempt: &AttemptId| expires.filter(|_| inner.claims.contains_key(attempt));
            let held = |attempt| Held { attempt, token: holder.token, expires: expires(&attempt) };
            holders.extend(attempts.into_iter().map(held));
        }
        let waiting =
            view.waiters.iter().filter_map(|waiter| self.attempt_named(&inner, &waiter.owner, &waiter.id));
        waiters.extend(waiting);
    }

    /// The attempt that a claim belongs to, if claims carry attempt ids. `None` if they carry none, if the attempt was
    /// granted by another claim, or if the attempt is over: then the claim is possibly its released one, which the
    /// server restored together with older data.
    fn attempt_named(&self, inner: &TruthState, owner: &str, claim: &str) -> Option<AttemptId> {
        let attempt = owner.parse().ok().filter(|_| self.plan.named)?;
        let is_its_claim = inner.claims.get(&attempt).is_none_or(|granted| granted == claim);
        let is_back = inner.may_return.contains(&attempt) && inner.over.contains(&attempt);
        (is_its_claim && !is_back).then_some(attempt)
    }

    fn lock(&self) -> MutexGuard<'_, TruthState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
