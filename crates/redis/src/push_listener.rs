//! Handles the server's pushes, in the reader of the connection.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    ClaimId, Grant, Instant, Lineage, Loss, Mailbox, Name, Notification, Previous, ServerClock, Token,
};
use redis::{
    PushInfo, PushKind, Value,
    aio::{AsyncPushSender, SendError},
};
use tokio::sync::Notify;

use crate::{identity::Identity, keys::counter, open::Run};

/// One lineage: tokens are larger than the server's microseconds at their grant, so they grow whatever happens to its
/// data.
pub(crate) const LINEAGE: Lineage = Lineage::new(0);

/// Handles the pushes of a connection.
pub(crate) trait PushHandler: Send + Sync + 'static {
    /// A message on a channel.
    fn hear(&self, message: &[u8]);

    /// A tracked lock changed; `None` if all of them may have changed.
    fn invalidated(&self, lock: Option<&str>);
}

/// The pushes, the clock and the process of one server, for one client.
pub(crate) struct PushListener {
    prefix: String,
    /// The key of the newest token, if all slots share one.
    counter: String,
    /// Messages on this connection may come from other servers, which pass them on to each other.
    passed_on: bool,
    /// For how long after a prompt answer no other server can have taken its place, in nanoseconds.
    trust: AtomicU64,
    /// When the request with the newest prompt answer was sent, in nanoseconds.
    prompt: AtomicU64,
    pub(crate) mailbox: Arc<Mailbox>,
    clock: Mutex<ServerClock>,
    waiting: Mutex<HashSet<ClaimId>>,
    /// Locks that other programs hold, and for each our claims that are near the head of its queue.
    watched: Mutex<HashMap<String, HashSet<ClaimId>>>,
    in_flight: AtomicUsize,
    /// The server's clock when the connection was made, in microseconds.
    floor: AtomicU64,
    /// Notified when a claim or request begins to wait for the server.
    pub(crate) interest: Notify,
    met: Mutex<Met>,
    /// Pushed grants are confirmed with the server before they count.
    undated: AtomicBool,
}

/// What is known of the server's process.
#[derive(Default)]
struct Met {
    /// The run id at the newest connection, if there was a connection; the inner `None` if we may not know it.
    run: Option<Option<String>>,
    /// When the process was started, by its own clock in microseconds; `None` likewise.
    started: Option<u64>,
    /// It was a master at some time.
    was_master: bool,
    /// Our holds may be on it. Of a server without them it does not matter which process it is.
    keeps: bool,
}

/// A request in flight, until this is dropped.
pub(crate) struct UnderWay<'a>(&'a PushListener);

impl PushListener {
    pub(crate) fn new(prefix: &str, mailbox: Arc<Mailbox>) -> Arc<Self> {
        Self::hearing(prefix, mailbox, false)
    }

    /// The listener for one of several servers that pass published messages on to each other.
    pub(crate) fn of_many(prefix: &str, mailbox: Arc<Mailbox>) -> Arc<Self> {
        Self::hearing(prefix, mailbox, true)
    }

    fn hearing(prefix: &str, mailbox: Arc<Mailbox>, passed_on: bool) -> Arc<Self> {
        Arc::new(Self {
            passed_on,
            trust: AtomicU64::new(u64::MAX),
            prompt: AtomicU64::new(0),
            prefix: prefix.to_owned(),
            counter: counter(prefix, None),
            mailbox,
            clock: Mutex::default(),
            waiting: Mutex::default(),
            watched: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            floor: AtomicU64::new(0),
            interest: Notify::new(),
            met: Mutex::new(Met { keeps: !passed_on, ..Met::default() }),
            undated: AtomicBool::new(false),
        })
    }

    /// From now on every pushed grant is confirmed with the server before it counts.
    pub(crate) fn ask_before_believing(&self) {
        self.undated.store(true, Ordering::Relaxed);
    }

    /// A connection leads to this process. If it is not the process of the last connection, or may not be, our holds
    /// may be missing there: it may be a replica that became the master, or a server that was started from an older
    /// copy.
    pub(crate) fn meets(&self, identity: &Identity) {
        let mut met = lock_of(&self.met);
        met.was_master |= identity.role == "master";
        let other = match (&met.run, &identity.run) {
            (None, _) => false,
            (Some(Some(before)), Some(now)) => before != now,
            _ => true,
        };
        met.run = Some(identity.run.clone());
        let keeps = met.keeps;
        drop(met);
        if other && keeps {
            tracing::debug!("another server, or one that was started anew: holds are in doubt");
            self.mailbox.push(Notification::Doubt);
        }
    }

    /// The process of the newest connection: its run id, and when it was started, by its own clock in microseconds.
    pub(crate) fn process(&self) -> Option<(String, u64)> {
        let met = lock_of(&self.met);
        met.run.clone().flatten().zip(met.started)
    }

    /// The process had run for `uptime` seconds when its clock was at `micros`.
    pub(crate) fn started(&self, uptime: Option<u64>, micros: u64) {
        // Both are in whole seconds: it did not start before this.
        lock_of(&self.met).started =
            uptime.map(|seconds| micros.saturating_sub(seconds.saturating_mul(1_000_000)));
    }

    /// From now on our holds may be on it.
    pub(crate) fn keeps(&self) {
        lock_of(&self.met).keeps = true;
    }

    /// Whether to ask for the run id.
    pub(crate) fn asks_for_run(&self) -> Run {
        if matches!(lock_of(&self.met).run, Some(None)) { Run::Leave } else { Run::Ask }
    }

    /// Whether a connection ever led to a master.
    pub(crate) fn was_master(&self) -> bool {
        lock_of(&self.met).was_master
    }

    /// Learns the server's time from an answer that came at `now` to a request sent at `sent`. Only successful answers
    /// count: an error may overtake earlier requests.
    pub(crate) fn learn(&self, sent: Instant, now: Instant, server_micros: u64) {
        if now.as_nanos().saturating_sub(sent.as_nanos()) <= self.trust.load(Ordering::Relaxed) {
            self.prompt.fetch_max(sent.as_nanos(), Ordering::Relaxed);
        }
        let ahead = lock_of(&self.clock).learn(sent, now, Duration::from_micros(server_micros));
        if let Some(ahead) = ahead {
            tracing::warn!(?ahead, "the server's clock went forward: holds are in doubt");
            self.mailbox.push(Notification::Doubt);
        }
    }

    /// A connection was begun at `sent` and made at `now`, and the server's clock was at `floor`. If the clock is ahead
    /// of the expected time, because the machine was restarted or is another one, holds are in doubt as well.
    pub(crate) fn connected(&self, sent: Instant, now: Instant, floor: u64) {
        self.learn(sent, now, floor);
        lock_of(&self.watched).clear();
        self.floor.store(floor, Ordering::Relaxed);
    }

    /// The key of the newest token of a slot, or of all slots.
    pub(crate) fn counter(&self, slot: Option<u16>) -> Cow<'_, str> {
        slot.map_or(Cow::Borrowed(&self.counter), |slot| Cow::Owned(counter(&self.prefix, Some(slot))))
    }

    /// The server's time when the connection was made. A counter that is not above it may have lost tokens.
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Relaxed)
    }

    /// Slots came to this server when its clock was at `floor`.
    pub(crate) fn raise_floor(&self, floor: u64) {
        self.floor.fetch_max(floor, Ordering::Relaxed);
    }

    /// Whether a claim waits for notifications.
    pub(crate) fn somebody_waits(&self) -> bool {
        !lock_of(&self.waiting).is_empty()
    }

    pub(crate) fn waits(&self, claim: ClaimId, waits: bool) {
        let mut waiting = lock_of(&self.waiting);
        if !waits {
            let waited = waiting.remove(&claim);
            drop(waiting);
            if waited {
                lock_of(&self.watched).retain(|_, watchers| {
                    watchers.remove(&claim);
                    !watchers.is_empty()
                });
            }
        } else if waiting.insert(claim) && waiting.len() == 1 {
            self.interest.notify_one();
        }
    }

    /// The claim is to ask when the server reports that this lock changed. Bounded by the number of waiting claims.
    pub(crate) fn watch(&self, lock: String, claim: ClaimId) {
        lock_of(&self.watched).entry(lock).or_default().insert(claim);
    }

    /// The lock changed: its watchers ask again.
    pub(crate) fn changed(&self, lock: &str) {
        let watchers = lock_of(&self.watched).remove(lock);
        let Some(name) = self.name(lock) else { return };
        for id in watchers.into_iter().flatten() {
            self.mailbox.push(Notification::Recheck { name: name.clone(), id });
        }
    }

    pub(crate) fn under_way(&self) -> UnderWay<'_> {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            self.interest.notify_one();
        }
        UnderWay(self)
    }

    /// Whether a claim waits for notifications, or a request for its answer.
    pub(crate) fn is_wanted(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0 || self.somebody_waits()
    }

    /// From now on, a notification that comes more than `time` after a prompt answer proves nothing: a server that was
    /// stopped for so long may have been replaced, and still grants for requests in its socket when it runs again.
    pub(crate) fn trust(&self, time: Duration) {
        self.trust.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// A message that this server published itself, received at `now`.
    pub(crate) fn hear_own(&self, message: &[u8], now: Instant) {
        let since_prompt = now.as_nanos().saturating_sub(self.prompt.load(Ordering::Relaxed));
        let is_trusted = since_prompt <= self.trust.load(Ordering::Relaxed);
        match std::str::from_utf8(message).ok().and_then(|text| self.read(text)) {
            Some(Notification::Granted { name, id, grant, .. }) if !is_trusted => {
                self.mailbox.push(Notification::Granted { name, id, grant, since: None });
            }
            Some(notification) => self.mailbox.push(notification),
            None => {}
        }
    }

    /// Reads `granted <id> <token> <tokens> <claim ms> <server us> <how the hold before ended> <lock>`,
    /// `broken <id> <lock>` or `ring <id> <lock>`.
    fn read(&self, text: &str) -> Option<Notification> {
        if let Some(rest) = text.strip_prefix("broken ") {
            let (id, lock) = rest.split_once(' ')?;
            return Some(Notification::Lost {
                name: self.name(lock)?,
                id: ClaimId::read(id)?,
                loss: Loss::Broken,
            });
        }
        if let Some(rest) = text.strip_prefix("ring ") {
            let (id, lock) = rest.split_once(' ')?;
            return Some(Notification::Recheck { name: self.name(lock)?, id: ClaimId::read(id)? });
        }
        let mut words = text.strip_prefix("granted ")?.splitn(7, ' ');
        let mut word = || words.next();
        let id = ClaimId::read(word()?)?;
        let token = Token { lineage: LINEAGE, number: word()?.parse().ok()? };
        let tokens = word()?.parse().ok()?;
        let ttl = Duration::from_millis(word()?.parse().ok()?);
        let granted_at = Duration::from_micros(word()?.parse().ok()?);
        let previous = previous(word()?);
        let name = self.name(word()?)?;
        self.waits(id, false);
        let grant = Grant { token, tokens, ttl: Some(ttl), previous };
        let undated = self.undated.load(Ordering::Relaxed);
        let since = if undated { None } else { lock_of(&self.clock).not_after(granted_at) };
        Some(Notification::Granted { name, id, grant, since })
    }

    fn name(&self, lock: &str) -> Option<Name> {
        Name::new(lock.strip_prefix(&self.prefix)?).ok()
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PushHandler for PushListener {
    fn hear(&self, message: &[u8]) {
        match std::str::from_utf8(message).ok().and_then(|text| self.read(text)) {
            // It is unknown by which server's clock, so the claim asks.
            Some(Notification::Granted { name, id, grant, .. }) if self.passed_on => {
                self.mailbox.push(Notification::Granted { name, id, grant, since: None });
            }
            Some(notification) => self.mailbox.push(notification),
            None => {}
        }
    }

    fn invalidated(&self, lock: Option<&str>) {
        match lock {
            Some(lock) => self.changed(lock),
            None => self.mailbox.push(Notification::AskAll),
        }
    }
}

/// Called by the reader of the connection for each push, in their order.
pub(crate) struct Hear<L>(pub(crate) Arc<L>);

impl<L: PushHandler> AsyncPushSender for Hear<L> {
    fn send(&self, info: PushInfo) -> Result<(), SendError> {
        match (info.kind, info.data.last()) {
            (PushKind::Message, Some(Value::BulkString(text))) => self.0.hear(text),
            (PushKind::Invalidate, Some(Value::Array(locks))) => {
                for lock in locks {
                    if let Value::BulkString(lock) = lock {
                        self.0.invalidated(Some(&String::from_utf8_lossy(lock)));
                    }
                }
            }
            // The server dropped all keys.
            (PushKind::Invalidate, _) => self.0.invalidated(None),
            _ => {}
        }
        Ok(())
    }
}

/// How the hold before ended, by the letter of the scripts.
pub(crate) fn previous(letter: &str) -> Previous {
    match letter {
        "c" => Previous::Clean,
        "a" => Previous::Abandoned,
        "l" => Previous::Lapsed,
        "b" => Previous::Broken,
        _ => Previous::Unknown,
    }
}

/// The letter of the scripts.
pub(crate) fn letter(previous: Previous) -> &'static str {
    match previous {
        Previous::Clean => "c",
        Previous::Abandoned => "a",
        Previous::Lapsed => "l",
        Previous::Broken => "b",
        _ => "u",
    }
}

fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "000102030405060708090a0b0c0d0e0f";

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_pushed_grant_is_dated_by_what_the_servers_clock_said_last() {
        let listener = PushListener::new("lock:", Arc::default());
        let said = format!("granted {ID} 17 3 2000 5000000 l lock:a b");
        let since = |listener: &PushListener| match listener.read(&said) {
            Some(Notification::Granted { name, id, grant, since }) => {
                assert_eq!((name.as_str(), id.to_string().as_str()), ("a b", ID));
                assert_eq!((grant.token.number, grant.tokens, grant.previous), (17, 3, Previous::Lapsed));
                assert_eq!(grant.ttl, Some(Duration::from_secs(2)));
                since
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(since(&listener), None, "no evidence: ask before believing");
        // The server's clock was at 4.9 s when ours was at 100 ms: it reaches 5 s later than that, by an unknown time.
        listener.learn(at(100), at(101), 4_900_000);
        assert_eq!(since(&listener), Some(at(100)));
        // It was at 5.3 s when ours was at 500 ms: it was at 5 s not earlier than at our 200 ms.
        listener.learn(at(500), at(501), 5_300_000);
        assert_eq!(since(&listener), Some(at(200)));
    }

    #[test]
    fn notifications_of_a_server_that_may_have_been_replaced_are_asked_for() {
        let listener = PushListener::of_many("lock:", Arc::default());
        listener.trust(Duration::from_secs(1));
        let said = format!("granted {ID} 17 3 2000 5000000 l lock:a b");
        let is_dated = |now: u64| {
            listener.hear_own(said.as_bytes(), at(now));
            let notification = leasehold_testkit::dropper::poll_once(Box::pin(listener.mailbox.read()));
            matches!(notification.as_deref(), Some([Notification::Granted { since: Some(_), .. }]))
        };
        assert!(!is_dated(2000), "it has not answered yet");
        listener.learn(at(3000), at(3001), 4_000_000);
        assert!(is_dated(3500) && is_dated(4000));
        assert!(!is_dated(4001), "it may have been stopped since");
        listener.learn(at(4000), at(6000), 7_000_000);
        assert!(!is_dated(6001), "it was");
        listener.learn(at(6100), at(6101), 7_100_000);
        assert!(is_dated(6200));
        // Messages that others passed on are never dated.
        listener.hear(said.as_bytes());
        let notification = leasehold_testkit::dropper::poll_once(Box::pin(listener.mailbox.read()));
        assert!(matches!(notification.as_deref(), Some([Notification::Granted { since: None, .. }])));
    }

    #[test]
    fn a_clock_that_went_forward_puts_holds_in_doubt_also_on_a_new_connection() {
        let listener = PushListener::new("lock:", Arc::default());
        let is_doubted = || {
            let notification = leasehold_testkit::dropper::poll_once(Box::pin(listener.mailbox.read()));
            notification.is_some_and(|notification| matches!(notification[..], [Notification::Doubt]))
        };
        listener.learn(at(1000), at(1001), 50_000_000);
        assert!(!is_doubted());
        listener.learn(at(2000), at(2001), 52_000_000);
        assert!(is_doubted());
        listener.connected(at(3000), at(3001), 53_000_000);
        assert!(!is_doubted(), "the same server after a moment");
        listener.connected(at(4000), at(4001), 99_000_000);
        assert!(is_doubted(), "another server, far ahead");
    }

    #[test]
    fn a_connection_to_another_process_puts_holds_in_doubt() {
        let listener = PushListener::new("lock:", Arc::default());
        let is_doubted = |run: Option<&str>| {
            listener.meets(&Identity { run: run.map(str::to_owned), ..Identity::default() });
            let notification = leasehold_testkit::dropper::poll_once(Box::pin(listener.mailbox.read()));
            notification.is_some_and(|notification| matches!(notification[..], [Notification::Doubt]))
        };
        assert!(!is_doubted(Some("one")), "nothing was held before");
        assert!(!is_doubted(Some("one")));
        assert!(is_doubted(Some("two")));
        assert!(is_doubted(None), "nobody knows");
        assert!(is_doubted(None));
        assert_eq!(listener.asks_for_run(), Run::Leave);
    }

    #[test]
    fn a_node_without_slots_that_was_started_anew_puts_no_hold_in_doubt() {
        let listener = PushListener::of_many("lock:", Arc::default());
        let meet = |run: &str| {
            listener.meets(&Identity { run: Some(run.to_owned()), ..Identity::default() });
            leasehold_testkit::dropper::poll_once(Box::pin(listener.mailbox.read())).is_some()
        };
        assert!(!meet("one") && !meet("two"), "a replica that tells who has which slots");
        listener.keeps();
        assert!(!meet("two") && meet("three"));
    }

    #[test]
    fn what_is_no_notifications_of_ours_is_nothing() {
        let listener = PushListener::new("lock:", Arc::default());
        for text in [
            "",
            "granted",
            "granted x 1 1 1 1 c lock:a",
            "granted 1 1 1 1 c lock:a",
            &format!("granted {ID} x 1 1 1 c lock:a"),
            &format!("granted {ID} 1 1 1 1 c other:a"),
            &format!("granted {ID} 1 1 1 1 c lock:"),
            &format!("broken {ID}"),
            &format!("ring {ID}"),
            &format!("+{ID}"),
        ] {
            assert!(listener.read(text).is_none(), "{text:?}");
        }
        let broken = listener.read(&format!("broken {ID} lock:a"));
        assert!(matches!(broken, Some(Notification::Lost { loss: Loss::Broken, .. })));
    }
}
