//! What is watched over one connection. A watch ends with its connection, and when it has told something.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use leasehold_core::ClaimId;

use crate::{
    claims::{Own, State},
    lock_of,
    session::Facts,
    wire::{Event, Happened},
};

/// Whom a watched node concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// The claim waits for its end, or for it to change.
    Blocker(ClaimId),
    /// It is the claim's own.
    Own(ClaimId),
}

/// Hears what happened to nodes that are watched.
pub(crate) trait WatchHandler: Send + Sync {
    fn happened(&self, target: Target, path: &str, happened: Happened);

    /// A connection of this session was made again: what happened meanwhile was not told.
    fn connected_again(&self, session: &Arc<Facts>);
}

#[derive(Clone)]
pub(crate) struct Watches {
    hears: Weak<dyn WatchHandler>,
    known: Arc<Mutex<HashMap<String, Vec<Target>>>>,
}

/// What is to be watched by a request that is under way. If that is given up, nothing is.
#[must_use]
pub(crate) struct Expecting<'a> {
    watches: &'a Watches,
    path: &'a str,
    target: Target,
    kept: bool,
}

impl<'a> Expecting<'a> {
    /// To be made before the request leaves.
    pub(crate) fn new(watches: &'a Watches, path: &'a str, target: Target) -> Self {
        watches.expect(path, target);
        Self { watches, path, target, kept: false }
    }

    /// The server watches it.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Expecting<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.watches.leave(self.path, self.target);
        }
    }
}

impl Watches {
    pub(crate) fn new(hears: Weak<dyn WatchHandler>) -> Self {
        Self { hears, known: Arc::default() }
    }

    fn expect(&self, path: &str, target: Target) {
        let mut known = lock_of(&self.known);
        let targets = known.entry(path.to_owned()).or_default();
        if !targets.contains(&target) {
            targets.push(target);
        }
    }

    /// It is of no interest any more, or the server does not watch it. What it tells is left unheard.
    pub(crate) fn leave(&self, path: &str, target: Target) {
        let mut known = lock_of(&self.known);
        if let Some(targets) = known.get_mut(path) {
            targets.retain(|one| *one != target);
            if targets.is_empty() {
                known.remove(path);
            }
        }
    }

    /// The same for all that is watched for a claim.
    pub(crate) fn leave_all(&self, id: ClaimId, place: &State) {
        if let State::Waiting { before, .. } = place
            && let Some(path) = before.path()
        {
            self.leave(path, Target::Blocker(id));
        }
        for path in place.own().map(Own::paths).unwrap_or_default() {
            self.leave(&path, Target::Own(id));
        }
    }

    pub(crate) fn has(&self, path: &str, target: Target) -> bool {
        lock_of(&self.known).get(path).is_some_and(|targets| targets.contains(&target))
    }

    pub(crate) fn happened(&self, event: &Event) {
        let Some(hears) = self.hears.upgrade() else { return };
        let targets = lock_of(&self.known).remove(&event.path).unwrap_or_default();
        for target in targets {
            hears.happened(target, &event.path, event.happened);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<Target>>);

    impl WatchHandler for Heard {
        fn happened(&self, target: Target, _: &str, _: Happened) {
            lock_of(&self.0).push(target);
        }

        fn connected_again(&self, _: &Arc<Facts>) {}
    }

    #[test]
    fn all_who_expect_it_hear_it_once() {
        let heard: Arc<Heard> = Arc::default();
        let watches = Watches::new(Arc::downgrade(&heard) as _);
        let [one, two] = [Target::Blocker(ClaimId([1; 16])), Target::Own(ClaimId([2; 16]))];
        watches.expect("/a", one);
        watches.expect("/a", one);
        watches.expect("/a", two);
        watches.expect("/b", one);
        watches.leave("/b", one);
        for path in ["/a", "/a", "/b"] {
            watches.happened(&Event { happened: Happened::Deleted, path: path.to_owned() });
        }
        assert_eq!(*lock_of(&heard.0), [one, two]);
        assert!(lock_of(&watches.known).is_empty());
    }
}
