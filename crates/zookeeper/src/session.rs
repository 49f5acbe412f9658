//! What the client knows about a session. The server deletes all nodes of a session together, when it has received
//! nothing from the session for the timeout of the session.
//!
//! How long a session counts as valid needs a proof. A server answers reads and pings by itself, whether or not its
//! leader learns of them. A server that was cut off from its leader continues to answer for some seconds after the
//! leader has ended the session. So only requests that need a quorum count here: changes. The heartbeat is a change
//! that changes nothing.
//!
//! Every half tick the leader asks its servers from which sessions they received anything since its previous question,
//! and restarts the full timeout of these sessions. Let a change leave at `s` and be answered, and let a second change
//! leave after that answer and be answered too. Before the server answered the first change, it had received the
//! leader's last question before that change, which was asked at `s` - half a tick at the earliest. It had answered
//! that question before it passed on the second change, on the same stream. So the leader knew of every request of this
//! session until `s` - half a tick, and the newest of these requests was sent at most one heartbeat interval before
//! that time. Clients cannot read the tick. Servers come with a tick of two seconds, or three without any
//! configuration, and by default grant no timeout below two ticks. So half a tick is assumed to be 1.5 s, or a quarter
//! of the timeout if that is less.
//!
//! (<https://github.com/apache/zookeeper/blob/release-3.8.0/zookeeper-server/src/main/java/org/apache/zookeeper/server/quorum/LearnerSessionTracker.java>,
//! `Leader.java`: "`Thread.sleep(self.tickTime / 2)`")

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI32, AtomicI64},
    },
    time::Duration,
};

use leasehold_core::{EngineError, Fault, Instant, Lineage, deadline};
use tokio::sync::Notify;

use crate::{lock_mutex, wire::Welcome};

/// The number of heartbeats in one timeout.
const HEARTBEATS_PER_TIMEOUT: u32 = 16;
/// The number of heartbeats in one timeout of a session without nodes: these heartbeats keep the session fresh for the
/// next claim.
const IDLE_HEARTBEATS_PER_TIMEOUT: u32 = 5;
/// Half a tick: the longest time for which a request can be unknown to the leader.
const HALF_TICK: Duration = Duration::from_millis(1500);
/// Half a tick is assumed to be at most the timeout divided by this.
const HALF_TICK_FRACTION: u32 = 4;
/// An unanswered heartbeat is followed by another heartbeat after the timeout divided by this.
const RESEND_FRACTION: u32 = 16;
/// The largest total length of the paths of a session's nodes. When the session ends, the server writes all of them
/// into one change, which is limited to a megabyte.
pub(crate) const MAX_PATH_BYTES: usize = 512 * 1024;
/// How long a session without nodes is kept; if its timeout is longer, it is kept for its timeout. A claim without a
/// session has to connect first.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// The length of the password of a session that does not exist yet; the server chooses the real password.
const PASSWORD_BYTES: usize = 16;

/// What this client knows of a session of ZooKeeper, apart from its connection.
pub(crate) struct SessionState {
    /// The requested timeout. Claims that request the same timeout share the session.
    pub(crate) requested_timeout: Duration,
    inner: Mutex<Inner>,
    /// The newest change that any server has reported, as its zxid.
    pub(crate) newest_zxid: Arc<AtomicI64>,
    /// The number (xid) of the last request.
    pub(crate) last_xid: Arc<AtomicI32>,
    /// Notified when the session was confirmed and when it is gone.
    pub(crate) changed: Notify,
    /// Wakes the maintenance task when the session is gone.
    wake_maintenance: Arc<Notify>,
}

/// The part of a [`SessionState`] that changes.
struct Inner {
    /// 0 until the server has created the session.
    id: i64,
    password: Vec<u8>,
    /// The timeout that the server granted.
    timeout: Duration,
    /// When the newest confirmed change was sent. A change is confirmed if it was answered before a later change was
    /// sent, and the later change was answered too. Before the first confirmed change: when the session was requested.
    confirmed_sent: Instant,
    /// When the newest answered change was sent, and when it was answered. This change is confirmed as soon as a change
    /// that was sent after its answer is answered too.
    last_answered: (Instant, Instant),
    /// When the last heartbeat was sent.
    heartbeat_sent: Instant,
    /// The lineage of the tokens of this ensemble; `None` until it is read.
    lineage: Option<Lineage>,
    /// The session has ended on the server, or is being closed and used no more. This state is final.
    gone: bool,
    /// The session gives out no further slots, because a caller is about to close the session.
    closing: bool,
    /// When one of its slots was last in use.
    last_used: Instant,
    /// The number of slots in use, and the total length of the paths of their nodes.
    slots: usize,
    path_bytes: usize,
    /// The number of slots that the session ever gave out.
    slots_ever: u64,
}

impl Inner {
    /// How long the nodes of the session count as valid after a confirmed change.
    fn max_validity(&self) -> Duration {
        let unreported =
            HALF_TICK.min(self.timeout / HALF_TICK_FRACTION) + self.timeout / HEARTBEATS_PER_TIMEOUT;
        self.timeout.saturating_sub(unreported)
    }
}

/// What the maintenance task has to do for a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionAction {
    /// Nothing until this time.
    WaitUntil(Instant),
    /// Send a heartbeat.
    Heartbeat,
    /// Close the session on the server: none of its slots was in use for a while.
    Close,
    /// Forget the session: it is gone.
    Forget,
}

impl SessionState {
    pub(crate) fn new(requested_timeout: Duration, now: Instant, wake_maintenance: Arc<Notify>) -> Self {
        let inner = Inner {
            id: 0,
            password: vec![0; PASSWORD_BYTES],
            timeout: requested_timeout,
            confirmed_sent: now,
            last_answered: (now, now),
            heartbeat_sent: now,
            lineage: None,
            gone: false,
            closing: false,
            last_used: now,
            slots: 0,
            path_bytes: 0,
            slots_ever: 0,
        };
        Self {
            requested_timeout,
            inner: Mutex::new(inner),
            newest_zxid: Arc::default(),
            last_xid: Arc::default(),
            changed: Notify::new(),
            wake_maintenance,
        }
    }

    /// The id of the session; 0 until the server has created it.
    pub(crate) fn id(&self) -> i64 {
        lock_mutex(&self.inner).id
    }

    /// The id and the password with which a new connection resumes the session.
    pub(crate) fn identity(&self) -> (i64, Vec<u8>) {
        let state = lock_mutex(&self.inner);
        (state.id, state.password.clone())
    }

    /// The timeout that the server granted.
    pub(crate) fn timeout(&self) -> Duration {
        lock_mutex(&self.inner).timeout
    }

    /// Records the answer to a request, sent at `sent`, to create or resume the session. If the session has ended,
    /// marks it as gone and returns false.
    pub(crate) fn record_welcome(&self, welcome: Welcome, (sent, now): (Instant, Instant)) -> bool {
        let mut state = lock_mutex(&self.inner);
        if welcome.session == 0 || state.gone {
            drop(state);
            self.end();
            return false;
        }
        if state.id == 0 {
            (state.id, state.confirmed_sent, state.heartbeat_sent) = (welcome.session, sent, sent);
            state.last_answered = (sent, now);
        }
        state.password = welcome.password;
        state.timeout = Duration::from_millis(u64::try_from(welcome.timeout_millis).unwrap_or(0));
        true
    }

    pub(crate) fn lineage(&self) -> Option<Lineage> {
        lock_mutex(&self.inner).lineage
    }

    pub(crate) fn set_lineage(&self, lineage: Lineage) {
        lock_mutex(&self.inner).lineage = Some(lineage);
    }

    /// Until when the nodes of the session count as valid; a time in the past if the session is gone or not created
    /// yet.
    pub(crate) fn valid_until(&self) -> Instant {
        let state = lock_mutex(&self.inner);
        if state.gone || state.id == 0 {
            return Instant::from_nanos(0);
        }
        deadline(state.confirmed_sent, state.max_validity())
    }

    /// The longest validity, counted from a confirmed change.
    pub(crate) fn max_validity(&self) -> Duration {
        lock_mutex(&self.inner).max_validity()
    }

    /// How long the nodes of the session still count as valid; `None` if they do not count as valid any more.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        Some(self.valid_until().since(now)).filter(|remaining| !remaining.is_zero())
    }

    /// Whether the session is valid for at least half of its timeout, so that a new hold lasts for a while.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        self.valid_until().since(now) >= self.timeout() / 2
    }

    /// Records that a change that was sent at `sent` was answered by `now`. If the change was sent after the answer to
    /// the previous change, the previous change is confirmed now.
    pub(crate) fn record_answer(&self, sent: Instant, now: Instant) {
        let mut state = lock_mutex(&self.inner);
        let (previous_sent, previous_answered) = state.last_answered;
        if sent >= previous_answered {
            state.confirmed_sent = state.confirmed_sent.max(previous_sent);
            state.last_answered = (sent, now);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock_mutex(&self.inner).gone
    }

    /// Marks the session as gone: it has ended or is being closed, and is not used any more.
    pub(crate) fn end(&self) {
        lock_mutex(&self.inner).gone = true;
        self.changed.notify_waiters();
        self.wake_maintenance.notify_one();
    }

    /// Stops giving out slots if the slot in use is the only one that the session ever gave out. Returns true if so:
    /// then the caller must close the session. Otherwise changes nothing and returns false.
    pub(crate) fn close_if_used_once(&self) -> bool {
        let mut state = lock_mutex(&self.inner);
        let is_only_use = state.slots_ever == 1 && !state.gone;
        state.closing |= is_only_use;
        is_only_use
    }

    /// Stops giving out slots if only one slot is in use, that of the caller. Returns true if so: then the caller must
    /// close the session. Otherwise changes nothing and returns false.
    pub(crate) fn close_if_last_slot(&self) -> bool {
        let mut state = lock_mutex(&self.inner);
        let is_last_slot = state.slots == 1 && !state.gone;
        state.closing |= is_last_slot;
        is_last_slot
    }

    /// Whether the caller, which waits for a confirmation, has to send a heartbeat now. False while a heartbeat is in
    /// flight, until it is time to send it again. If true, counts the heartbeat as sent.
    pub(crate) fn should_send_heartbeat(&self, now: Instant) -> bool {
        let mut state = lock_mutex(&self.inner);
        let last_change_sent = state.last_answered.0;
        let is_due = last_change_sent >= state.heartbeat_sent
            || now >= state.heartbeat_sent.after(state.timeout / RESEND_FRACTION);
        if is_due {
            state.heartbeat_sent = now;
        }
        is_due
    }

    /// What the maintenance task has to do at `now`. The answer counts as carried out, even if the caller has no
    /// connection: a heartbeat counts as sent at `now`, and a session that has to be closed counts as gone. A session
    /// with a slot in use counts as used at `now`.
    pub(crate) fn next_action(&self, now: Instant) -> SessionAction {
        let mut state = lock_mutex(&self.inner);
        if state.gone {
            return SessionAction::Forget;
        }
        if state.slots > 0 {
            state.last_used = now;
        } else if now.since(state.last_used) > state.timeout.max(IDLE_LIMIT) {
            state.gone = true;
            return SessionAction::Close;
        }
        if state.id == 0 {
            return SessionAction::WaitUntil(now.after(state.timeout));
        }
        let heartbeats = if state.slots > 0 { HEARTBEATS_PER_TIMEOUT } else { IDLE_HEARTBEATS_PER_TIMEOUT };
        let last_change_sent = state.last_answered.0;
        let next_heartbeat = last_change_sent.after(state.timeout / heartbeats);
        // A heartbeat that confirmed nothing, because it is unanswered or was a ping, is followed by the next one after
        // the resend time. If the newest answered change left after the last heartbeat, the next heartbeat is due later
        // than the resend time, so the resend time has no effect.
        let next = next_heartbeat.max(state.heartbeat_sent.after(state.timeout / RESEND_FRACTION));
        if now < next {
            return SessionAction::WaitUntil(next);
        }
        state.heartbeat_sent = now;
        SessionAction::Heartbeat
    }

    /// Reserves room for a claim whose nodes have paths of `path_bytes` bytes. An empty session accepts a claim of any
    /// size. False if the session has no room or is closing.
    pub(crate) fn try_reserve(&self, path_bytes: usize) -> bool {
        let mut state = lock_mutex(&self.inner);
        if state.gone || state.closing || (state.slots > 0 && state.path_bytes + path_bytes > MAX_PATH_BYTES)
        {
            return false;
        }
        state.slots += 1;
        state.path_bytes += path_bytes;
        state.slots_ever += 1;
        true
    }

    /// Returns the room of a claim.
    pub(crate) fn give_back(&self, path_bytes: usize) {
        let mut state = lock_mutex(&self.inner);
        state.slots -= 1;
        state.path_bytes -= path_bytes;
    }
}

/// The error of a claim whose session ended.
pub(crate) fn session_ended() -> EngineError {
    EngineError::new(Fault::Retry, "the session ended while it was needed")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(32);

    /// The time so many milliseconds after the start of the test.
    fn at_millis(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// A session that the server has created.
    fn created_session() -> SessionState {
        let session = SessionState::new(TIMEOUT, at_millis(0), Arc::default());
        let welcome = Welcome { session: 7, timeout_millis: 32_000, password: vec![1] };
        assert!(session.record_welcome(welcome, (at_millis(10), at_millis(20))));
        session
    }

    /// 32 seconds, less half a tick, less a sixteenth of the 32 seconds.
    const VALIDITY: Duration = Duration::from_millis(28_500);

    #[test]
    fn a_session_is_valid_for_less_than_two_changes_prove() {
        let session = created_session();
        assert_eq!(session.valid_until(), deadline(at_millis(10), VALIDITY));
        session.record_answer(at_millis(2000), at_millis(2500));
        assert_eq!(
            session.valid_until(),
            deadline(at_millis(10), VALIDITY),
            "until a later change is answered"
        );
        session.record_answer(at_millis(2400), at_millis(2600));
        assert_eq!(
            session.valid_until(),
            deadline(at_millis(10), VALIDITY),
            "a change that left before does not count"
        );
        session.record_answer(at_millis(4000), at_millis(4100));
        assert_eq!(session.valid_until(), deadline(at_millis(2000), VALIDITY));
        session.record_answer(at_millis(6000), at_millis(6100));
        assert_eq!(session.valid_until(), deadline(at_millis(4000), VALIDITY));
        assert!(session.is_fresh(at_millis(15_000)) && !session.is_fresh(at_millis(17_000)));
        assert!(
            session.remaining(at_millis(31_000)).is_some() && session.remaining(at_millis(33_000)).is_none()
        );
        session.end();
        session.record_answer(at_millis(8000), at_millis(8100));
        session.record_answer(at_millis(9000), at_millis(9100));
        assert!(session.valid_until() < at_millis(1), "no change revives it");
    }

    #[test]
    fn heartbeats_repeat_and_an_unanswered_one_is_sent_again() {
        let session = created_session();
        assert!(session.try_reserve(10));
        assert_eq!(session.next_action(at_millis(2009)), SessionAction::WaitUntil(at_millis(2010)));
        assert_eq!(session.next_action(at_millis(2010)), SessionAction::Heartbeat);
        assert_eq!(
            session.next_action(at_millis(2011)),
            SessionAction::WaitUntil(at_millis(4010)),
            "its answer is in flight"
        );
        assert!(!session.should_send_heartbeat(at_millis(3000)));
        assert_eq!(session.next_action(at_millis(4010)), SessionAction::Heartbeat);
        session.record_answer(at_millis(4010), at_millis(4011));
        assert_eq!(session.next_action(at_millis(4012)), SessionAction::WaitUntil(at_millis(6010)));
        assert!(session.should_send_heartbeat(at_millis(4013)), "for a waiting request");
        assert!(!session.should_send_heartbeat(at_millis(4014)), "a heartbeat is in flight");
        session.give_back(10);
        session.record_answer(at_millis(65_000), at_millis(65_001));
        assert_eq!(session.next_action(at_millis(65_002)), SessionAction::Close);
        assert_eq!(session.next_action(at_millis(65_003)), SessionAction::Forget);
        assert!(!session.try_reserve(1));
    }

    #[test]
    fn a_session_that_the_server_does_not_know_is_gone() {
        let session = created_session();
        let expired = Welcome { session: 0, timeout_millis: 0, password: Vec::new() };
        assert!(!session.record_welcome(expired, (at_millis(20), at_millis(30))) && session.has_ended());
    }

    #[test]
    fn a_session_is_full_at_its_bound_and_never_when_empty() {
        let session = created_session();
        assert!(session.try_reserve(MAX_PATH_BYTES + 1) && !session.try_reserve(1));
        session.give_back(MAX_PATH_BYTES + 1);
        assert!(session.try_reserve(MAX_PATH_BYTES) && !session.try_reserve(1));
        assert!(!session.close_if_used_once(), "it had more than one slot");
    }
}
