//! The truth, as only a model can tell it: who holds and who waits on the server, at one instant.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use leasehold_core::{ClaimId, Instant, View};
use leasehold_testkit::history::{AttemptId, Held, What};

use crate::{journal::Journal, network::Network, plan::Plan};

/// Looks at the server.
pub(crate) struct Truths {
    journal: Arc<Journal>,
    network: Arc<Network>,
    plan: Arc<Plan>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The claim by which an attempt was granted.
    claims: BTreeMap<AttemptId, String>,
    /// Those that began, and those of them that are over: released, or ended without a grant.
    begun: BTreeSet<AttemptId>,
    over: BTreeSet<AttemptId>,
    /// Those that had begun when the server forgot, or when its clock ran ahead of late requests: when they are over, it may
    /// know them again.
    back: BTreeSet<AttemptId>,
    /// Those that hold by a claim. Requests of one process share claims when nobody says whose they are.
    holders: BTreeMap<String, Vec<AttemptId>>,
}

impl Truths {
    /// Knows nothing yet.
    #[must_use]
    pub(crate) fn new(journal: Arc<Journal>, network: Arc<Network>, plan: Arc<Plan>) -> Self {
        Self { journal, network, plan, inner: Mutex::default() }
    }

    /// An attempt was granted by a claim; when the claim asked for it.
    pub(crate) fn granted(&self, attempt: AttemptId, claim: ClaimId) -> Option<(Instant, Instant)> {
        let mut inner = self.lock();
        inner.claims.insert(attempt, claim.to_string());
        inner.holders.entry(claim.to_string()).or_default().push(attempt);
        self.network.asked(claim)
    }

    /// An attempt begins.
    pub(crate) fn begun(&self, attempt: AttemptId) {
        self.lock().begun.insert(attempt);
    }

    /// It is about to be released, or ended without a grant; whether others hold by the same claim still.
    pub(crate) fn over(&self, attempt: AttemptId) -> bool {
        let mut inner = self.lock();
        inner.over.insert(attempt);
        let Some(claim) = inner.claims.get(&attempt).cloned() else { return false };
        let Some(holders) = inner.holders.get_mut(&claim) else { return false };
        holders.retain(|holder| *holder != attempt);
        !holders.is_empty()
    }

    /// The server forgets, or its clock runs ahead.
    pub(crate) fn forget(&self) {
        let mut inner = self.lock();
        inner.back = inner.begun.clone();
    }

    /// A token of whoever holds a lock now.
    pub(crate) fn holder(&self, name: &str) -> Option<u64> {
        let now = self.journal.scheduler().now();
        let views = self.network.server(|machine| machine.look(now));
        views.iter().find(|view| view.name.as_str() == name)?.holders.first()?.token
    }

    /// Looks at every lock and writes down what is so now.
    pub(crate) fn look(&self) {
        let now = self.journal.scheduler().now();
        let views = self.network.server(|machine| machine.look(now));
        for lock in &self.plan.locks {
            let view = views.iter().find(|view| view.name.as_str() == lock.name);
            let (mut holders, mut waiters) = (Vec::new(), Vec::new());
            if let Some(view) = view {
                self.read(view, &mut holders, &mut waiters);
            }
            self.journal.note(lock.name, What::Truth { until: now.as_nanos(), holders, waiters });
        }
    }

    fn read(&self, view: &View, holders: &mut Vec<Held>, waiters: &mut Vec<AttemptId>) {
        let (inner, now) = (self.lock(), self.journal.scheduler().now());
        for holder in &view.holders {
            let expires = holder.remaining.map(|left| now.after(left).as_nanos());
            let mut attempts = inner.holders.get(&holder.id).cloned().unwrap_or_default();
            // Who was not told yet, or has let go.
            let named = self.named(&inner, &holder.owner, &holder.id);
            attempts.extend(named.filter(|attempt| !attempts.contains(attempt)));
            // What its user was not told yet is no deadline of a user's.
            let expires = |attempt: &AttemptId| expires.filter(|_| inner.claims.contains_key(attempt));
            let held = |attempt| Held { attempt, token: holder.token, expires: expires(&attempt) };
            holders.extend(attempts.into_iter().map(held));
        }
        let waiting = view.waiters.iter().filter_map(|waiter| self.named(&inner, &waiter.owner, &waiter.id));
        waiters.extend(waiting);
    }

    /// Whose claim it is, where claims say so; unless it is an earlier one, left behind by an attempt that was granted later
    /// by another.
    fn named(&self, inner: &Inner, owner: &str, claim: &str) -> Option<AttemptId> {
        let attempt = owner.parse().ok().filter(|_| self.plan.named)?;
        let is_its_claim = inner.claims.get(&attempt).is_none_or(|granted| granted == claim);
        let is_back = inner.back.contains(&attempt) && inner.over.contains(&attempt);
        (is_its_claim && !is_back).then_some(attempt)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
