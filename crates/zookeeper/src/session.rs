//! What the client knows about a session. The server deletes all nodes of a session together, when it has received
//! nothing from the session for the timeout of the session.
//!
//! How long a session counts as valid needs a proof. A server answers reads and pings by itself, whether or not its
//! leader learns of them. A server that was cut off from its leader continues to answer for some seconds after the
//! leader has ended the session. So only requests that need a quorum count here: changes. The heartbeat is a change
//! that changes nothing.
//!
//! Every half tick the leader asks its servers which sessions they received anything from since the last question, and
//! restarts the full timeout of these sessions. Let a change leave at `s` and be answered, and let a second change
//! leave after that answer and be answered too. Before the server answered the first change, it had received the
//! leader's last question before that change, which was asked at `s` - half a tick at the earliest. It had answered
//! that question before it passed on the second change, on the same stream. So the leader knew of everything that this
//! session did until `s` - half a tick, and the newest of it is at most one heartbeat older. Clients cannot read the
//! tick. Servers come with a tick of two seconds, or three without any configuration, and by default grant no timeout
//! below two ticks. So half a tick is assumed to be 1.5 s, or a quarter of the timeout if that is less.
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

use crate::{lock_of, wire::Welcome};

/// The number of heartbeats in one timeout.
const BEATS_PER_TIMEOUT: u32 = 16;
/// The number of heartbeats in one timeout of a session without nodes: they keep it fresh for the next claim.
const IDLE_BEATS_PER_TIMEOUT: u32 = 5;
/// Half a tick, the longest time for which the leader may not know of a request: as a duration, and as the part of the
/// timeout that is used if it is shorter.
const HALF_TICK: Duration = Duration::from_millis(1500);
const HALF_TICK_FRACTION: u32 = 4;
/// An unanswered heartbeat is followed by another one after this part of the timeout.
const RESEND_FRACTION: u32 = 16;
/// The largest total length of the paths of a session's nodes. When the session ends, the server writes all of them
/// into one change, which is limited to a megabyte.
pub(crate) const MAX_BYTES: usize = 512 * 1024;
/// How long a session without nodes is kept, or for its timeout if that is longer. A claim without a session has to
/// connect first.
const IDLE_LIFE: Duration = Duration::from_secs(60);

/// What is known of a session without its connection.
pub(crate) struct Facts {
    /// The requested timeout. Claims that request the same timeout share the session.
    pub(crate) asked: Duration,
    state: Mutex<SessionState>,
    /// The newest change that any server has reported, as its zxid.
    pub(crate) seen: Arc<AtomicI64>,
    /// The number of the last request.
    pub(crate) xids: Arc<AtomicI32>,
    /// Notified when the session was confirmed and when it is gone.
    pub(crate) changed: Notify,
    /// Wakes the maintenance task when the session is gone.
    sooner: Arc<Notify>,
}

struct SessionState {
    id: i64,
    password: Vec<u8>,
    /// The timeout that the server granted.
    timeout: Duration,
    /// When the newest change left that was answered before a later change left that was answered too. At first, when
    /// the session was requested.
    confirmed: Instant,
    /// When the newest answered change left, and when it was answered. Once a later change is answered, this one counts
    /// as confirmed.
    answered: (Instant, Instant),
    /// When the last heartbeat left.
    beat_sent: Instant,
    lineage: Option<Lineage>,
    gone: bool,
    closing: bool,
    /// When one of its slots was last in use.
    last_used: Instant,
    slots: usize,
    bytes: usize,
    /// The number of slots that it ever gave out.
    slots_ever: u64,
}

impl SessionState {
    /// The longest time for which its nodes count as valid after a confirmed change.
    fn max_validity(&self) -> Duration {
        let unreported = HALF_TICK.min(self.timeout / HALF_TICK_FRACTION) + self.timeout / BEATS_PER_TIMEOUT;
        self.timeout.saturating_sub(unreported)
    }
}

/// What the maintenance task has to do for a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionStep {
    /// Nothing until this time.
    Nothing(Instant),
    /// Send a heartbeat.
    Beat,
    /// Close it on the server: no slot of it was in use for a while.
    Close,
    /// Drop it: it is gone.
    Forget,
}

impl Facts {
    pub(crate) fn new(asked: Duration, now: Instant, sooner: Arc<Notify>) -> Self {
        let state = SessionState {
            id: 0,
            password: vec![0; 16],
            timeout: asked,
            confirmed: now,
            answered: (now, now),
            beat_sent: now,
            lineage: None,
            gone: false,
            closing: false,
            last_used: now,
            slots: 0,
            bytes: 0,
            slots_ever: 0,
        };
        Self {
            asked,
            state: Mutex::new(state),
            seen: Arc::default(),
            xids: Arc::default(),
            changed: Notify::new(),
            sooner,
        }
    }

    /// 0 until the server has created the session.
    pub(crate) fn id(&self) -> i64 {
        lock_of(&self.state).id
    }

    /// The id and the password with which a new connection resumes the session.
    pub(crate) fn identity(&self) -> (i64, Vec<u8>) {
        let state = lock_of(&self.state);
        (state.id, state.password.clone())
    }

    /// The timeout that the server granted.
    pub(crate) fn timeout(&self) -> Duration {
        lock_of(&self.state).timeout
    }

    /// A server accepted the session on a request of `sent`. If the session has ended, marks it as gone and returns
    /// false.
    pub(crate) fn accepted(&self, welcome: Welcome, (sent, now): (Instant, Instant)) -> bool {
        let mut state = lock_of(&self.state);
        if welcome.session == 0 || state.gone {
            drop(state);
            self.end();
            return false;
        }
        if state.id == 0 {
            (state.id, state.confirmed, state.beat_sent) = (welcome.session, sent, sent);
            state.answered = (sent, now);
        }
        state.password = welcome.password;
        state.timeout = Duration::from_millis(u64::try_from(welcome.timeout_millis).unwrap_or(0));
        true
    }

    pub(crate) fn lineage(&self) -> Option<Lineage> {
        lock_of(&self.state).lineage
    }

    pub(crate) fn set_lineage(&self, lineage: Lineage) {
        lock_of(&self.state).lineage = Some(lineage);
    }

    /// Until when its nodes count as valid; a time in the past if the session is gone or not created yet.
    pub(crate) fn valid_until(&self) -> Instant {
        let state = lock_of(&self.state);
        if state.gone || state.id == 0 {
            return Instant::from_nanos(0);
        }
        deadline(state.confirmed, state.max_validity())
    }

    /// The longest validity, counted from a confirmed change.
    pub(crate) fn max_validity(&self) -> Duration {
        lock_of(&self.state).max_validity()
    }

    /// How long its nodes still count as valid; `None` if they do not.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        Some(self.valid_until().since(now)).filter(|remaining| !remaining.is_zero())
    }

    /// Whether half of the timeout is left, so that a new hold lasts for a while.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        self.valid_until().since(now) >= self.timeout() / 2
    }

    /// A change that left at `sent` was answered by `now`. The answered change before it now counts, if this one left
    /// after the answer to that one.
    pub(crate) fn confirmed(&self, sent: Instant, now: Instant) {
        let mut state = lock_of(&self.state);
        let (before, answered) = state.answered;
        if sent >= answered {
            state.confirmed = state.confirmed.max(before);
            state.answered = (sent, now);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_gone(&self) -> bool {
        lock_of(&self.state).gone
    }

    /// The session is over or is being closed: it is not used any more.
    pub(crate) fn end(&self) {
        lock_of(&self.state).gone = true;
        self.changed.notify_waiters();
        self.sooner.notify_one();
    }

    /// Gives out no further slot if the current one is the only one that it ever gave out. Returns whether that is so;
    /// the caller then closes the session.
    pub(crate) fn close_after_only_use(&self) -> bool {
        let mut state = lock_of(&self.state);
        let only = state.slots_ever == 1 && !state.gone;
        state.closing |= only;
        only
    }

    /// The same if the current slot is the only one in use.
    pub(crate) fn close_after_last(&self) -> bool {
        let mut state = lock_of(&self.state);
        let last = state.slots == 1 && !state.gone;
        state.closing |= last;
        last
    }

    /// Whether the caller, which waits for a confirmation, has to send a heartbeat now. False while a heartbeat is in
    /// flight, until it is time to send it again. Counts the heartbeat as sent.
    pub(crate) fn beat_now(&self, now: Instant) -> bool {
        let mut state = lock_of(&self.state);
        let due = state.answered.0 >= state.beat_sent
            || now >= state.beat_sent.after(state.timeout / RESEND_FRACTION);
        if due {
            state.beat_sent = now;
        }
        due
    }

    /// What the maintenance task has to do at `now`. The answer counts as carried out, even if the caller has no
    /// connection: a heartbeat counts as sent at `now`, and a session that has to be closed is gone. A session with a
    /// slot in use counts as used at `now`.
    pub(crate) fn step(&self, now: Instant) -> SessionStep {
        let mut state = lock_of(&self.state);
        if state.gone {
            return SessionStep::Forget;
        }
        if state.slots > 0 {
            state.last_used = now;
        } else if now.since(state.last_used) > state.timeout.max(IDLE_LIFE) {
            state.gone = true;
            return SessionStep::Close;
        }
        if state.id == 0 {
            return SessionStep::Nothing(now.after(state.timeout));
        }
        let beats = if state.slots > 0 { BEATS_PER_TIMEOUT } else { IDLE_BEATS_PER_TIMEOUT };
        let confirmed = state.answered.0;
        let due = confirmed.after(state.timeout / beats);
        // A heartbeat that confirmed nothing, because it is unanswered or was a ping, is followed by the next one after
        // the resend time. If the confirmed change left after the last heartbeat, `due` is not earlier than that.
        let at = if state.beat_sent > state.confirmed {
            due.max(state.beat_sent.after(state.timeout / RESEND_FRACTION))
        } else {
            due
        };
        if now < at {
            return SessionStep::Nothing(at);
        }
        state.beat_sent = now;
        SessionStep::Beat
    }

    /// Reserves room for a claim whose nodes have paths of `bytes` bytes. An empty session takes a claim of any size.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let mut state = lock_of(&self.state);
        if state.gone || state.closing || (state.slots > 0 && state.bytes + bytes > MAX_BYTES) {
            return false;
        }
        state.slots += 1;
        state.bytes += bytes;
        state.slots_ever += 1;
        true
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        let mut state = lock_of(&self.state);
        state.slots -= 1;
        state.bytes -= bytes;
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

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn begun() -> Facts {
        let facts = Facts::new(TIMEOUT, at(0), Arc::default());
        let welcome = Welcome { session: 7, timeout_millis: 32_000, password: vec![1] };
        assert!(facts.accepted(welcome, (at(10), at(20))));
        facts
    }

    /// 32 seconds without half a tick and a sixteenth of them.
    const VALIDITY: Duration = Duration::from_millis(28_500);

    #[test]
    fn a_session_is_valid_for_less_than_two_changes_prove() {
        let facts = begun();
        assert_eq!(facts.valid_until(), deadline(at(10), VALIDITY));
        facts.confirmed(at(2000), at(2500));
        assert_eq!(facts.valid_until(), deadline(at(10), VALIDITY), "until a later change is answered");
        facts.confirmed(at(2400), at(2600));
        assert_eq!(
            facts.valid_until(),
            deadline(at(10), VALIDITY),
            "a change that left before does not count"
        );
        facts.confirmed(at(4000), at(4100));
        assert_eq!(facts.valid_until(), deadline(at(2000), VALIDITY));
        facts.confirmed(at(6000), at(6100));
        assert_eq!(facts.valid_until(), deadline(at(4000), VALIDITY));
        assert!(facts.is_fresh(at(15_000)) && !facts.is_fresh(at(17_000)));
        assert!(facts.remaining(at(31_000)).is_some() && facts.remaining(at(33_000)).is_none());
        facts.end();
        facts.confirmed(at(8000), at(8100));
        facts.confirmed(at(9000), at(9100));
        assert!(facts.valid_until() < at(1), "no change revives it");
    }

    #[test]
    fn heartbeats_repeat_and_an_unanswered_one_is_sent_again() {
        let facts = begun();
        assert!(facts.take(10));
        assert_eq!(facts.step(at(2009)), SessionStep::Nothing(at(2010)));
        assert_eq!(facts.step(at(2010)), SessionStep::Beat);
        assert_eq!(facts.step(at(2011)), SessionStep::Nothing(at(4010)), "its answer is in flight");
        assert!(!facts.beat_now(at(3000)));
        assert_eq!(facts.step(at(4010)), SessionStep::Beat);
        facts.confirmed(at(4010), at(4011));
        assert_eq!(facts.step(at(4012)), SessionStep::Nothing(at(6010)));
        assert!(facts.beat_now(at(4013)), "for a waiting request");
        assert!(!facts.beat_now(at(4014)), "a heartbeat is in flight");
        facts.give_back(10);
        facts.confirmed(at(65_000), at(65_001));
        assert_eq!(facts.step(at(65_002)), SessionStep::Close);
        assert_eq!(facts.step(at(65_003)), SessionStep::Forget);
        assert!(!facts.take(1));
    }

    #[test]
    fn a_session_that_the_server_does_not_know_is_gone() {
        let facts = begun();
        let expired = Welcome { session: 0, timeout_millis: 0, password: Vec::new() };
        assert!(!facts.accepted(expired, (at(20), at(30))) && facts.is_gone());
    }

    #[test]
    fn a_session_is_full_at_its_bound_and_never_when_empty() {
        let facts = begun();
        assert!(facts.take(MAX_BYTES + 1) && !facts.take(1));
        facts.give_back(MAX_BYTES + 1);
        assert!(facts.take(MAX_BYTES) && !facts.take(1));
        assert!(!facts.close_after_only_use(), "it had more than one slot");
    }
}
