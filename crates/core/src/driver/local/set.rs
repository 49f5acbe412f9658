//! What the local state says about a set: whether its names are free of this process, whether waiting for them can
//! deadlock, and whether the set had to wait for a name.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{RequestSpec, reenter::hold_index_of_owner};
use crate::{Error, Guard, Instant, Mode, Name, Owner, driver::shared::Shared, driver::validity::Validity};

/// Whether a set had to wait for another holder or request of one of its names, for the events of the set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contention(Arc<AtomicBool>);

impl Contention {
    /// Records whether a request for the name had to wait.
    pub(crate) fn note(&self, contended: bool) {
        self.0.fetch_or(contended, Ordering::Relaxed);
    }

    pub(crate) fn had_to_wait(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Whether this process holds the name by the claim with this id, or waits for it by this claim.
    pub(crate) fn has_claim(&self, name: &Name, id: &str) -> bool {
        let shard = self.table.shard(name);
        shard.get(name).is_some_and(|state| state.claims().any(|claim| claim.to_string() == id))
    }

    /// Whether this process neither holds any of these names nor waits for one: then the engine alone decides.
    pub(crate) fn knows_nothing_of(&self, specs: &[RequestSpec]) -> bool {
        specs.iter().all(|spec| self.table.shard(&spec.name).get(&spec.name).is_none())
    }

    /// The error for a request that would wait for names, in the order of `specs`, while its owner holds a name that
    /// comes later in this order. Two such requests can wait for each other for ever.
    pub(crate) fn order_error(&self, specs: &[RequestSpec]) -> Option<Error> {
        let owner = specs.first()?.terms.owner.as_ref()?;
        let held = self.names_of(owner, self.now());
        // A lock is entered again at once; permits are always taken anew.
        let waits_for = |spec: &&RequestSpec| {
            matches!(spec.terms.mode, Mode::Permits { .. }) || !held.contains(&spec.name)
        };
        let wanted = &specs.iter().find(waits_for)?.name;
        let later = held.iter().filter(|name| *name >= wanted).max()?;
        let (engine, wanted, later) = (self.profile.engine, wanted.as_str(), later.as_str());
        Some(Error::invalid(format!(
            "{engine} lock {wanted:?}: this owner holds {later:?}, and waiting under it could deadlock: acquire all \
             names by one request, or in byte order"
        )))
    }

    /// The names that this owner holds.
    fn names_of(&self, owner: &Owner, now: Instant) -> Vec<Name> {
        let mut names = Vec::new();
        for shard in self.table.shards() {
            let is_owned = |state| hold_index_of_owner(state, owner, now).is_some();
            names.extend(shard.iter().filter(|(_, state)| is_owned(state)).map(|(name, _)| name.clone()));
        }
        names
    }

    /// Limits the use of a guard, from now on, to `max_hold`. A hold that is lost stays so.
    pub(crate) fn limit_guard(self: &Arc<Self>, guard: &mut Guard, max_hold: Duration, now: Instant) {
        let mut shard = self.table.shard(&guard.name);
        let hold = shard.get_mut(&guard.name).and_then(|state| state.hold(guard.id));
        let Some(hold) = hold.filter(|hold| hold.lease.lost().is_none()) else { return };
        let end = now.after(max_hold);
        let owner = guard.validity.owner().cloned();
        let limited = Arc::new(Validity::new(&hold.lease, end, (guard.token(), guard.mode), owner));
        if let Some(validity) = hold.guards.iter_mut().find(|validity| Arc::ptr_eq(validity, &guard.validity))
        {
            *validity = Arc::clone(&limited);
            guard.validity = limited;
            guard.max_hold = Some(Box::new(self.limit_timer(&guard.name, guard.id, max_hold, now)));
        }
    }
}
