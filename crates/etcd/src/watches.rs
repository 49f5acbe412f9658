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
    lock_mutex,
    push_handler::PushHandler,
    wire::{Cancel, Create, Watch, WatchAction, WatchResponse},
};

/// The watch id in the reply to a refused watch.
const REFUSED: i64 = -1;

/// What a watched key is to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WatchTarget {
    /// What this claim waits for.
    Blocker(ClaimId),
    /// The claim's own key.
    Own(ClaimId),
    /// The epoch key of this lease.
    Epoch(i64),
}

/// The watches of one connection.
pub(crate) struct Watches {
    /// To the task of the connection, which sends them to the server.
    requests: mpsc::UnboundedSender<Watch>,
    /// The id of the newest watch.
    last_watch_id: AtomicI64,
    tables: Mutex<Tables>,
}

/// The revision from which a watch reports changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// After this revision. The server reports changes that already happened, and all later ones, with a delay of up to
    /// a tenth of a second.
    After(i64),
    /// From when the server receives the request; the server reports changes at once. If its data is newer than
    /// `read_revision` when the watch begins, [`PushHandler::on_missed`] is called, and the client reads once what
    /// changed in between. Such a watch is never behind: the server serves watches that are behind only ten times a
    /// second.
    Now { read_revision: i64 },
}

/// The watches by id and by target.
#[derive(Default)]
struct Tables {
    /// By watch id: the target and, for [`WatchStart::Now`], the revision up to which the client has read the data.
    targets: HashMap<i64, (WatchTarget, Option<i64>)>,
    /// The watch id of each target, and its span.
    watch_ids: HashMap<WatchTarget, (i64, Span)>,
}

impl Watches {
    pub(crate) fn new(requests: mpsc::UnboundedSender<Watch>) -> Self {
        Self { requests, last_watch_id: AtomicI64::new(0), tables: Mutex::default() }
    }

    /// Watches a span for this target, in place of its previous span. An existing watch of the same span continues.
    pub(crate) fn watch(&self, target: WatchTarget, span: Span, begin: WatchStart) {
        let (start_revision, read_revision) = match begin {
            WatchStart::After(revision) => (revision.saturating_add(1), None),
            WatchStart::Now { read_revision } => (0, Some(read_revision)),
        };
        let mut tables = lock_mutex(&self.tables);
        if tables.watch_ids.get(&target).is_some_and(|(_, watched_span)| *watched_span == span) {
            return;
        }
        let watch_id = self.last_watch_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (key, range_end) = span.clone();
        tables.targets.insert(watch_id, (target, read_revision));
        if let Some((old_id, _)) = tables.watch_ids.insert(target, (watch_id, span)) {
            tables.targets.remove(&old_id);
            self.send(WatchAction::Cancel(Cancel { watch_id: old_id }));
        }
        let create = Create { key, range_end, start_revision, watch_id };
        self.send(WatchAction::Create(create));
    }

    /// Whether this target has a watch.
    pub(crate) fn has(&self, target: WatchTarget) -> bool {
        lock_mutex(&self.tables).watch_ids.contains_key(&target)
    }

    /// Ends the watch of this target.
    pub(crate) fn unwatch(&self, target: WatchTarget) {
        let mut tables = lock_mutex(&self.tables);
        if let Some((watch_id, _)) = tables.watch_ids.remove(&target) {
            tables.targets.remove(&watch_id);
            self.send(WatchAction::Cancel(Cancel { watch_id }));
        }
    }

    /// Handles a reply of the server. Returns false if the server refused a watch without naming the watch: the user
    /// may not read the key, or has to log in again.
    pub(crate) fn receive(&self, response: WatchResponse, handler: &dyn PushHandler) -> bool {
        let target = lock_mutex(&self.tables).targets.get(&response.watch_id).copied();
        let Some((target, read_revision)) = target else {
            return !(response.canceled && response.watch_id == REFUSED);
        };
        let begin_revision = response.header.as_ref().map_or(0, |header| header.revision);
        if response.created && read_revision.is_some_and(|read_revision| read_revision < begin_revision) {
            handler.on_missed(target);
        }
        for event in &response.events {
            handler.on_event(target, event);
        }
        if response.canceled {
            // The start revision of the watch is compacted, or the user may not read the key.
            tracing::debug!(
                reason = response.cancel_reason,
                compacted = response.compact_revision,
                "a watch was cancelled by the server"
            );
            let mut tables = lock_mutex(&self.tables);
            tables.targets.remove(&response.watch_id);
            if tables.watch_ids.get(&target).is_some_and(|(watch_id, _)| *watch_id == response.watch_id) {
                tables.watch_ids.remove(&target);
            }
            drop(tables);
            handler.on_watch_ended(target);
        }
        true
    }

    fn send(&self, action: WatchAction) {
        // Without a receiver the connection has ended, and the next one starts with no watches.
        let _ = self.requests.send(Watch { action: Some(action) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use leasehold_core::Instant;

    use super::*;
    use crate::wire::{Event, Header};

    /// Records each call: its kind and its target.
    #[derive(Default)]
    struct RecordingHandler(Mutex<Vec<(&'static str, WatchTarget)>>);

    impl PushHandler for RecordingHandler {
        fn on_event(&self, target: WatchTarget, _: &Event) {
            lock_mutex(&self.0).push(("event", target));
        }

        fn on_missed(&self, target: WatchTarget) {
            lock_mutex(&self.0).push(("missed", target));
        }

        fn on_watch_ended(&self, target: WatchTarget) {
            lock_mutex(&self.0).push(("watch ended", target));
        }

        fn on_kept_alive(&self, _: i64, _: Instant, _: u64) {}

        fn on_reconnected(&self) {}

        fn needs_server(&self) -> bool {
            false
        }
    }

    const BLOCKER: WatchTarget = WatchTarget::Blocker(ClaimId([1; 16]));

    fn reply(watch_id: i64, revision: i64) -> WatchResponse {
        let header = Some(Header { revision, ..Header::default() });
        WatchResponse { header, watch_id, ..WatchResponse::default() }
    }

    #[test]
    fn a_change_before_a_watch_began_is_reported_as_missed() {
        let (requests, mut sent_requests) = mpsc::unbounded_channel();
        let (watches, handler) = (Watches::new(requests), RecordingHandler::default());
        let span = || (b"k".to_vec(), Vec::new());
        for (begin, begins_at, missed) in [
            (WatchStart::Now { read_revision: 5 }, 5, false),
            (WatchStart::Now { read_revision: 5 }, 6, true),
            (WatchStart::After(5), 6, false),
        ] {
            watches.unwatch(BLOCKER);
            watches.watch(BLOCKER, span(), begin);
            let watch_id = watches.last_watch_id.load(Ordering::Relaxed);
            watches.receive(WatchResponse { created: true, ..reply(watch_id, begins_at) }, &handler);
            let reported = std::mem::take(&mut *lock_mutex(&handler.0));
            assert_eq!(reported == [("missed", BLOCKER)], missed, "{begin:?} at {begins_at}: {reported:?}");
        }
        let mut starts = Vec::new();
        while let Ok(request) = sent_requests.try_recv() {
            if let Some(WatchAction::Create(create)) = request.action {
                starts.push(create.start_revision);
            }
        }
        assert_eq!(starts, [0, 0, 6], "missed changes are read: a watch that begins in the past is behind");
    }

    #[test]
    fn a_watched_key_is_not_watched_again() {
        let (requests, mut sent_requests) = mpsc::unbounded_channel();
        let watches = Watches::new(requests);
        for key in [b"a", b"a", b"b", b"b"] {
            watches.watch(BLOCKER, (key.to_vec(), Vec::new()), WatchStart::Now { read_revision: 5 });
        }
        let mut requests = Vec::new();
        while let Ok(request) = sent_requests.try_recv() {
            requests.push(match request.action.unwrap() {
                WatchAction::Create(create) => String::from_utf8(create.key).unwrap(),
                WatchAction::Cancel(_) => "cancel".to_owned(),
            });
        }
        assert_eq!(requests, ["a", "cancel", "b"]);
    }

    #[test]
    fn only_the_newest_watch_of_a_target_is_reported() {
        let (requests, _sent) = mpsc::unbounded_channel();
        let (watches, handler) = (Watches::new(requests), RecordingHandler::default());
        let span = || (b"k".to_vec(), Vec::new());
        watches.watch(BLOCKER, (b"before".to_vec(), Vec::new()), WatchStart::After(1));
        watches.watch(BLOCKER, span(), WatchStart::After(2));
        let event = |watch_id| WatchResponse { events: vec![Event::default()], ..reply(watch_id, 9) };
        assert!(watches.receive(event(1), &handler) && watches.receive(event(2), &handler));
        assert_eq!(*lock_mutex(&handler.0), [("event", BLOCKER)]);
        assert!(!watches.receive(WatchResponse { canceled: true, ..reply(REFUSED, 9) }, &handler));
        assert!(watches.receive(WatchResponse { canceled: true, ..reply(2, 9) }, &handler));
        assert_eq!(lock_mutex(&handler.0).last(), Some(&("watch ended", BLOCKER)));
        assert!(!watches.has(BLOCKER));
    }
}
