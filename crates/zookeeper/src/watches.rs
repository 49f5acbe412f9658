//! The watches of one connection. A watch ends with its connection or after its first event.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use leasehold_core::ClaimId;

use crate::{
    claims::{OwnNodes, State},
    lock_mutex,
    session::SessionState,
    wire::{Event, EventKind},
};

/// What a watched node is: to a claim, or to a follower of a memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WatchTarget {
    /// The claim waits until this node is deleted or changes.
    Blocker(ClaimId),
    /// The node is the claim's own.
    Own(ClaimId),
    /// The node is a memo that this client follows by this number, or the node of the hold that wrote the memo.
    Memo(u64),
}

/// Receives the events of watched nodes.
pub(crate) trait WatchHandler: Send + Sync {
    /// Handles an event of the node at `path`, which is watched for `target`.
    fn on_event(&self, target: WatchTarget, path: &str, kind: EventKind);

    /// Handles the change of a node, whatever it is watched for.
    fn on_change(&self, path: &str);

    /// Handles the end of the session's connection, before another connection is made.
    fn reconnecting(&self, session: &Arc<SessionState>);

    /// Handles a new connection of the session: events since the last connection broke were missed.
    fn reconnected(&self, session: &Arc<SessionState>);
}

/// The watches of one connection, shared by its clones.
#[derive(Clone)]
pub(crate) struct Watches {
    handler: Weak<dyn WatchHandler>,
    /// The watched paths, and what each is watched for.
    targets_by_path: Arc<Mutex<HashMap<String, Vec<WatchTarget>>>>,
}

/// A watch that a request in flight sets. If the request fails or is dropped, nothing is watched.
#[must_use]
pub(crate) struct PendingWatch<'a> {
    watches: &'a Watches,
    path: &'a str,
    target: WatchTarget,
    confirmed: bool,
}

impl<'a> PendingWatch<'a> {
    /// Adds the watch. Has to be called before the request is sent.
    pub(crate) fn new(watches: &'a Watches, path: &'a str, target: WatchTarget) -> Self {
        watches.add(path, target);
        Self { watches, path, target, confirmed: false }
    }

    /// Keeps the watch, because the server has set it.
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
        Self { handler, targets_by_path: Arc::default() }
    }

    /// Adds a watch, unless it exists.
    fn add(&self, path: &str, target: WatchTarget) {
        let mut targets_by_path = lock_mutex(&self.targets_by_path);
        let targets = targets_by_path.entry(path.to_owned()).or_default();
        if !targets.contains(&target) {
            targets.push(target);
        }
    }

    /// Removes a watch that the claim no longer needs, or that the server did not set. An event that still arrives is
    /// ignored.
    pub(crate) fn stop_watching(&self, path: &str, target: WatchTarget) {
        let mut targets_by_path = lock_mutex(&self.targets_by_path);
        if let Some(targets) = targets_by_path.get_mut(path) {
            targets.retain(|other| *other != target);
            if targets.is_empty() {
                targets_by_path.remove(path);
            }
        }
    }

    /// Removes all watches of a claim in this state.
    pub(crate) fn stop_watching_all(&self, id: ClaimId, state: &State) {
        if let State::Waiting { blocker, .. } = state
            && let Some(path) = blocker.path()
        {
            self.stop_watching(path, WatchTarget::Blocker(id));
        }
        for path in state.own().map(OwnNodes::paths).unwrap_or_default() {
            self.stop_watching(&path, WatchTarget::Own(id));
        }
    }

    /// Whether the path is watched for this target.
    pub(crate) fn has(&self, path: &str, target: WatchTarget) -> bool {
        lock_mutex(&self.targets_by_path).get(path).is_some_and(|targets| targets.contains(&target))
    }

    /// Passes an event to the handler, once for each target. The watch of the path ends.
    pub(crate) fn on_event(&self, event: &Event) {
        let Some(handler) = self.handler.upgrade() else { return };
        handler.on_change(&event.path);
        let targets = lock_mutex(&self.targets_by_path).remove(&event.path).unwrap_or_default();
        for target in targets {
            handler.on_event(target, &event.path, event.kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Received(Mutex<Vec<WatchTarget>>);

    impl WatchHandler for Received {
        fn on_event(&self, target: WatchTarget, _: &str, _: EventKind) {
            lock_mutex(&self.0).push(target);
        }

        fn on_change(&self, _: &str) {}

        fn reconnecting(&self, _: &Arc<SessionState>) {}

        fn reconnected(&self, _: &Arc<SessionState>) {}
    }

    #[test]
    fn each_target_is_notified_once() {
        let received: Arc<Received> = Arc::default();
        let watches = Watches::new(Arc::downgrade(&received) as _);
        let [one, two] = [WatchTarget::Blocker(ClaimId([1; 16])), WatchTarget::Own(ClaimId([2; 16]))];
        watches.add("/a", one);
        watches.add("/a", one);
        watches.add("/a", two);
        watches.add("/b", one);
        watches.stop_watching("/b", one);
        for path in ["/a", "/a", "/b"] {
            watches.on_event(&Event { kind: EventKind::Deleted, path: path.to_owned() });
        }
        assert_eq!(*lock_mutex(&received.0), [one, two]);
        assert!(lock_mutex(&watches.targets_by_path).is_empty());
    }
}
