//! The queue of one name: the waiting claims, and the silent ones, whose pushed grant lapsed.

use std::collections::VecDeque;

use super::{LockState, entry::Waiter};
use crate::{ClaimId, Instant};

/// The waiters of a name.
pub(super) struct WaitQueue<C> {
    /// In the order in which they will be granted.
    pub(super) waiting: VecDeque<Waiter<C>>,
    /// Claims whose pushed grant lapsed: out of the queue until their next request.
    pub(super) silent: Vec<Waiter<C>>,
}

impl<C> WaitQueue<C> {
    /// How many claims wait or are silent.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.silent.len()
    }

    /// Drops the entries whose lease has ended.
    pub(super) fn prune(&mut self, now: Instant) {
        self.waiting.retain(|waiter| waiter.expires > now);
        self.silent.retain(|waiter| waiter.expires > now);
    }

    /// The waiting claims, then the silent ones.
    pub(super) fn all(&self) -> impl Iterator<Item = &Waiter<C>> {
        self.waiting.iter().chain(&self.silent)
    }
}

impl<C> LockState<C> {
    /// The queue, created if there is none.
    pub(super) fn wait_queue_mut(&mut self) -> &mut WaitQueue<C> {
        self.wait_queue
            .get_or_insert_with(|| Box::new(WaitQueue { waiting: VecDeque::new(), silent: Vec::new() }))
    }

    /// How many claims are ahead of this one, if it is in the queue.
    pub(super) fn position(&self, id: ClaimId) -> Option<usize> {
        self.wait_queue.as_ref()?.waiting.iter().position(|waiter| waiter.id == id)
    }

    /// Whether no claim waits; there may be silent ones.
    pub(super) fn is_queue_empty(&self) -> bool {
        self.wait_queue.as_ref().is_none_or(|wait_queue| wait_queue.waiting.is_empty())
    }

    /// How many claims wait or are silent.
    pub(super) fn waiters(&self) -> usize {
        self.wait_queue.as_ref().map_or(0, |wait_queue| wait_queue.len())
    }

    /// Appends a claim to the queue.
    pub(super) fn enqueue(&mut self, waiter: Waiter<C>) {
        self.earliest_expiry = self.earliest_expiry.min(waiter.expires);
        self.wait_queue_mut().waiting.push_back(waiter);
    }

    /// Removes and returns the silent claim with this id, if there is one.
    pub(super) fn take_silent(&mut self, id: ClaimId) -> Option<Waiter<C>> {
        let silent = &mut self.wait_queue.as_mut()?.silent;
        let index = silent.iter().position(|waiter| waiter.id == id)?;
        Some(silent.swap_remove(index))
    }

    /// Removes a waiting or silent claim; false if it was neither.
    pub(super) fn remove_waiter(&mut self, id: ClaimId) -> bool {
        let Some(position) = self.position(id) else { return self.take_silent(id).is_some() };
        self.wait_queue_mut().waiting.remove(position).is_some()
    }
}
