//! One client of a database: the state and the steps that all verbs share, for every dialect.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    Answer, Claim, ClaimId, Clock, EngineError, Env, Fault, Grant, Hold, How, InFlight, Instant, Mailbox,
    Mode, Name, Notification, Release, Released, Renewed, ServerClock, Token,
};
use tokio::sync::{Notify, Semaphore};

use crate::{
    batch::Batch,
    database::{Database, Failed, Taken, Timed},
    engine::REQUEST_TIMEOUT,
    maintenance,
    row::{ClientId, previous_of},
    runtime,
    step::{REQUEST_LIFE, Reply, Verb},
    waiting_claims::{Arrival, WaitingClaims},
};

/// The maximum number of connections to a server. One is enough for most clients; the others serve requests while the
/// row of one name is locked by another client for long.
pub(crate) const CONNECTIONS: usize = 4;
/// A statement that takes longer waits for a lock of another client.
const SLOW: Duration = Duration::from_millis(500);
/// The tolerance between two reports of the same time.
const ROUND: Duration = Duration::from_millis(2);
/// How many holds one statement extends.
const RENEWED_AT_ONCE: usize = 1000;

/// The state that the verbs of one engine share.
pub(crate) struct Client {
    pub(crate) database: Arc<dyn Database>,
    pub(crate) id: ClientId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) mailbox: Mailbox,
    pub(crate) in_flight: InFlight,
    pub(crate) waiting: WaitingClaims,
    env: Env,
    /// The claims that this client holds, as far as it knows, until they are released or lost.
    held: Mutex<HashSet<ClaimId>>,
    server: Mutex<ServerClock>,
    takes: Arc<Batch<Claim, Option<Timed<Taken>>>>,
    frees: Arc<Batch<Release, Option<Timed<()>>>>,
    /// Notified when a claim enters the queue.
    pub(crate) queued: Arc<Notify>,
    maintained: AtomicBool,
    /// When to check next whether the holds that waiting claims wait for have ended.
    next_check: Mutex<Instant>,
    /// A claim entered the queue; not polled since.
    new_entry: AtomicBool,
    /// Notifications stopped; not polled since.
    listener_lost: AtomicBool,
    /// Limits claims that wait for the row of a name, so that renewals and releases of other names find a connection.
    claims: Semaphore,
    me: Weak<Client>,
}

impl Client {
    pub(crate) fn new(database: Arc<dyn Database>, id: ClientId, env: &Env) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            database,
            id,
            clock: Arc::clone(&env.clock),
            mailbox: Mailbox::default(),
            in_flight: InFlight::default(),
            waiting: WaitingClaims::default(),
            env: env.clone(),
            held: Mutex::default(),
            server: Mutex::default(),
            takes: Arc::default(),
            frees: Arc::default(),
            queued: Arc::default(),
            maintained: AtomicBool::new(false),
            next_check: Mutex::new(Instant::NEVER),
            new_entry: AtomicBool::new(false),
            listener_lost: AtomicBool::new(false),
            claims: Semaphore::new(CONNECTIONS - 1),
            me: Weak::clone(me),
        })
    }

    /// The LISTEN connection was lost.
    #[cfg(feature = "postgres")]
    pub(crate) fn note_listener_lost(&self) {
        self.listener_lost.store(true, Ordering::Relaxed);
        self.queued.notify_one();
    }

    /// Whether that happened since the last call.
    pub(crate) fn listener_was_lost(&self) -> bool {
        self.listener_lost.swap(false, Ordering::Relaxed)
    }

    /// A random number.
    pub(crate) fn jitter(&self) -> u32 {
        self.env.lineage().get() as u32
    }

    /// Whether this client holds anything.
    pub(crate) fn holds(&self) -> bool {
        !lock_of(&self.held).is_empty()
    }

    pub(crate) fn note_held(&self, id: ClaimId) {
        lock_of(&self.held).insert(id);
    }

    /// A claim entered the queue.
    pub(crate) fn note_queued(&self) {
        self.new_entry.store(true, Ordering::Relaxed);
        self.queued.notify_one();
    }

    /// Whether that happened since the last call.
    pub(crate) fn was_queued(&self) -> bool {
        self.new_entry.swap(false, Ordering::Relaxed)
    }

    /// A hold that a claim waits for ends after `left`, unless it is extended.
    pub(crate) fn check_in(&self, left: Duration) {
        let at = self.now().after(left);
        let mut next_check = lock_of(&self.next_check);
        // A repeated report of the same time is not earlier only because it travelled faster.
        if at.after(ROUND) < *next_check {
            *next_check = at;
            self.queued.notify_one();
        }
    }

    pub(crate) fn next_check(&self) -> Instant {
        *lock_of(&self.next_check)
    }

    /// A check starts now; the next one starts after `again` at the latest.
    pub(crate) fn check_started(&self, again: Duration) {
        *lock_of(&self.next_check) = self.now().after(again);
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Learns the time of the database from an answer to a request sent at `sent`.
    pub(crate) fn learn(&self, sent: Instant, micros: i64) {
        let server = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        let ahead = lock_of(&self.server).learn(sent, self.now(), server);
        if let Some(ahead) = ahead {
            tracing::warn!(?ahead, "the clock of the database went forward: holds are in doubt");
            self.mailbox.push(Notification::Doubt);
        }
    }

    /// A local time that is certainly not after the moment at which the database's clock showed `micros`.
    pub(crate) fn not_after(&self, micros: i64) -> Option<Instant> {
        lock_of(&self.server).not_after(Duration::from_micros(u64::try_from(micros).ok()?))
    }

    pub(crate) async fn claim(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        if !self.maintained.swap(true, Ordering::Relaxed) {
            self.start_maintenance();
        }
        let now = self.now();
        if self.in_flight.is_released(claim.id, now) {
            return Ok(Answer::Gone);
        }
        // The same number for all connections: no connection shows when the statements of another one have ended.
        let in_flight = self.in_flight.start(claim.id, 0, now);
        let fresh = how == How::Create && !self.is_queued(claim.id);
        if fresh && claim.mode == Mode::Exclusive {
            let sent = self.now();
            let (database, client) = (Arc::clone(&self.database), self.id);
            let run = move |claims: Vec<Claim>| {
                let database = Arc::clone(&database);
                async move { bounded(database.take(&claims, client)).await }
            };
            let taken = self.takes.ask(claim.clone(), |claim| claim.name.clone(), run).await;
            let taken = settled(taken)?;
            if let Some(Timed { now, value: Taken { token, previous } }) = taken {
                in_flight.complete();
                self.learn(sent, now);
                self.note_held(claim.id);
                return Ok(Answer::Held(Grant {
                    token: self.token(token),
                    tokens: claim.tokens.max(1),
                    ttl: Some(claim.ttl),
                    previous: previous_of(previous),
                }));
            }
        }
        let entry_life = self.queue_entry_life(claim.ttl);
        let verb = Verb::Claim { claim: claim.clone(), how, client: self.id, entry_life };
        let arrival = Arrival::new(self, claim.id);
        let reply = settled(self.apply(&claim.name, &verb).await)?;
        in_flight.complete();
        let Reply::Claim(reply) = reply else { return Err(unreadable()) };
        let mut answer = reply.map_err(refused)?;
        if let Answer::Waiting(hint) = &mut answer {
            // A single check serves all claims of this client when a hold ends.
            let left = hint.ask_in.take();
            self.note_waiting(claim, left.is_some(), hint.ahead);
            if let Some(left) = left {
                self.check_in(left);
            }
            if let Some(notification) = arrival.deferred() {
                self.receive(&notification);
            }
        } else if matches!(answer, Answer::Held(_)) {
            self.note_held(claim.id);
            self.note_granted(claim.id);
        } else {
            self.forget(claim.id);
        }
        Ok(answer)
    }

    fn start_maintenance(&self) {
        let (me, queued) = (Weak::clone(&self.me), Arc::clone(&self.queued));
        let client = Weak::clone(&self.me);
        let on_failure = move || {
            // Claims and holds ask again for what the failed task left undone.
            if let Some(client) = client.upgrade() {
                client.mailbox.push(Notification::AskAll);
            }
        };
        runtime::spawn(leasehold_core::lasting(
            "maintenance",
            move || maintenance::run(Weak::clone(&me), Arc::clone(&queued)),
            on_failure,
            runtime::sleep,
        ));
    }

    pub(crate) async fn renew(&self, holds: &[Hold]) -> Vec<Renewed> {
        let mut order: Vec<usize> = (0..holds.len()).collect();
        order.sort_by(|&one, &other| holds[one].name.cmp(&holds[other].name));
        let mut answers: Vec<Option<Renewed>> = holds.iter().map(|_| None).collect();
        let shortest = holds.iter().map(|hold| hold.ttl).min().unwrap_or_default();
        for part in order.chunks(RENEWED_AT_ONCE) {
            let asked: Vec<Hold> = part.iter().map(|&at| holds[at].clone()).collect();
            let sent = self.now();
            // Other clients may have locked some rows for long: then each hold is renewed by itself.
            let limit = Some(shortest / 16).filter(|limit| asked.len() > 1 && *limit >= SLOW);
            let work = bounded(self.database.renew(&asked));
            let Some(renewed) = runtime::within(limit.unwrap_or(REQUEST_TIMEOUT), work).await else {
                continue;
            };
            match renewed {
                Ok(extended) => {
                    for (&at, extended) in part.iter().zip(extended) {
                        if let Some(Timed { now, .. }) = extended {
                            self.learn(sent, now);
                            // Equal rows in other tables are not ours.
                            if holds[at].token.lineage != self.database.lineage() {
                                continue;
                            }
                            answers[at] = Some(Renewed::Extended { ttl: Some(holds[at].ttl) });
                        }
                    }
                }
                Err(failed) => {
                    for &at in part {
                        answers[at] = Some(Renewed::Unknown(failed.clone().into()));
                    }
                }
            }
        }
        let renewals = holds.iter().zip(answers).map(|(hold, answer)| async {
            match answer {
                Some(answer) => answer,
                // Ends before the caller gives up on the answers for all holds.
                None => runtime::within(shortest / 8, self.renew_one(hold)).await.unwrap_or_else(slow),
            }
        });
        futures_util::future::join_all(renewals).await
    }

    /// Renews one hold in a transaction. For a hold that is gone this finds the reason, and grants to the next
    /// waiter.
    async fn renew_one(&self, hold: &Hold) -> Renewed {
        let verb = Verb::Renew { id: hold.id, token: hold.token, ttl: hold.ttl };
        match self.apply(&hold.name, &verb).await {
            Ok(Reply::Renewed(Ok(()))) => Renewed::Extended { ttl: Some(hold.ttl) },
            Ok(Reply::Renewed(Err(loss))) => {
                lock_of(&self.held).remove(&hold.id);
                Renewed::Lost(loss)
            }
            Ok(_) => Renewed::Unknown(unreadable()),
            Err(failed) => Renewed::Unknown(failed.into()),
        }
    }

    pub(crate) async fn release(&self, releases: &[Release]) -> Vec<Released> {
        let all = releases.iter().map(|release| async {
            let released = self.release_one(release).await;
            if !matches!(released, Released::Unknown(_)) {
                lock_of(&self.held).remove(&release.id);
            }
            released
        });
        futures_util::future::join_all(all).await
    }

    async fn release_one(&self, release: &Release) -> Released {
        let now = self.now();
        // The release is on no connection that shows when the requests of the claim have ended.
        let doubtful = self.in_flight.release(release.id, 1, now, now.after(REQUEST_LIFE));
        let had_waited = self.forget(release.id);
        let fast = release.token.is_some() && release.mode == Mode::Exclusive && release.min_hold.is_none();
        if fast && !doubtful && !had_waited {
            let database = Arc::clone(&self.database);
            let run = move |releases: Vec<Release>| {
                let database = Arc::clone(&database);
                async move { bounded(database.free(&releases)).await }
            };
            let sent = self.now();
            match self.frees.ask(release.clone(), |release| release.name.clone(), run).await {
                Ok(Some(Timed { now, .. })) => {
                    self.learn(sent, now);
                    return Released::Freed;
                }
                Ok(None) => {}
                Err(failed) => return Released::Unknown(failed.into()),
            }
        }
        let verb = Verb::Release { release: release.clone(), doubtful };
        match self.apply(&release.name, &verb).await {
            Ok(Reply::Released(freed)) => {
                self.in_flight.settle(release.id);
                if freed { Released::Freed } else { Released::NotThere }
            }
            Ok(_) => Released::Unknown(unreadable()),
            Err(failed) => Released::Unknown(failed.into()),
        }
    }

    /// Runs one transaction, and handles the resulting notifications to this client.
    pub(crate) async fn apply(&self, name: &Name, verb: &Verb) -> Result<Reply, Failed> {
        let waits = !matches!(verb, Verb::Renew { .. } | Verb::Release { .. });
        // The semaphore is never closed.
        let _permit = if waits { self.claims.acquire().await.ok() } else { None };
        let sent = self.now();
        let Timed { now, value: done } = bounded(self.database.apply(name, verb)).await?;
        self.learn(sent, now);
        for notification in done.notifications.iter().filter(|notification| notification.client == self.id) {
            self.receive(notification);
        }
        Ok(done.reply)
    }

    /// Ends what has expired in a part of the tables and was not ended by its owner; returns where the next part
    /// begins.
    pub(crate) async fn sweep(&self, after: &str, count: i64) -> Result<Option<String>, Failed> {
        let (stale, last) = bounded(self.database.sweep(after, count)).await?;
        self.end_expired(stale.iter()).await;
        Ok(last)
    }

    /// All at once, so that a row that is locked for long does not delay the others.
    pub(crate) async fn end_expired(&self, names: impl Iterator<Item = &Name>) {
        let all = names.map(|name| self.apply(name, &Verb::Settle));
        for failed in futures_util::future::join_all(all).await.into_iter().filter_map(Result::err) {
            tracing::debug!(%failed, "expired claims and holds could not be ended");
        }
    }

    fn token(&self, number: i64) -> Token {
        Token { lineage: self.database.lineage(), number: number.unsigned_abs() }
    }
}

/// Bounds the wait for an answer: a silent connection must not block its caller.
pub(crate) async fn bounded<T>(work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let late = || Failed::new(Fault::Unknown, format!("no answer within {REQUEST_TIMEOUT:?}"));
    runtime::within(REQUEST_TIMEOUT, work).await.unwrap_or_else(|| Err(late()))
}

fn slow() -> Renewed {
    Renewed::Unknown(EngineError::new(
        Fault::Unknown,
        "other clients have locked the row of the name for long",
    ))
}

/// A claim whose statement has no answer may have been granted.
fn settled<T>(answer: Result<T, Failed>) -> Result<T, EngineError> {
    answer.map_err(EngineError::from)
}

fn refused(refusal: leasehold_core::lock_state::Refusal) -> EngineError {
    use leasehold_core::lock_state::Refusal;
    let fault = match refusal {
        Refusal::QueueFull => Fault::Refused,
        _ => Fault::Misconfigured,
    };
    EngineError::new(fault, refusal.to_string())
}

pub(crate) fn unreadable() -> EngineError {
    EngineError::new(Fault::Internal, "the reply of the database does not match the request")
}

pub(crate) fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under these locks can panic in the middle of a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
