//! The leases of this client. All claims with about the same ttl share one lease, so one keep-alive serves all of them.
//!
//! A claim ends on the server when its key is deleted or its lease ends. So a lease is kept alive while it has keys. A
//! hold is valid while its lease is valid: for the granted time, counted from before the last answered keep-alive was
//! sent (R1).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{EngineError, Fault, Instant, deadline};
use tokio::sync::Notify;

use crate::lock_mutex;

/// The most keys on one lease: when it ends, the server deletes them in one step.
pub(crate) const MAX_KEYS: usize = 4096;
/// A keep-alive is sent when 1/10 of the ttl has passed since the last answered keep-alive was sent. Holds are granted
/// for the remaining time of the lease. Frequent keep-alives make this time most of the ttl, which matters for a hold
/// that is never renewed and so never extended.
const KEEP_ALIVE_FRACTION: u32 = 10;
/// The shortest interval of keep-alives.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// A keep-alive without an answer is repeated when 1/12 of the ttl has passed since it was sent.
const RETRY_FRACTION: u32 = 12;
/// The interval of keep-alives while a task waits for the answer.
pub(crate) const URGENT_INTERVAL: Duration = Duration::from_millis(200);
/// How long a lease without keys is kept; if its ttl is longer, it is kept for its ttl. Without a lease, an acquire
/// takes one more request.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// One lease that this client keeps alive. Etcd's own client packages call it a session.
pub(crate) struct Session {
    pub(crate) id: i64,
    /// The requested seconds: claims that request the same number share the lease.
    requested_seconds: u64,
    /// The ttl that the server granted, which may be longer than requested.
    pub(crate) ttl: Duration,
    state: Mutex<SessionState>,
    /// Wakes waiting tasks when a keep-alive was answered, and when the lease has ended.
    pub(crate) changed: Notify,
}

struct SessionState {
    /// When the last answered keep-alive was sent.
    last_confirmed: Instant,
    /// When the last keep-alive was sent.
    last_sent: Instant,
    /// When the lease last had a key.
    last_used: Instant,
    /// The number of slots on the lease that are taken now, each for one key.
    keys: usize,
    /// The number of keys that the lease ever had.
    keys_ever: u64,
    /// The revision of its epoch key: a claim whose condition names an older revision creates nothing (R9).
    epoch: i64,
    /// The lease has ended or is being revoked. This state is final.
    gone: bool,
}

/// What is due for a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionAction {
    /// Nothing until this time.
    WaitUntil(Instant),
    /// Send a keep-alive.
    KeepAlive,
    /// Revoke the lease: it had no key for a while.
    Revoke,
    /// Forget the lease: it has ended.
    Forget,
}

impl Session {
    pub(crate) fn new(id: i64, requested_seconds: u64, ttl: Duration, last_sent: Instant) -> Self {
        let state = SessionState {
            last_confirmed: last_sent,
            last_sent,
            last_used: last_sent,
            keys: 0,
            keys_ever: 0,
            epoch: 0,
            gone: false,
        };
        Self { id, requested_seconds, ttl, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Until when holds on this lease are valid; a time in the past if the lease has ended.
    pub(crate) fn valid_until(&self) -> Instant {
        let state = lock_mutex(&self.state);
        if state.gone { Instant::from_nanos(0) } else { deadline(state.last_confirmed, self.ttl) }
    }

    /// Whether the lease has ended.
    pub(crate) fn has_ended(&self) -> bool {
        lock_mutex(&self.state).gone
    }

    /// How long a hold granted now is valid; `None` if the last confirmation is so old that a keep-alive has to be
    /// answered first.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        let remaining = self.valid_until().since(now);
        (remaining >= self.ttl / 2).then_some(remaining)
    }

    pub(crate) fn epoch(&self) -> i64 {
        lock_mutex(&self.state).epoch
    }

    /// Records that the epoch key was changed at this revision.
    pub(crate) fn raise_epoch_to(&self, revision: i64) {
        let mut state = lock_mutex(&self.state);
        state.epoch = state.epoch.max(revision);
    }

    /// Records the revision of the epoch key as read by a transaction; 0: the key does not exist.
    pub(crate) fn set_epoch(&self, revision: i64) {
        lock_mutex(&self.state).epoch = revision;
    }

    /// Records that the server answered a keep-alive that was sent at `sent`.
    pub(crate) fn record_keep_alive(&self, sent: Instant) {
        let mut state = lock_mutex(&self.state);
        state.last_confirmed = state.last_confirmed.max(sent);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records that the lease has ended on the server.
    pub(crate) fn end(&self) {
        lock_mutex(&self.state).gone = true;
        self.changed.notify_waiters();
    }

    /// Whether to send a keep-alive at once: at most a few times a second, however many tasks wait for the answer. If
    /// so, counts the keep-alive as sent.
    pub(crate) fn should_send_keep_alive(&self, now: Instant) -> bool {
        let mut state = lock_mutex(&self.state);
        let is_due = now >= state.last_sent.after(URGENT_INTERVAL);
        if is_due {
            state.last_sent = now;
        }
        is_due
    }

    /// Marks the lease as ended if its present key is the only one that it ever had; true if so.
    pub(crate) fn end_if_used_once(&self) -> bool {
        let mut state = lock_mutex(&self.state);
        let used_once = state.keys_ever == 1 && !state.gone;
        state.gone |= used_once;
        used_once
    }

    /// Stops waiting for answers to keep-alives, so that the next one is sent at once. Called after a reconnect: the
    /// keep-alives of the old connection get no answer any more.
    pub(crate) fn forget_unanswered(&self) {
        lock_mutex(&self.state).last_sent = Instant::from_nanos(0);
    }

    /// What is due at `now`. The caller carries it out; a keep-alive counts as sent at `now`.
    pub(crate) fn next_action(&self, now: Instant) -> SessionAction {
        let mut state = lock_mutex(&self.state);
        if state.gone {
            return SessionAction::Forget;
        }
        if state.keys > 0 {
            state.last_used = now;
        } else if now.since(state.last_used) > self.ttl.max(IDLE_LIMIT) {
            state.gone = true;
            return SessionAction::Revoke;
        }
        let next_keep_alive = state.last_confirmed.after((self.ttl / KEEP_ALIVE_FRACTION).max(MIN_INTERVAL));
        let next_retry = state.last_sent.after(self.ttl / RETRY_FRACTION);
        // After an answer only the time of the next keep-alive counts.
        let next = if state.last_sent > state.last_confirmed {
            next_keep_alive.max(next_retry)
        } else {
            next_keep_alive
        };
        if now < next {
            return SessionAction::WaitUntil(next);
        }
        state.last_sent = now;
        SessionAction::KeepAlive
    }

    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        lock_mutex(&self.state).keys
    }
}

/// A lease slot: the place for one key on a lease. Dropping it frees the place.
pub(crate) struct LeaseSlot(Arc<Session>);

impl LeaseSlot {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for LeaseSlot {
    fn drop(&mut self) {
        lock_mutex(&self.0.state).keys -= 1;
    }
}

/// All leases of a client.
#[derive(Default)]
pub(crate) struct Sessions {
    /// The leases by their ids.
    by_id: Mutex<HashMap<i64, Arc<Session>>>,
    /// Locked while a task creates a lease, so that other tasks wait and use the new lease.
    pub(crate) creation: tokio::sync::Mutex<()>,
}

impl Sessions {
    /// Takes a slot on a lease of this many seconds, if one has room.
    pub(crate) fn take_slot(&self, whole_seconds: u64) -> Option<LeaseSlot> {
        let by_id = lock_mutex(&self.by_id);
        let mut same_ttl = by_id.values().filter(|session| session.requested_seconds == whole_seconds);
        same_ttl.find_map(take_slot_on)
    }

    /// Adds a new lease and takes a slot on it.
    pub(crate) fn add(&self, session: Session) -> Option<LeaseSlot> {
        let session = Arc::new(session);
        lock_mutex(&self.by_id).insert(session.id, Arc::clone(&session));
        take_slot_on(&session)
    }

    /// The lease with this id; `None` if this client does not keep it alive.
    pub(crate) fn get(&self, lease: i64) -> Option<Arc<Session>> {
        lock_mutex(&self.by_id).get(&lease).cloned()
    }

    /// Forgets this lease: the client does not keep it alive any more.
    pub(crate) fn forget(&self, lease: i64) {
        lock_mutex(&self.by_id).remove(&lease);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        lock_mutex(&self.by_id).values().cloned().collect()
    }

    /// Whether any lease has a key, so that this client needs the server.
    pub(crate) fn has_keys(&self) -> bool {
        lock_mutex(&self.by_id).values().any(|session| lock_mutex(&session.state).keys > 0)
    }
}

/// Takes a slot on this lease; `None` if the lease has ended or is full.
fn take_slot_on(session: &Arc<Session>) -> Option<LeaseSlot> {
    let mut state = lock_mutex(&session.state);
    if state.gone || state.keys >= MAX_KEYS {
        return None;
    }
    state.keys += 1;
    state.keys_ever += 1;
    Some(LeaseSlot(Arc::clone(session)))
}

/// The whole seconds to request for this ttl, rounded up: leases have whole seconds.
pub(crate) fn whole_seconds(ttl: Duration) -> u64 {
    ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)
}

/// The error of a claim whose lease ended during a request.
pub(crate) fn lease_ended() -> EngineError {
    EngineError::new(Fault::Retry, "the lease ended while it was needed")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(12);

    /// The time so many milliseconds after the start of the test.
    fn at_millis(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_keep_alive_is_repeated_until_it_is_answered() {
        let sessions = Sessions::default();
        let slot = sessions.add(Session::new(7, 12, TTL, at_millis(0))).unwrap();
        let session = Arc::clone(slot.session());
        assert_eq!(session.next_action(at_millis(1199)), SessionAction::WaitUntil(at_millis(1200)));
        assert_eq!(session.next_action(at_millis(1200)), SessionAction::KeepAlive);
        assert_eq!(
            session.next_action(at_millis(1201)),
            SessionAction::WaitUntil(at_millis(2200)),
            "the answer is still due"
        );
        assert_eq!(session.next_action(at_millis(2200)), SessionAction::KeepAlive);
        session.record_keep_alive(at_millis(1200));
        assert_eq!(
            session.next_action(at_millis(2201)),
            SessionAction::WaitUntil(at_millis(3200)),
            "the second answer is still due"
        );
        session.record_keep_alive(at_millis(2200));
        assert_eq!(session.next_action(at_millis(2202)), SessionAction::WaitUntil(at_millis(3400)));
        assert_eq!(
            session.valid_until(),
            deadline(at_millis(2200), TTL),
            "counted from before the request left"
        );
        drop(slot);
        assert_eq!(session.keys(), 0);
        assert_eq!(session.next_action(at_millis(8000)), SessionAction::KeepAlive, "it may be needed again");
        session.record_keep_alive(at_millis(8000));
        assert_eq!(session.next_action(at_millis(65_002)), SessionAction::Revoke);
        assert_eq!(session.next_action(at_millis(65_003)), SessionAction::Forget);
        assert!(sessions.take_slot(12).is_none());
    }

    #[test]
    fn a_lease_that_ended_is_not_valid() {
        let session = Session::new(7, 12, TTL, at_millis(0));
        assert!(session.remaining(at_millis(5000)).is_some() && session.remaining(at_millis(7000)).is_none());
        session.end();
        assert!(session.remaining(at_millis(1)).is_none() && session.valid_until() < at_millis(1));
        session.record_keep_alive(at_millis(1000));
        assert!(session.has_ended() && session.remaining(at_millis(1001)).is_none(), "nothing revives it");
    }

    #[test]
    fn leases_are_shared_by_ttl_up_to_their_bound() {
        let sessions = Sessions::default();
        assert_eq!([whole_seconds(TTL), whole_seconds(TTL + Duration::from_millis(1))], [12, 13]);
        let first = sessions.add(Session::new(7, 12, TTL, at_millis(0))).unwrap();
        assert!(sessions.take_slot(13).is_none());
        let slots: Vec<LeaseSlot> = (1..MAX_KEYS).map_while(|_| sessions.take_slot(12)).collect();
        assert_eq!(slots.len() + 1, MAX_KEYS);
        assert!(sessions.take_slot(12).is_none());
        drop(first);
        assert!(sessions.take_slot(12).is_some());
    }
}
