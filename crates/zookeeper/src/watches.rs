//! The watches of one connection. A watch ends with its connection or after its first event.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use leasehold_core::ClaimId;

use crate::{
    claims::{Own, State},
    lock_of,
    session::Facts,
    wire::{Event, EventKind},
};

/// The claim that a watched node concerns, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// The claim waits until the node is deleted or changes.
    Blocker(ClaimId),
    /// The node is the claim's own.
    Own(ClaimId),
}

/// Receives the events of watched nodes.
pub(crate) trait WatchHandler: Send + Sync {
    fn on_event(&self, target: Target, path: &str, kind: EventKind);

    /// The session has a new connection: events since the last one broke were missed.
    fn reconnected(&self, session: &Arc<Facts>);
}

#[derive(Clone)]
pub(crate) struct Watches {
    handler: Weak<dyn WatchHandler>,
    known: Arc<Mutex<HashMap<String, Vec<Target>>>>,
}

/// A watch that a request in flight sets. If the request fails or is dropped, nothing is watched.
#[must_use]
pub(crate) struct PendingWatch<'a> {
    watches: &'a Watches,
    path: &'a str,
    target: Target,
    confirmed: bool,
}

impl<'a> PendingWatch<'a> {
    /// To be created before the request leaves.
    pub(crate) fn new(watches: &'a Watches, path: &'a str, target: Target) -> Self {
        watches.add(path, target);
        Self { watches, path, target, confirmed: false }
    }

    /// The server has set the watch.
    pub(crate) fn confirm(mut self) {
        self.confirmed = true;
    }
}

impl Drop for PendingWatch<'_> {
    fn drop(&mut self) {
        if !self.confirmed {
            self.watches.stop_watching(self.path, self.target);
        }
    }
}

impl Watches {
    pub(crate) fn new(handler: Weak<dyn WatchHandler>) -> Self {
        Self { handler, known: Arc::default() }
    }

    fn add(&self, path: &str, target: Target) {
        let mut known = lock_of(&self.known);
        let targets = known.entry(path.to_owned()).or_default();
        if !targets.contains(&target) {
            targets.push(target);
        }
    }

    /// The claim needs the watch no more, or the server did not set it. An event that still arrives is ignored.
    pub(crate) fn stop_watching(&self, path: &str, target: Target) {
        let mut known = lock_of(&self.known);
        if let Some(targets) = known.get_mut(path) {
            targets.retain(|one| *one != target);
            if targets.is_empty() {
                known.remove(path);
            }
        }
    }

    /// The same for all watches of a claim.
    pub(crate) fn stop_watching_all(&self, id: ClaimId, state: &State) {
        if let State::Waiting { before, .. } = state
            && let Some(path) = before.path()
        {
            self.stop_watching(path, Target::Blocker(id));
        }
        for path in state.own().map(Own::paths).unwrap_or_default() {
            self.stop_watching(&path, Target::Own(id));
        }
    }

    pub(crate) fn has(&self, path: &str, target: Target) -> bool {
        lock_of(&self.known).get(path).is_some_and(|targets| targets.contains(&target))
    }

    pub(crate) fn on_event(&self, event: &Event) {
        let Some(handler) = self.handler.upgrade() else { return };
        let targets = lock_of(&self.known).remove(&event.path).unwrap_or_default();
        for target in targets {
            handler.on_event(target, &event.path, event.kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Received(Mutex<Vec<Target>>);

    impl WatchHandler for Received {
        fn on_event(&self, target: Target, _: &str, _: EventKind) {
            lock_of(&self.0).push(target);
        }

        fn reconnected(&self, _: &Arc<Facts>) {}
    }

    #[test]
    fn each_target_is_notified_once() {
        let received: Arc<Received> = Arc::default();
        let watches = Watches::new(Arc::downgrade(&received) as _);
        let [one, two] = [Target::Blocker(ClaimId([1; 16])), Target::Own(ClaimId([2; 16]))];
        watches.add("/a", one);
        watches.add("/a", one);
        watches.add("/a", two);
        watches.add("/b", one);
        watches.stop_watching("/b", one);
        for path in ["/a", "/a", "/b"] {
            watches.on_event(&Event { kind: EventKind::Deleted, path: path.to_owned() });
        }
        assert_eq!(*lock_of(&received.0), [one, two]);
        assert!(lock_of(&watches.known).is_empty());
    }
}
