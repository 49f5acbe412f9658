//! Re-entrancy by an explicit owner: all guards of an owner on one name share one hold.

use std::sync::Arc;

use super::{
    grant::{Delivery, Requester},
    queue::LocalQueue,
    state::{LocalHold, NameState},
};
use crate::{ClaimId, Error, Guard, Instant, Mode, Name, Owner, Previous, driver::shared::Shared};

impl Shared {
    /// Re-entrancy by an explicit owner: the same hold with the same token.
    pub(super) fn reenter(
        self: &Arc<Self>,
        name: &Name,
        hold: &mut LocalHold,
        requester: &Requester<'_>,
        now: Instant,
    ) -> Option<Result<Guard, Error>> {
        match (hold.terms.mode, requester.terms.mode) {
            (Mode::Shared, Mode::Exclusive) => Some(Err(waits_for_itself(name))),
            (Mode::Permits { .. }, _) => None,
            _ if hold.lease.deadline() <= now => None,
            _ => {
                let owner = requester.terms.owner.as_ref()?;
                let token = hold.guards.iter().find(|validity| validity.is_owned_by(owner))?.token();
                Some(Ok(self.new_guard(name, hold, requester, token, Previous::Clean, now)))
            }
        }
    }

    /// Gives the hold to the waiting requests of its owners, wherever in the local queue they are: a guard of the hold
    /// may be released only after the owner has what it waits for. A request that can never be granted before this
    /// release, because it wants a shared hold alone, is refused.
    pub(super) fn join_owners(
        self: &Arc<Self>,
        name: &Name,
        queue: &mut LocalQueue,
        hold: &mut LocalHold,
        deliveries: &mut Vec<Delivery>,
        now: Instant,
    ) {
        if queue.is_empty() || hold.guards.iter().all(|validity| validity.owner().is_none()) {
            return;
        }
        let token_of = |hold: &LocalHold, owner: &Owner| {
            hold.guards.iter().find(|validity| validity.is_owned_by(owner)).map(|validity| validity.token())
        };
        let joins = |mode| match hold.terms.mode {
            Mode::Exclusive => matches!(mode, Mode::Exclusive | Mode::Shared),
            Mode::Shared => mode == Mode::Shared,
            Mode::Permits { .. } => false,
        };
        let owners_waiters = queue.take_where(|waiter| {
            let owner = waiter.terms.owner.as_ref();
            joins(waiter.terms.mode) && owner.is_some_and(|owner| token_of(hold, owner).is_some())
        });
        if hold.terms.mode == Mode::Shared {
            let wait_for_themselves = queue.take_where(|waiter| {
                let owner = waiter.terms.owner.as_ref();
                waiter.terms.mode == Mode::Exclusive
                    && owner.is_some_and(|owner| token_of(hold, owner).is_some())
            });
            let refused = |waiter| Delivery::refused(name, waiter, waits_for_itself(name));
            deliveries.extend(wait_for_themselves.into_iter().map(refused));
        }
        for waiter in owners_waiters {
            if let Some(owner) = &waiter.terms.owner
                && let Some(token) = token_of(hold, owner)
            {
                deliveries.push(self.deliver_on(name, hold, waiter, token, Previous::Clean, true, now));
            }
        }
    }

    /// How many guards of this owner the hold has.
    pub(crate) fn entries(&self, name: &Name, id: ClaimId, owner: &Owner) -> usize {
        let mut shard = self.table.shard(name);
        let hold = shard.get_mut(name).and_then(|state| state.hold(id));
        hold.map_or(0, |hold| hold.guards.iter().filter(|validity| validity.is_owned_by(owner)).count())
    }
}

/// The error for an owner that wants a name alone and holds it shared.
fn waits_for_itself(name: &Name) -> Error {
    Error::invalid(format!(
        "lock {:?}: this owner holds it shared and would wait for itself: release the shared guard first",
        name.as_str()
    ))
}

/// The index of a valid hold that belongs to `owner`.
pub(super) fn hold_index_of_owner(state: &NameState, owner: &Owner, now: Instant) -> Option<usize> {
    let is_live = |hold: &LocalHold| !hold.is_ending && !hold.is_converting && hold.lease.lost().is_none();
    state.holds.iter().position(|hold| {
        is_live(hold)
            && hold.guards.iter().any(|validity| validity.is_owned_by(owner) && validity.loss(now).is_none())
    })
}
