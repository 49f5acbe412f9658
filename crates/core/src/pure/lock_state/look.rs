//! Looking at a queue without changing it.

use std::time::Duration;

use super::{
    LockState,
    entry::{HoldState, Holder, Waiter},
};
use crate::{ClaimId, Hint, HolderView, Instant, Name, Previous, View, WaiterView};

/// What stands for the owner of a name that is kept taken by nobody.
pub const KEPT_OWNER: &str = "kept";

/// How many claims at the head of the line are told when a lease runs out: one asks, the others in case it is dead.
/// More would only be a herd.
pub const WATCHERS: usize = 3;

impl<C> LockState<C> {
    /// Nothing is left that a later claim would have to know: the queue may be dropped. Holds as of the last settle.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        let remembers = self.ended.how != Previous::Clean && now < self.ended.until;
        self.holders.is_empty() && self.line.is_none() && !remembers
    }

    /// True when somebody holds or waits, or the name is kept. Holds as of the last settle.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !self.holders.is_empty() || self.line.is_some()
    }

    /// The first instant at which an entry expires, unless renewed.
    #[must_use]
    pub fn next_expiry(&self) -> Instant {
        let held = self.holders.iter().map(|holder| holder.expires);
        let wanted = self.line.iter().flat_map(|line| line.all().map(|waiter| waiter.expires));
        held.chain(wanted).min().unwrap_or(Instant::NEVER)
    }

    /// The first in line, and where their news go: who has to know when the first hold is over.
    pub fn watchers(&self) -> impl Iterator<Item = (ClaimId, &C)> {
        let waiting = self.line.iter().flat_map(|line| &line.waiting);
        waiting.take(WATCHERS).map(|waiter| (waiter.id, &waiter.client))
    }

    /// Whether the name is kept taken by nobody. Holds as of the last settle.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.holders.iter().any(|holder| matches!(holder.state, HoldState::Kept))
    }

    /// The clients of all claims, as often as they have claims.
    pub fn clients(&self) -> impl Iterator<Item = &C> {
        let held = self.holders.iter().map(|holder| &holder.client);
        held.chain(self.line.iter().flat_map(|line| line.all().map(|waiter| &waiter.client)))
    }

    /// The name as operators see it.
    #[must_use]
    pub fn view(&self, name: &Name, key: &str, now: Instant) -> View {
        let mut view = View::free(name.clone(), key.to_owned());
        let live = self.holders.iter().filter(|holder| holder.expires > now);
        for holder in live {
            view.lineage = Some(holder.token.lineage);
            view.add_holder(holder.mode, holder_view(holder, now));
        }
        let waiting = self.line.iter().flat_map(|line| line.all()).filter(|waiter| waiter.expires > now);
        view.waiters = waiting.map(|waiter| waiter_view(waiter, now)).collect();
        view
    }

    /// What a claim in line is told.
    pub(super) fn hint(&self, place: usize, now: Instant) -> Hint {
        let ask_in = if place < WATCHERS { self.frees_in(now) } else { None };
        Hint { ask_in, ahead: u32::try_from(place).ok(), obstacle: None }
    }

    /// What a claim that may not wait is told.
    pub(super) fn hint_outside(&self, now: Instant) -> Hint {
        let ahead = self.line.as_ref().map_or(0, |line| line.waiting.len());
        Hint { ask_in: self.frees_in(now), ahead: u32::try_from(ahead).ok(), obstacle: None }
    }

    /// The time until the first holder lapses. Holds as of the last settle.
    #[must_use]
    pub fn frees_in(&self, now: Instant) -> Option<Duration> {
        let first = self.holders.iter().map(|holder| holder.expires).min()?;
        (first != Instant::NEVER).then(|| first.since(now))
    }
}

fn holder_view<C>(holder: &Holder<C>, now: Instant) -> HolderView {
    let owner = if matches!(holder.state, HoldState::Kept) { KEPT_OWNER } else { &holder.owner };
    HolderView {
        id: holder.id.to_string(),
        owner: owner.to_owned(),
        token: Some(holder.token.number),
        held: Some(now.since(holder.since)),
        remaining: (holder.expires != Instant::NEVER).then(|| holder.expires.since(now)),
        of_session: false,
        foreign: false,
    }
}

fn waiter_view<C>(waiter: &Waiter<C>, now: Instant) -> WaiterView {
    WaiterView {
        id: waiter.id.to_string(),
        owner: waiter.owner.as_ref().to_owned(),
        waiting: Some(now.since(waiter.since)),
    }
}
