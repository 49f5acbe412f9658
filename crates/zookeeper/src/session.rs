//! What is known of a session: the server ends all nodes of it together when it has not heard of it for its timeout.
//!
//! How long it may be believed in takes a proof. A server answers reads and pings by itself, whether its leader hears of them or
//! not, and one that was cut off from its leader goes on for some seconds after the leader has ended the session. So only
//! what needs a quorum counts here: changes, of which an empty one is the heartbeat.
//!
//! The leader asks its servers every half tick which sessions they heard of since, and gives these all of their time anew. Let a
//! change leave at `s` and be answered, and a second one leave after that and be answered too. Before it answered the first, the
//! server had heard the leader's last question before that change, asked at `s` - half a tick at the earliest, and it had
//! answered that question before it sent the second change on the same stream. So the leader was told of all that this session
//! did until `s` - half a tick, which is a heartbeat more at the latest. Clients cannot ask for the tick. Servers come with two
//! seconds, three without any configuration, and by default grant no timeout below two ticks; so half a tick is taken to be a
//! second and a half, or a quarter of the timeout if that is less.
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

/// Heartbeats come so often in one timeout.
const BEATS_PER_TIMEOUT: u32 = 16;
/// And so often while it has no nodes: who comes next finds it fresh.
const IDLE_BEATS_PER_TIMEOUT: u32 = 5;
/// For how long the leader may not have been told, at most, and in parts of the timeout: half a tick.
const HALF_TICK: Duration = Duration::from_millis(1500);
const HALF_TICK_FRACTION: u32 = 4;
/// An unanswered heartbeat is sent again after this part of the timeout.
const RESEND_FRACTION: u32 = 16;
/// The longest paths of nodes of one session, together: when it ends, the server writes all of them into one change, which may have
/// a megabyte.
pub(crate) const MAX_BYTES: usize = 512 * 1024;
/// A session without nodes is kept for so long: acquiring without one takes another connection.
const IDLE_LIFE: Duration = Duration::from_secs(60);

/// A session, as far as it can be known without a connection.
pub(crate) struct Facts {
    /// The timeout that was asked for: claims that ask for the same share it.
    pub(crate) asked: Duration,
    state: Mutex<SessionState>,
    /// The newest change that a server said it knows of.
    pub(crate) seen: Arc<AtomicI64>,
    /// The last number of a request.
    pub(crate) xids: Arc<AtomicI32>,
    /// Rings when it was confirmed, and when it is gone.
    pub(crate) changed: Notify,
    /// Rings when it is gone.
    sooner: Arc<Notify>,
}

struct SessionState {
    id: i64,
    password: Vec<u8>,
    /// What the server granted.
    timeout: Duration,
    /// When the newest change left that was answered before another one left which was answered; first, the one that made it.
    confirmed: Instant,
    /// When a change left that was answered, and when that was: the next to be counted.
    answered: (Instant, Instant),
    /// When the last heartbeat left.
    beat_sent: Instant,
    lineage: Option<Lineage>,
    gone: bool,
    closing: bool,
    /// When it had a node last.
    last_used: Instant,
    slots: usize,
    bytes: usize,
    /// How many claims it has had in all.
    claims_ever: u64,
}

impl SessionState {
    /// For how long at most its nodes may be believed in after a change that counts.
    fn max_validity(&self) -> Duration {
        let unreported = HALF_TICK.min(self.timeout / HALF_TICK_FRACTION) + self.timeout / BEATS_PER_TIMEOUT;
        self.timeout.saturating_sub(unreported)
    }
}

/// What a session wants now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionStep {
    Nothing(Instant),
    Beat,
    /// Nobody has used it for a while.
    Close,
    /// It is over.
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
            claims_ever: 0,
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

    /// 0 before it has begun.
    pub(crate) fn id(&self) -> i64 {
        lock_of(&self.state).id
    }

    /// What a server has to be told to go on with it.
    pub(crate) fn identity(&self) -> (i64, Vec<u8>) {
        let state = lock_of(&self.state);
        (state.id, state.password.clone())
    }

    /// The timeout that the server granted.
    pub(crate) fn timeout(&self) -> Duration {
        lock_of(&self.state).timeout
    }

    /// A server took it, asked at `sent`. False if it is over.
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

    /// Until when its nodes may be believed in.
    pub(crate) fn valid_until(&self) -> Instant {
        let state = lock_of(&self.state);
        if state.gone || state.id == 0 {
            return Instant::from_nanos(0);
        }
        deadline(state.confirmed, state.max_validity())
    }

    /// For how long they may be believed in at most, counted from any time on.
    pub(crate) fn max_validity(&self) -> Duration {
        lock_of(&self.state).max_validity()
    }

    /// For how long its nodes may still be believed in; `None`: no longer.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        Some(self.valid_until().since(now)).filter(|remaining| !remaining.is_zero())
    }

    /// Whether it was confirmed lately, so that what is granted now lasts for a while.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        self.valid_until().since(now) >= self.timeout() / 2
    }

    /// A change that left at `sent` was answered by `now`.
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

    /// It is over, or is being ended: nothing is to be done with it any more.
    pub(crate) fn end(&self) {
        lock_of(&self.state).gone = true;
        self.changed.notify_waiters();
        self.sooner.notify_one();
    }

    /// Lets nobody in any more if the claim that it has now is the only one it ever had; true if so. It is then to be closed.
    pub(crate) fn close_after_only_use(&self) -> bool {
        let mut state = lock_of(&self.state);
        let only = state.claims_ever == 1 && !state.gone;
        state.closing |= only;
        only
    }

    /// The same if nobody else is on it.
    pub(crate) fn close_after_last(&self) -> bool {
        let mut state = lock_of(&self.state);
        let last = state.slots == 1 && !state.gone;
        state.closing |= last;
        last
    }

    /// Whether to send a heartbeat at once for somebody who waits for it: not while one is under way.
    pub(crate) fn beat_now(&self, now: Instant) -> bool {
        let mut state = lock_of(&self.state);
        let due = state.answered.0 >= state.beat_sent
            || now >= state.beat_sent.after(state.timeout / RESEND_FRACTION);
        if due {
            state.beat_sent = now;
        }
        due
    }

    /// What is to be done at `now`. That it is done is taken for granted.
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
        // What was confirmed was asked for, so after an answer the first of both counts.
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

    /// Room for a claim whose nodes have paths of so many bytes.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let mut state = lock_of(&self.state);
        if state.gone || state.closing || (state.slots > 0 && state.bytes + bytes > MAX_BYTES) {
            return false;
        }
        state.slots += 1;
        state.bytes += bytes;
        state.claims_ever += 1;
        true
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        let mut state = lock_of(&self.state);
        state.slots -= 1;
        state.bytes -= bytes;
    }
}

/// The error of a claim whose session ended under it.
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

    /// All but half a tick and a sixteenth of 32 seconds.
    const VALIDITY: Duration = Duration::from_millis(28_500);

    #[test]
    fn a_session_is_valid_for_less_than_two_changes_prove() {
        let facts = begun();
        assert_eq!(facts.valid_until(), deadline(at(10), VALIDITY));
        facts.confirmed(at(2000), at(2500));
        assert_eq!(
            facts.valid_until(),
            deadline(at(10), VALIDITY),
            "until another one is answered, which left after that"
        );
        facts.confirmed(at(2400), at(2600));
        assert_eq!(facts.valid_until(), deadline(at(10), VALIDITY), "not one that left before");
        facts.confirmed(at(4000), at(4100));
        assert_eq!(facts.valid_until(), deadline(at(2000), VALIDITY));
        facts.confirmed(at(6000), at(6100));
        assert_eq!(facts.valid_until(), deadline(at(4000), VALIDITY));
        assert!(facts.is_fresh(at(15_000)) && !facts.is_fresh(at(17_000)));
        assert!(facts.remaining(at(31_000)).is_some() && facts.remaining(at(33_000)).is_none());
        facts.end();
        facts.confirmed(at(8000), at(8100));
        facts.confirmed(at(9000), at(9100));
        assert!(facts.valid_until() < at(1), "nothing revives it");
    }

    #[test]
    fn heartbeats_repeat_and_an_unanswered_one_is_sent_again() {
        let facts = begun();
        assert!(facts.take(10));
        assert_eq!(facts.step(at(2009)), SessionStep::Nothing(at(2010)));
        assert_eq!(facts.step(at(2010)), SessionStep::Beat);
        assert_eq!(facts.step(at(2011)), SessionStep::Nothing(at(4010)), "its answer is under way");
        assert!(!facts.beat_now(at(3000)));
        assert_eq!(facts.step(at(4010)), SessionStep::Beat);
        facts.confirmed(at(4010), at(4011));
        assert_eq!(facts.step(at(4012)), SessionStep::Nothing(at(6010)));
        assert!(facts.beat_now(at(4013)), "for somebody who waits");
        assert!(!facts.beat_now(at(4014)), "one is under way");
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
        assert!(!facts.close_after_only_use(), "it had more than one");
    }
}
