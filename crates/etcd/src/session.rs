//! Leases of this client. All claims of about one ttl share one, which is kept alive once for all of them.
//!
//! A claim ends on the server when its key is deleted or its lease is over. So a lease is kept alive while it has keys, and who
//! believes in a hold believes in its lease: until the time granted is over, counted from before the last request to keep it
//! alive that was answered left (R1).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{EngineError, Fault, Instant, deadline};
use tokio::sync::Notify;

use crate::lock_of;

/// The most keys on one lease: the server deletes them in one step when it ends.
pub(crate) const MAX_KEYS: usize = 4096;
/// A lease is kept alive when this fraction of it has passed, but not more often than twice a second, and again when that was
/// not answered within the other. Holds are granted for what is left: often enough that this is most of it, for a lease that is
/// not renewed cannot make up for it.
const KEEP_ALIVE_FRACTION: u32 = 10;
const LEAST_INTERVAL: Duration = Duration::from_millis(500);
const RETRY_FRACTION: u32 = 12;
/// How often it is asked for when somebody waits for the answer.
pub(crate) const URGENT_INTERVAL: Duration = Duration::from_millis(200);
/// A lease without keys is kept for so long, or its own time if that is longer: acquiring without a lease takes a request more.
const IDLE: Duration = Duration::from_secs(60);

/// One lease.
pub(crate) struct Session {
    pub(crate) id: i64,
    /// For how many seconds it was asked for: claims that ask for as many share it.
    class: u64,
    /// What the server granted, which may be longer than what was asked for.
    pub(crate) ttl: Duration,
    state: Mutex<SessionState>,
    /// Rings when it was kept alive, and when it is gone.
    pub(crate) changed: Notify,
}

struct SessionState {
    /// When the last request left that was answered.
    confirmed: Instant,
    /// When the last request left.
    asked: Instant,
    /// When it had a key last.
    used: Instant,
    keys: usize,
    /// How many keys it has had in all.
    taken: u64,
    /// The revision of its epoch key: claims made with an older one come to nothing (R9).
    epoch: i64,
    gone: bool,
}

/// What a session wants now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    WaitUntil(Instant),
    KeepAlive,
    /// Nobody has used it for a while.
    Revoke,
    /// It is over.
    Forget,
}

impl Session {
    pub(crate) fn new(id: i64, class: u64, ttl: Duration, asked: Instant) -> Self {
        let state =
            SessionState { confirmed: asked, asked, used: asked, keys: 0, taken: 0, epoch: 0, gone: false };
        Self { id, class, ttl, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Until when its claims may be believed in.
    pub(crate) fn valid_until(&self) -> Instant {
        let state = lock_of(&self.state);
        if state.gone { Instant::from_nanos(0) } else { deadline(state.confirmed, self.ttl) }
    }

    pub(crate) fn is_gone(&self) -> bool {
        lock_of(&self.state).gone
    }

    /// For how long a claim that is granted now may be believed in; `None` when it has not been kept alive for so long that it is
    /// to be asked for first.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.valid_until().since(now);
        (left >= self.ttl / 2).then_some(left)
    }

    pub(crate) fn epoch(&self) -> i64 {
        lock_of(&self.state).epoch
    }

    /// The epoch key was changed at this revision.
    pub(crate) fn epoch_raised(&self, revision: i64) {
        let mut state = lock_of(&self.state);
        state.epoch = state.epoch.max(revision);
    }

    /// A transaction found the epoch key as it was at this revision; 0: it is not there.
    pub(crate) fn set_epoch(&self, revision: i64) {
        lock_of(&self.state).epoch = revision;
    }

    /// The server answered to a request that left at `sent`.
    pub(crate) fn kept_alive(&self, sent: Instant) {
        let mut state = lock_of(&self.state);
        state.confirmed = state.confirmed.max(sent);
        drop(state);
        self.changed.notify_waiters();
    }

    /// The server does not know it any more.
    pub(crate) fn end(&self) {
        lock_of(&self.state).gone = true;
        self.changed.notify_waiters();
    }

    /// Whether to ask at once that it be kept alive: at most a few times a second, however many wait for it.
    pub(crate) fn ask_now(&self, now: Instant) -> bool {
        let mut state = lock_of(&self.state);
        let due = now >= state.asked.after(URGENT_INTERVAL);
        if due {
            state.asked = now;
        }
        due
    }

    /// Ends it here if the key that it has now, and no other, was the only one it ever had; true if it did.
    pub(crate) fn end_if_used_once(&self) -> bool {
        let mut state = lock_of(&self.state);
        let only = state.taken == 1 && !state.gone;
        state.gone |= only;
        only
    }

    /// A new connection: what was asked before is not answered any more.
    pub(crate) fn forget_unanswered(&self) {
        lock_of(&self.state).asked = Instant::from_nanos(0);
    }

    /// What is to be done at `now`. That it is done is taken for granted.
    pub(crate) fn step(&self, now: Instant) -> Action {
        let mut state = lock_of(&self.state);
        if state.gone {
            return Action::Forget;
        }
        if state.keys > 0 {
            state.used = now;
        } else if now.since(state.used) > self.ttl.max(IDLE) {
            state.gone = true;
            return Action::Revoke;
        }
        let due = state.confirmed.after((self.ttl / KEEP_ALIVE_FRACTION).max(LEAST_INTERVAL));
        let again = state.asked.after(self.ttl / RETRY_FRACTION);
        // What was confirmed was asked for, so after an answer the first of both counts.
        let at = if state.asked > state.confirmed { due.max(again) } else { due };
        if now < at {
            return Action::WaitUntil(at);
        }
        state.asked = now;
        Action::KeepAlive
    }

    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        lock_of(&self.state).keys
    }
}

/// A key on a session.
pub(crate) struct LeaseSlot(Arc<Session>);

impl LeaseSlot {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for LeaseSlot {
    fn drop(&mut self) {
        lock_of(&self.0.state).keys -= 1;
    }
}

/// All leases of a client.
#[derive(Default)]
pub(crate) struct Sessions {
    known: Mutex<HashMap<i64, Arc<Session>>>,
    /// One is made at a time, for all who need it.
    pub(crate) making: tokio::sync::Mutex<()>,
}

impl Sessions {
    /// A seat on a lease of so many seconds, if there is one with room.
    pub(crate) fn slot(&self, seconds: u64) -> Option<LeaseSlot> {
        let known = lock_of(&self.known);
        let mut fit = known.values().filter(|session| session.class == seconds);
        fit.find_map(take_slot)
    }

    /// A new lease, and a seat on it.
    pub(crate) fn add(&self, session: Session) -> Option<LeaseSlot> {
        let session = Arc::new(session);
        lock_of(&self.known).insert(session.id, Arc::clone(&session));
        take_slot(&session)
    }

    pub(crate) fn get(&self, lease: i64) -> Option<Arc<Session>> {
        lock_of(&self.known).get(&lease).cloned()
    }

    pub(crate) fn forget(&self, lease: i64) {
        lock_of(&self.known).remove(&lease);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        lock_of(&self.known).values().cloned().collect()
    }

    pub(crate) fn has_keys(&self) -> bool {
        lock_of(&self.known).values().any(|session| lock_of(&session.state).keys > 0)
    }
}

fn take_slot(session: &Arc<Session>) -> Option<LeaseSlot> {
    let mut state = lock_of(&session.state);
    if state.gone || state.keys >= MAX_KEYS {
        return None;
    }
    state.keys += 1;
    state.taken += 1;
    Some(LeaseSlot(Arc::clone(session)))
}

/// The whole seconds that a lease for this ttl is asked for: the server knows no parts of them.
pub(crate) fn seconds(ttl: Duration) -> u64 {
    ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)
}

/// The error of a claim whose lease ended under it.
pub(crate) fn gone() -> EngineError {
    EngineError::new(Fault::Retry, "the lease ended while it was needed")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(12);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_keep_alive_is_repeated_until_it_is_answered() {
        let sessions = Sessions::default();
        let slot = sessions.add(Session::new(7, 12, TTL, at(0))).unwrap();
        let session = Arc::clone(slot.session());
        assert_eq!(session.step(at(1199)), Action::WaitUntil(at(1200)));
        assert_eq!(session.step(at(1200)), Action::KeepAlive);
        assert_eq!(session.step(at(1201)), Action::WaitUntil(at(2200)), "its answer is under way");
        assert_eq!(session.step(at(2200)), Action::KeepAlive);
        session.kept_alive(at(1200));
        assert_eq!(session.step(at(2201)), Action::WaitUntil(at(3200)), "the second answer is under way");
        session.kept_alive(at(2200));
        assert_eq!(session.step(at(2202)), Action::WaitUntil(at(3400)));
        assert_eq!(session.valid_until(), deadline(at(2200), TTL), "counted from before the request left");
        drop(slot);
        assert_eq!(session.keys(), 0);
        assert_eq!(session.step(at(8000)), Action::KeepAlive, "it may be needed again");
        session.kept_alive(at(8000));
        assert_eq!(session.step(at(65_002)), Action::Revoke);
        assert_eq!(session.step(at(65_003)), Action::Forget);
        assert!(sessions.slot(12).is_none());
    }

    #[test]
    fn a_lease_that_ended_is_not_valid() {
        let session = Session::new(7, 12, TTL, at(0));
        assert!(session.left(at(5000)).is_some() && session.left(at(7000)).is_none());
        session.end();
        assert!(session.left(at(1)).is_none() && session.valid_until() < at(1));
        session.kept_alive(at(1000));
        assert!(session.is_gone() && session.left(at(1001)).is_none(), "nothing revives it");
    }

    #[test]
    fn leases_are_shared_by_ttl_up_to_their_bound() {
        let sessions = Sessions::default();
        assert_eq!([seconds(TTL), seconds(TTL + Duration::from_millis(1))], [12, 13]);
        let first = sessions.add(Session::new(7, 12, TTL, at(0))).unwrap();
        assert!(sessions.slot(13).is_none());
        let slots: Vec<LeaseSlot> = (1..MAX_KEYS).map_while(|_| sessions.slot(12)).collect();
        assert_eq!(slots.len() + 1, MAX_KEYS);
        assert!(sessions.slot(12).is_none());
        drop(first);
        assert!(sessions.slot(12).is_some());
    }
}
