//! The watches of one connection.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use leasehold_core::ClaimId;
use tokio::sync::mpsc;

use crate::{
    keys::Span,
    lock_of,
    push_handler::PushHandler,
    wire::{Cancel, Create, Watch, WatchOrder, WatchResponse},
};

/// The watch id in the reply to a refused watch.
const REFUSED: i64 = -1;

/// What a watched key is to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// What this claim waits for.
    Blocker(ClaimId),
    /// The claim's own key.
    Own(ClaimId),
    /// The epoch key of this lease.
    Epoch(i64),
}

/// The watches of one connection.
pub(crate) struct Watches {
    orders: mpsc::UnboundedSender<Watch>,
    last: AtomicI64,
    known: Mutex<Known>,
}

/// The revision from which a watch reports changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// After this revision. The server reports changes that already happened, and all later ones, with a delay of up to
    /// a tenth of a second.
    After(i64),
    /// From when the server receives the request; it reports changes at once. If the server's data is newer than `seen`
    /// by then, [`PushHandler::on_missed`] is called, and the client reads once what changed in between. Such a watch
    /// is never behind: the server serves watches that are behind only ten times a second.
    Now { seen: i64 },
}

#[derive(Default)]
struct Known {
    /// By watch id: the target and, if the watch begins at once, the revision of the read before.
    targets: HashMap<i64, (Target, Option<i64>)>,
    /// The watch id of each target, and its span.
    numbers: HashMap<Target, (i64, Span)>,
}

impl Watches {
    pub(crate) fn new(orders: mpsc::UnboundedSender<Watch>) -> Self {
        Self { orders, last: AtomicI64::new(0), known: Mutex::default() }
    }

    /// Watches a span for this target, in place of its previous span. An existing watch of the same span continues.
    pub(crate) fn watch(&self, target: Target, span: Span, begin: Begin) {
        let (start_revision, seen) = match begin {
            Begin::After(revision) => (revision.saturating_add(1), None),
            Begin::Now { seen } => (0, Some(seen)),
        };
        let mut known = lock_of(&self.known);
        if known.numbers.get(&target).is_some_and(|(_, watched)| *watched == span) {
            return;
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (key, range_end) = span.clone();
        known.targets.insert(number, (target, seen));
        if let Some((before, _)) = known.numbers.insert(target, (number, span)) {
            known.targets.remove(&before);
            self.order(WatchOrder::Cancel(Cancel { watch_id: before }));
        }
        let create = Create { key, range_end, start_revision, watch_id: number };
        self.order(WatchOrder::Create(create));
    }

    /// Whether this target has a watch.
    pub(crate) fn has(&self, target: Target) -> bool {
        lock_of(&self.known).numbers.contains_key(&target)
    }

    /// Ends the watch of this target.
    pub(crate) fn leave(&self, target: Target) {
        let mut known = lock_of(&self.known);
        if let Some((number, _)) = known.numbers.remove(&target) {
            known.targets.remove(&number);
            self.order(WatchOrder::Cancel(Cancel { watch_id: number }));
        }
    }

    /// Handles a reply of the server. Returns false if the server refused a watch without naming it: the user may not
    /// read the key, or has to log in again.
    pub(crate) fn receive(&self, watched: WatchResponse, handler: &dyn PushHandler) -> bool {
        let target = lock_of(&self.known).targets.get(&watched.watch_id).copied();
        let Some((target, seen)) = target else {
            return !(watched.canceled && watched.watch_id == REFUSED);
        };
        let begins = watched.header.as_ref().map_or(0, |header| header.revision);
        if watched.created && seen.is_some_and(|seen| seen < begins) {
            handler.on_missed(target);
        }
        for event in &watched.events {
            handler.on_event(target, event);
        }
        if watched.canceled {
            // Its start revision is compacted, or the user may not read the key.
            tracing::debug!(
                reason = watched.cancel_reason,
                compacted = watched.compact_revision,
                "a watch was cancelled by the server"
            );
            let mut known = lock_of(&self.known);
            known.targets.remove(&watched.watch_id);
            if known.numbers.get(&target).is_some_and(|(number, _)| *number == watched.watch_id) {
                known.numbers.remove(&target);
            }
            drop(known);
            handler.on_watch_ended(target);
        }
        true
    }

    fn order(&self, order: WatchOrder) {
        // Without a receiver the connection has ended, and the next one starts with no watches.
        let _ = self.orders.send(Watch { order: Some(order) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use leasehold_core::Instant;

    use super::*;
    use crate::wire::{Event, Header};

    #[derive(Default)]
    struct RecordingHandler(Mutex<Vec<(&'static str, Target)>>);

    impl PushHandler for RecordingHandler {
        fn on_event(&self, target: Target, _: &Event) {
            lock_of(&self.0).push(("happened", target));
        }

        fn on_missed(&self, target: Target) {
            lock_of(&self.0).push(("missed", target));
        }

        fn on_watch_ended(&self, target: Target) {
            lock_of(&self.0).push(("unwatched", target));
        }

        fn on_kept_alive(&self, _: i64, _: Instant, _: u64) {}

        fn on_reconnected(&self) {}

        fn needs_server(&self) -> bool {
            false
        }
    }

    const BLOCKER: Target = Target::Blocker(ClaimId([1; 16]));

    fn reply(watch_id: i64, revision: i64) -> WatchResponse {
        let header = Some(Header { revision, ..Header::default() });
        WatchResponse { header, watch_id, ..WatchResponse::default() }
    }

    #[test]
    fn a_change_before_a_watch_began_is_reported_as_missed() {
        let (orders, mut sent) = mpsc::unbounded_channel();
        let (watches, received) = (Watches::new(orders), RecordingHandler::default());
        let span = || (b"k".to_vec(), Vec::new());
        for (begin, begins_at, missed) in [
            (Begin::Now { seen: 5 }, 5, false),
            (Begin::Now { seen: 5 }, 6, true),
            (Begin::After(5), 6, false),
        ] {
            watches.leave(BLOCKER);
            watches.watch(BLOCKER, span(), begin);
            let number = watches.last.load(Ordering::Relaxed);
            watches.receive(WatchResponse { created: true, ..reply(number, begins_at) }, &received);
            let reported = std::mem::take(&mut *lock_of(&received.0));
            assert_eq!(reported == [("missed", BLOCKER)], missed, "{begin:?} at {begins_at}: {reported:?}");
        }
        let mut starts = Vec::new();
        while let Ok(order) = sent.try_recv() {
            if let Some(WatchOrder::Create(create)) = order.order {
                starts.push(create.start_revision);
            }
        }
        assert_eq!(starts, [0, 0, 6], "missed changes are read: a watch that begins in the past is behind");
    }

    #[test]
    fn a_watched_key_is_not_watched_again() {
        let (orders, mut sent) = mpsc::unbounded_channel();
        let watches = Watches::new(orders);
        for key in [b"a", b"a", b"b", b"b"] {
            watches.watch(BLOCKER, (key.to_vec(), Vec::new()), Begin::Now { seen: 5 });
        }
        let mut requests = Vec::new();
        while let Ok(order) = sent.try_recv() {
            requests.push(match order.order.unwrap() {
                WatchOrder::Create(create) => String::from_utf8(create.key).unwrap(),
                WatchOrder::Cancel(_) => "cancel".to_owned(),
            });
        }
        assert_eq!(requests, ["a", "cancel", "b"]);
    }

    #[test]
    fn only_the_newest_watch_of_a_target_is_reported() {
        let (orders, _sent) = mpsc::unbounded_channel();
        let (watches, received) = (Watches::new(orders), RecordingHandler::default());
        let span = || (b"k".to_vec(), Vec::new());
        watches.watch(BLOCKER, (b"before".to_vec(), Vec::new()), Begin::After(1));
        watches.watch(BLOCKER, span(), Begin::After(2));
        let event = |number| WatchResponse { events: vec![Event::default()], ..reply(number, 9) };
        assert!(watches.receive(event(1), &received) && watches.receive(event(2), &received));
        assert_eq!(*lock_of(&received.0), [("happened", BLOCKER)]);
        assert!(!watches.receive(WatchResponse { canceled: true, ..reply(REFUSED, 9) }, &received));
        assert!(watches.receive(WatchResponse { canceled: true, ..reply(2, 9) }, &received));
        assert_eq!(lock_of(&received.0).last(), Some(&("unwatched", BLOCKER)));
        assert!(!watches.has(BLOCKER));
    }
}
