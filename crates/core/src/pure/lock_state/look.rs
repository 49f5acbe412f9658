//! Read-only views of a lock state.

use std::time::Duration;

use super::{
    LockState,
    entry::{HoldState, Holder, Waiter},
};
use crate::{ClaimId, Hint, HolderView, Instant, Mode, Name, Previous, Token, View, WaiterView};

/// The owner shown for a name that stays taken without a holder.
pub const MIN_HOLD_OWNER: &str = "kept";

/// How many claims at the head of the queue get to know the time at which the first hold ends, so that they ask at that
/// time: one to be granted, the others in case the client of the first is gone. If more claims knew it, they would only
/// all ask at the same time.
pub const WATCHERS: usize = 3;

impl<C> LockState<C> {
    /// Whether nothing is left that a later claim would have to know, so that the lock state can be dropped. The answer
    /// is as of the last [`settle`](Self::settle).
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        let end = &self.last_end;
        let remembers_end = end.previous != Previous::Clean && now < end.remembered_until;
        self.holders.is_empty() && self.wait_queue.is_none() && !remembers_end
    }

    /// Whether the name has a holder, a waiter, or a minimum hold time. The answer is as of the last
    /// [`settle`](Self::settle).
    #[must_use]
    pub fn is_used(&self) -> bool {
        !self.holders.is_empty() || self.wait_queue.is_some()
    }

    /// Whether this claim holds the name exclusively, unbroken; with `token`, whether its hold has this first token.
    /// The answer is as of the last [`settle`](Self::settle).
    #[must_use]
    pub fn is_held_by(&self, id: ClaimId, token: Option<Token>) -> bool {
        let mut holders = self.holders.iter().filter(|holder| holder.is_of(id) && !holder.is_broken());
        // R28: a downgraded hold has its id and token, and writes no memos.
        holders
            .any(|holder| holder.mode == Mode::Exclusive && token.is_none_or(|token| holder.token == token))
    }

    /// The first instant at which an entry expires, unless renewed.
    #[must_use]
    pub fn next_expiry(&self) -> Instant {
        let hold_ends = self.holders.iter().map(|holder| holder.expires);
        let entry_ends =
            self.wait_queue.iter().flat_map(|wait_queue| wait_queue.all().map(|waiter| waiter.expires));
        hold_ends.chain(entry_ends).min().unwrap_or(Instant::NEVER)
    }

    /// The first claims of the queue, with their clients: they have to know the time at which the first hold ends.
    pub fn watchers(&self) -> impl Iterator<Item = (ClaimId, &C)> {
        let waiting = self.wait_queue.iter().flat_map(|wait_queue| &wait_queue.waiting);
        waiting.take(WATCHERS).map(|waiter| (waiter.id, &waiter.client))
    }

    /// Whether the name is blocked by a minimum hold time. The answer is as of the last [`settle`](Self::settle).
    #[must_use]
    pub fn is_in_min_hold(&self) -> bool {
        self.holders.iter().any(|holder| matches!(holder.state, HoldState::MinHold))
    }

    /// The clients of all claims, one for each claim: a client with two claims comes twice.
    pub fn clients(&self) -> impl Iterator<Item = &C> {
        let clients_of_holds = self.holders.iter().map(|holder| &holder.client);
        clients_of_holds.chain(
            self.wait_queue.iter().flat_map(|wait_queue| wait_queue.all().map(|waiter| &waiter.client)),
        )
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
        let waiting = self
            .wait_queue
            .iter()
            .flat_map(|wait_queue| wait_queue.all())
            .filter(|waiter| waiter.expires > now);
        view.waiters = waiting.map(|waiter| waiter_view(waiter, now)).collect();
        view
    }

    /// The hint for a claim in the queue.
    pub(super) fn hint(&self, position: usize, now: Instant) -> Hint {
        let ask_in = if position < WATCHERS { self.frees_in(now) } else { None };
        Hint { ask_in, ahead: u32::try_from(position).ok(), obstacle: None }
    }

    /// The hint for a claim that must not enter the queue.
    pub(super) fn hint_without_entry(&self, now: Instant) -> Hint {
        let ahead = self.wait_queue.as_ref().map_or(0, |wait_queue| wait_queue.waiting.len());
        Hint { ask_in: self.frees_in(now), ahead: u32::try_from(ahead).ok(), obstacle: None }
    }

    /// The time until the first holder lapses; `None` if no holder lapses. The answer is as of the last
    /// [`settle`](Self::settle).
    #[must_use]
    pub fn frees_in(&self, now: Instant) -> Option<Duration> {
        let first_end = self.holders.iter().map(|holder| holder.expires).min()?;
        (first_end != Instant::NEVER).then(|| first_end.since(now))
    }
}

fn holder_view<C>(holder: &Holder<C>, now: Instant) -> HolderView {
    let owner = if matches!(holder.state, HoldState::MinHold) { MIN_HOLD_OWNER } else { &holder.owner };
    let remaining = (holder.expires != Instant::NEVER).then(|| holder.expires.since(now));
    HolderView::new(holder.id.to_string(), owner.to_owned())
        .token(Some(holder.token.number))
        .times(Some(now.since(holder.since)), remaining)
        .broken(holder.is_broken())
}

fn waiter_view<C>(waiter: &Waiter<C>, now: Instant) -> WaiterView {
    let (id, owner) = (waiter.id.to_string(), waiter.owner.as_ref().to_owned());
    WaiterView::new(id, owner, Some(now.since(waiter.since))).of_mode(waiter.mode)
}
