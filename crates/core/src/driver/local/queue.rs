//! The local queue: the requests of this process that wait for one name.

use std::collections::BTreeMap;

use super::state::{Ticket, Waiter};

/// The waiting requests, in the order of arrival. The queue is allocated for the first request and freed after the
/// last: most names never have a queue.
#[derive(Default)]
pub(crate) struct LocalQueue(Option<Box<Waiters>>);

type Waiters = BTreeMap<Ticket, Box<Waiter>>;

impl LocalQueue {
    /// Adds a request at the end of the queue.
    pub(super) fn push(&mut self, ticket: Ticket, waiter: Waiter) {
        self.0.get_or_insert_default().insert(ticket, Box::new(waiter));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |waiters| waiters.len())
    }

    /// Whether requests wait behind the head.
    pub(super) fn has_followers(&self) -> bool {
        self.0.as_ref().is_some_and(|waiters| waiters.len() > 1)
    }

    pub(super) fn head(&self) -> Option<&Waiter> {
        self.0.as_ref()?.first_key_value().map(|(_, waiter)| &**waiter)
    }

    pub(super) fn head_mut(&mut self) -> Option<&mut Waiter> {
        Some(&mut **self.0.as_mut()?.first_entry()?.into_mut())
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        self.0.as_mut()?.get_mut(&ticket).map(|waiter| &mut **waiter)
    }

    /// Removes and returns the head of the queue, if `fits` accepts it.
    pub(super) fn take_head_if(&mut self, fits: impl FnOnce(&Waiter) -> bool) -> Option<Waiter> {
        let head = self.0.as_mut()?.first_entry().filter(|head| fits(head.get()))?;
        let waiter = head.remove();
        self.free_if_empty();
        Some(*waiter)
    }

    /// Removes and returns a request.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.0.as_mut()?.remove(&ticket)?;
        self.free_if_empty();
        Some(*waiter)
    }

    /// Removes and returns all requests that `fits` accepts, in their order.
    pub(super) fn take_where(&mut self, fits: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let waiters = self.0.iter().flat_map(|waiters| waiters.iter());
        let fitting = waiters.filter(|(_, waiter)| fits(waiter));
        let tickets: Vec<Ticket> = fitting.map(|(&ticket, _)| ticket).collect();
        tickets.into_iter().filter_map(|ticket| self.remove(ticket)).collect()
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        self.0.take().into_iter().flat_map(|waiters| waiters.into_values()).map(|waiter| *waiter)
    }

    /// Frees an empty queue.
    fn free_if_empty(&mut self) {
        self.0.take_if(|waiters| waiters.is_empty());
    }
}
