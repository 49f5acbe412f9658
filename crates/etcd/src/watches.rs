//! The watches of one connection.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{ClaimId, Instant};
use tokio::sync::mpsc;

use crate::{
    keys::Span,
    lock_mutex,
    push_handler::PushHandler,
    wire::{Cancel, Create, Event, Watch, WatchAction, WatchResponse},
};

/// The watch id in the reply to a refused watch.
const REFUSED: i64 = -1;
/// How long the watch of a key is kept after its target has ended.
const IDLE_TIME: Duration = Duration::from_secs(2);
/// The most idle watches of a connection; the oldest of more are cancelled.
const MAX_IDLE: usize = 64;

/// What a watched key is to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WatchTarget {
    /// What this claim waits for.
    Blocker(ClaimId),
    /// The claim's own key.
    Own(ClaimId),
    /// The epoch key of this lease.
    Epoch(i64),
    /// The key of the followed memo with this number.
    Memo(u64),
    /// The key of the hold of the writer of this memo.
    MemoHold(u64),
    /// Keys that a view shows, by the number of its watch.
    View(u64),
}

/// The watches of one connection.
pub(crate) struct Watches {
    /// To the task of the connection, which sends them to the server.
    requests: mpsc::UnboundedSender<Watch>,
    /// The id of the newest watch.
    last_watch_id: AtomicI64,
    /// The server refused a watch without naming it: any watch may not exist.
    refused: AtomicBool,
    tables: Mutex<Tables>,
}

/// From which revision a watch reports changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// The watch reports the changes after this revision: those that already happened, and all later ones. The server
    /// reports them with a delay of up to a tenth of a second.
    After(i64),
    /// The watch reports the changes from the moment when the server receives the request, without delay. The client
    /// has read the data at revision `read_revision`. If the data is newer when the watch begins,
    /// [`PushHandler::on_missed`] is called, and the client reads once what changed in between. Such a watch is never
    /// behind: the server serves watches that are behind only ten times a second.
    Now { read_revision: i64 },
    /// As `Now`, but changes between `read_revision` and the beginning of the watch do not matter.
    NowOnly { read_revision: i64 },
}

/// One watch of the server.
struct WatchState {
    /// What is watched; `None` while the watch is idle.
    target: Option<WatchTarget>,
    span: Span,
    /// The revision up to which the client has read the data: the target has no use for earlier changes.
    read_revision: i64,
    /// Call [`PushHandler::on_missed`] for a change between `read_revision` and the beginning of the watch.
    reports_missed: bool,
    /// The revision at which the watch began, or of the newest change that the server reported.
    newest_change: i64,
}

/// The watches by id, by target, and the idle ones.
#[derive(Default)]
struct Tables {
    watches: HashMap<i64, WatchState>,
    /// The watch id of each target.
    watch_ids: HashMap<WatchTarget, i64>,
    /// The idle watches, and since when: the oldest first. A claim often waits for the same key as the previous claim
    /// of this client on the same name, so the watch of one key is kept for a while after its target has ended.
    idle: VecDeque<(Instant, i64)>,
}

impl Watches {
    pub(crate) fn new(requests: mpsc::UnboundedSender<Watch>) -> Self {
        Self {
            requests,
            last_watch_id: AtomicI64::new(0),
            refused: AtomicBool::new(false),
            tables: Mutex::default(),
        }
    }

    /// Watches a span for this target, in place of its previous span. An existing watch of the same span continues.
    /// True if a change after the revision that the client has read was already reported: then the caller must read the
    /// data once.
    #[must_use]
    pub(crate) fn watch(&self, target: WatchTarget, span: Span, begin: WatchStart, now: Instant) -> bool {
        let mut tables = lock_mutex(&self.tables);
        if let Some(watch_id) = tables.watch_ids.get(&target)
            && let Some(watch) = tables.watches.get(watch_id).filter(|watch| watch.span == span)
        {
            // A change after the read was reported before the client recorded what it read.
            match begin {
                WatchStart::Now { read_revision } => return watch.newest_change > read_revision,
                WatchStart::After(revision) if watch.newest_change > revision => {}
                WatchStart::NowOnly { .. } | WatchStart::After(_) => return false,
            }
        }
        self.end(&mut tables, target, now);
        let (start_revision, read_revision, reports_missed) = match begin {
            WatchStart::After(revision) => (revision.saturating_add(1), revision, false),
            WatchStart::Now { read_revision } => (0, read_revision, true),
            WatchStart::NowOnly { read_revision } => (0, read_revision, false),
        };
        if start_revision == 0
            && let Some(watch_id) = tables.take_idle(&span)
            && let Some(watch) = tables.watches.get_mut(&watch_id)
        {
            (watch.target, watch.read_revision, watch.reports_missed) =
                (Some(target), read_revision, reports_missed);
            let missed = reports_missed && watch.newest_change > read_revision;
            tables.watch_ids.insert(target, watch_id);
            return missed;
        }
        let watch_id = self.last_watch_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (key, range_end) = span.clone();
        let watch =
            WatchState { target: Some(target), span, read_revision, reports_missed, newest_change: 0 };
        tables.watches.insert(watch_id, watch);
        tables.watch_ids.insert(target, watch_id);
        self.send(WatchAction::Create(Create { key, range_end, start_revision, watch_id }));
        false
    }

    /// Whether this target has a watch.
    pub(crate) fn has(&self, target: WatchTarget) -> bool {
        !self.are_refused() && lock_mutex(&self.tables).watch_ids.contains_key(&target)
    }

    /// Whether the server refused a watch of this connection, so that waiting claims have to poll.
    pub(crate) fn are_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Ends the watch of this target. The watch of a single key is idle then, and serves the next target of that key.
    pub(crate) fn unwatch(&self, target: WatchTarget, now: Instant) {
        self.end(&mut lock_mutex(&self.tables), target, now);
    }

    /// Cancels the watches that were idle for [`IDLE_TIME`]. Returns when the next one has to be cancelled.
    pub(crate) fn cancel_idle(&self, now: Instant) -> Option<Instant> {
        let mut tables = lock_mutex(&self.tables);
        while let Some(&(since, watch_id)) = tables.idle.front() {
            let until = since.after(IDLE_TIME);
            if until > now {
                return Some(until);
            }
            tables.idle.pop_front();
            self.cancel(&mut tables, watch_id);
        }
        None
    }

    fn end(&self, tables: &mut Tables, target: WatchTarget, now: Instant) {
        let Some(watch_id) = tables.watch_ids.remove(&target) else { return };
        let Some(watch) = tables.watches.get_mut(&watch_id) else { return };
        let is_single_key = watch.span.1.is_empty();
        let serves_claims = matches!(target, WatchTarget::Blocker(_) | WatchTarget::Own(_));
        if !is_single_key || !serves_claims {
            return self.cancel(tables, watch_id);
        }
        watch.target = None;
        tables.idle.push_back((now, watch_id));
        if tables.idle.len() > MAX_IDLE
            && let Some((_, oldest)) = tables.idle.pop_front()
        {
            self.cancel(tables, oldest);
        }
    }

    fn cancel(&self, tables: &mut Tables, watch_id: i64) {
        tables.watches.remove(&watch_id);
        self.send(WatchAction::Cancel(Cancel { watch_id }));
    }

    /// Handles a reply of the server. Returns false if the server refused a watch without naming the watch: the user is
    /// not allowed to read the key, or has to log in again.
    pub(crate) fn receive(&self, response: WatchResponse, handler: &dyn PushHandler) -> bool {
        let known = lock_mutex(&self.tables).record(&response);
        let Some((target, read_revision, reports_missed)) = known else {
            if response.canceled && response.watch_id == REFUSED {
                self.refused.store(true, Ordering::Relaxed);
                handler.on_watch_refused();
                return false;
            }
            return true;
        };
        if let Some(target) = target {
            let began_at = response.header.as_ref().map_or(0, |header| header.revision);
            if response.created && reports_missed && read_revision < began_at {
                handler.on_missed(target);
            }
            for event in response.events.iter().filter(|event| revision_of(event) > read_revision) {
                handler.on_event(target, event);
            }
        }
        if response.canceled {
            // The start revision of the watch is compacted, or the user may not read the key.
            tracing::debug!(
                reason = response.cancel_reason,
                compacted = response.compact_revision,
                "a watch was cancelled by the server"
            );
            if let Some(target) = lock_mutex(&self.tables).forget(response.watch_id) {
                handler.on_watch_ended(target);
            }
        }
        true
    }

    fn send(&self, action: WatchAction) {
        // Without a receiver the connection has ended, and the next one starts with no watches.
        let _ = self.requests.send(Watch { action: Some(action) });
    }
}

impl Tables {
    /// Records the newest change of a reply. Returns, of the watch of this reply, the target, the revision up to which
    /// the target has read, and whether the target wants to know of missed changes; `None` for an unknown watch.
    fn record(&mut self, response: &WatchResponse) -> Option<(Option<WatchTarget>, i64, bool)> {
        let watch = self.watches.get_mut(&response.watch_id)?;
        let newest = response.events.iter().map(revision_of).max();
        let began_at = response.header.as_ref().filter(|_| response.created).map(|header| header.revision);
        watch.newest_change = watch.newest_change.max(newest.max(began_at).unwrap_or(0));
        Some((watch.target, watch.read_revision, watch.reports_missed))
    }

    /// Takes the newest idle watch of this span.
    fn take_idle(&mut self, span: &Span) -> Option<i64> {
        let is_of_span = |watch_id: &i64| self.watches.get(watch_id).is_some_and(|watch| watch.span == *span);
        let at = self.idle.iter().rposition(|(_, watch_id)| is_of_span(watch_id))?;
        self.idle.remove(at).map(|(_, watch_id)| watch_id)
    }

    /// Forgets a watch that the server cancelled. Returns its target.
    fn forget(&mut self, watch_id: i64) -> Option<WatchTarget> {
        self.idle.retain(|(_, idle)| *idle != watch_id);
        let target = self.watches.remove(&watch_id)?.target?;
        self.watch_ids.remove(&target);
        Some(target)
    }
}

/// The revision of a change.
fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use leasehold_core::Instant;

    use super::*;
    use crate::wire::{Header, KeyValue};

    #[derive(Default)]
    struct RecordingHandler(Mutex<Vec<(&'static str, WatchTarget)>>);

    impl PushHandler for RecordingHandler {
        fn on_event(&self, target: WatchTarget, _: &Event) {
            lock_mutex(&self.0).push(("happened", target));
        }

        fn on_missed(&self, target: WatchTarget) {
            lock_mutex(&self.0).push(("missed", target));
        }

        fn on_watch_ended(&self, target: WatchTarget) {
            lock_mutex(&self.0).push(("unwatched", target));
        }

        fn on_watch_refused(&self) {}

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

    const NOW: Instant = Instant::from_nanos(0);
    const NEXT: WatchTarget = WatchTarget::Blocker(ClaimId([2; 16]));

    /// A change at this revision.
    fn changed(watch_id: i64, revision: i64) -> WatchResponse {
        let kv = Some(KeyValue { mod_revision: revision, ..KeyValue::default() });
        WatchResponse { events: vec![Event { kv, ..Event::default() }], ..reply(watch_id, revision) }
    }

    /// The requests that were sent: the keys of new watches, and the numbers of cancelled ones.
    fn requests(sent: &mut mpsc::UnboundedReceiver<Watch>) -> Vec<String> {
        let request = |watch: Watch| match watch.action.unwrap() {
            WatchAction::Create(create) => String::from_utf8(create.key).unwrap(),
            WatchAction::Cancel(cancel) => cancel.watch_id.to_string(),
        };
        std::iter::from_fn(|| sent.try_recv().ok()).map(request).collect()
    }

    #[test]
    fn the_next_claim_takes_over_the_idle_watch_of_its_key_and_hears_of_later_changes_only() {
        let (sender, mut sent) = mpsc::unbounded_channel();
        let (watches, received) = (Watches::new(sender), RecordingHandler::default());
        let span = || (b"k".to_vec(), Vec::new());
        assert!(!watches.watch(BLOCKER, span(), WatchStart::Now { read_revision: 5 }, NOW));
        watches.receive(WatchResponse { created: true, ..reply(1, 5) }, &received);
        watches.unwatch(BLOCKER, NOW);
        assert!(!watches.has(BLOCKER));
        // The key was deleted and created again before revision 9, which the next claim has read.
        assert!(!watches.watch(NEXT, span(), WatchStart::Now { read_revision: 9 }, NOW));
        watches.receive(changed(1, 9), &received);
        assert_eq!(*lock_mutex(&received.0), [], "the change is part of what the claim has read");
        watches.receive(changed(1, 10), &received);
        assert_eq!(*lock_mutex(&received.0), [("happened", NEXT)]);
        assert_eq!(requests(&mut sent), ["k"], "there is one watch");
    }

    #[test]
    fn a_change_that_an_idle_watch_reported_is_missed_by_a_claim_that_read_before() {
        let (sender, _sent) = mpsc::unbounded_channel();
        let (watches, received) = (Watches::new(sender), RecordingHandler::default());
        let span = || (b"k".to_vec(), Vec::new());
        for (read_revision, missed) in [(7, true), (8, false), (9, false)] {
            assert!(!watches.watch(BLOCKER, span(), WatchStart::Now { read_revision: i64::MAX }, NOW));
            watches.unwatch(BLOCKER, NOW);
            watches.receive(changed(1, 8), &received);
            assert_eq!(
                watches.watch(NEXT, span(), WatchStart::Now { read_revision }, NOW),
                missed,
                "{read_revision}"
            );
            watches.unwatch(NEXT, NOW);
            assert!(!watches.watch(NEXT, span(), WatchStart::NowOnly { read_revision }, NOW));
            watches.unwatch(NEXT, NOW);
        }
        assert_eq!(*lock_mutex(&received.0), [], "an idle watch has no target");
    }

    #[test]
    fn idle_watches_are_cancelled_after_a_time_and_the_oldest_of_too_many_at_once() {
        let (sender, mut sent) = mpsc::unbounded_channel();
        let watches = Watches::new(sender);
        let later = NOW.after(IDLE_TIME / 2);
        for (key, now) in [("a", NOW), ("b", later)] {
            assert!(!watches.watch(
                BLOCKER,
                (key.into(), Vec::new()),
                WatchStart::Now { read_revision: 5 },
                now
            ));
            watches.unwatch(BLOCKER, now);
        }
        assert_eq!(watches.cancel_idle(later), Some(NOW.after(IDLE_TIME)));
        assert_eq!(watches.cancel_idle(NOW.after(IDLE_TIME)), Some(later.after(IDLE_TIME)));
        assert_eq!(requests(&mut sent), ["a", "b", "1"]);
        for number in 0..MAX_IDLE {
            let key = format!("{number}").into_bytes();
            assert!(!watches.watch(BLOCKER, (key, Vec::new()), WatchStart::Now { read_revision: 5 }, later));
            watches.unwatch(BLOCKER, later);
        }
        assert_eq!(requests(&mut sent).last().map(String::as_str), Some("2"), "the watch of b");
        assert_eq!(watches.cancel_idle(Instant::NEVER), None);
        assert_eq!(requests(&mut sent).len(), MAX_IDLE);
        // A watch of a whole directory reports what is of no use to others.
        assert!(!watches.watch(
            BLOCKER,
            (b"d/".to_vec(), b"d0".to_vec()),
            WatchStart::Now { read_revision: 5 },
            later
        ));
        watches.unwatch(BLOCKER, later);
        assert_eq!(requests(&mut sent).len(), 2);
    }

    #[test]
    fn a_change_before_a_watch_began_is_reported_as_missed() {
        let (requests, mut sent) = mpsc::unbounded_channel();
        let (watches, received) = (Watches::new(requests), RecordingHandler::default());
        let span = || (b"k".to_vec(), Vec::new());
        for (begin, begins_at, missed) in [
            (WatchStart::Now { read_revision: 5 }, 5, false),
            (WatchStart::Now { read_revision: 5 }, 6, true),
            (WatchStart::After(5), 6, false),
        ] {
            watches.unwatch(BLOCKER, NOW);
            watches.cancel_idle(NOW.after(IDLE_TIME));
            assert!(!watches.watch(BLOCKER, span(), begin, NOW));
            let watch_id = watches.last_watch_id.load(Ordering::Relaxed);
            watches.receive(WatchResponse { created: true, ..reply(watch_id, begins_at) }, &received);
            let reported = std::mem::take(&mut *lock_mutex(&received.0));
            assert_eq!(reported == [("missed", BLOCKER)], missed, "{begin:?} at {begins_at}: {reported:?}");
        }
        let mut starts = Vec::new();
        while let Ok(request) = sent.try_recv() {
            if let Some(WatchAction::Create(create)) = request.action {
                starts.push(create.start_revision);
            }
        }
        assert_eq!(starts, [0, 0, 6], "missed changes are read: a watch that begins in the past is behind");
    }

    #[test]
    fn a_watched_key_is_not_watched_again() {
        let (sender, mut sent) = mpsc::unbounded_channel();
        let watches = Watches::new(sender);
        for key in [b"a", b"a", b"b", b"b"] {
            assert!(!watches.watch(
                BLOCKER,
                (key.to_vec(), Vec::new()),
                WatchStart::Now { read_revision: 5 },
                NOW
            ));
        }
        assert_eq!(requests(&mut sent), ["a", "b"], "the watch of the first key is idle");
    }

    #[test]
    fn only_the_newest_watch_of_a_target_is_reported() {
        let (requests, _sent) = mpsc::unbounded_channel();
        let (watches, received) = (Watches::new(requests), RecordingHandler::default());
        let span = || (b"k".to_vec(), Vec::new());
        assert!(!watches.watch(BLOCKER, (b"before".to_vec(), Vec::new()), WatchStart::After(1), NOW));
        assert!(!watches.watch(BLOCKER, span(), WatchStart::After(2), NOW));
        let event = |watch_id| changed(watch_id, 9);
        assert!(watches.receive(event(1), &received) && watches.receive(event(2), &received));
        assert_eq!(*lock_mutex(&received.0), [("happened", BLOCKER)]);
        assert!(watches.receive(WatchResponse { canceled: true, ..reply(2, 9) }, &received));
        assert_eq!(lock_mutex(&received.0).last(), Some(&("unwatched", BLOCKER)));
        assert!(!watches.has(BLOCKER));
    }

    /// The server does not say which watch it refused.
    #[test]
    fn after_a_refusal_no_claim_relies_on_a_watch() {
        let (requests, _sent) = mpsc::unbounded_channel();
        let (watches, received) = (Watches::new(requests), RecordingHandler::default());
        assert!(!watches.watch(BLOCKER, (b"k".to_vec(), Vec::new()), WatchStart::After(1), NOW));
        assert!(watches.has(BLOCKER) && !watches.are_refused());
        assert!(!watches.receive(WatchResponse { canceled: true, ..reply(REFUSED, 9) }, &received));
        assert!(!watches.has(BLOCKER) && watches.are_refused());
    }

    #[test]
    fn a_change_reported_before_the_client_recorded_an_older_read_is_not_forgotten() {
        let span = || (b"k".to_vec(), Vec::new());
        for (begin, missed, new_watches) in [
            (WatchStart::After(8), false, 0),
            (WatchStart::After(7), false, 1),
            (WatchStart::Now { read_revision: 7 }, true, 0),
            (WatchStart::NowOnly { read_revision: 7 }, false, 0),
        ] {
            let (sender, mut sent) = mpsc::unbounded_channel();
            let watches = Watches::new(sender);
            assert!(!watches.watch(BLOCKER, span(), WatchStart::After(1), NOW));
            watches.receive(changed(1, 8), &RecordingHandler::default());
            requests(&mut sent);
            assert_eq!(watches.watch(BLOCKER, span(), begin, NOW), missed, "{begin:?}");
            assert_eq!(requests(&mut sent).len(), new_watches, "{begin:?}");
        }
    }
}
