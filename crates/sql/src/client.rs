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
    Answer, Claim, ClaimId, Clock, EngineError, Env, Fault, Grant, Hold, How, InFlight, InFlightRequest,
    Instant, Mailbox, Mode, Name, Notification, Release, Released, Renewed, ServerClock, TimeLeft, Token,
};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::{
    batch::Batch,
    database::{Database, Failed, FastGrant, Timed},
    engine::REQUEST_TIMEOUT,
    maintenance,
    row::{ClientId, previous_of},
    runtime,
    step::{REQUEST_LIFE, Reply, Verb},
    waiting_claims::{Arrival, WaitingClaims},
};

/// How many connections of a client may serve requests at the same time, at most. One connection is enough for most
/// clients. Further connections serve requests while a request on the first one waits for a row that another client
/// keeps locked for long.
pub(crate) const CONNECTIONS: usize = 4;
/// The same, at least: a renewal needs a connection while a claim waits for a row.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) const MIN_CONNECTIONS: usize = 2;
/// A statement that takes longer than this probably waits for a row lock of another client.
const LIKELY_LOCK_WAIT: Duration = Duration::from_millis(500);
/// Two reports of the end of a hold that differ by less than this count as the same report.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(2);
/// The maximum number of holds that one statement extends.
const MAX_RENEWALS: usize = 1000;
/// The connection on which all claims count as sent, for [`InFlight`].
const CLAIM_CONNECTION: u64 = 0;
/// The connection on which all releases count as sent, for [`InFlight`].
const RELEASE_CONNECTION: u64 = 1;

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
    pub(crate) held: Mutex<HashSet<ClaimId>>,
    /// What is known of the clock of the database.
    server_clock: Mutex<ServerClock>,
    /// Combines fast-path claims into statements.
    claim_batch: Arc<Batch<Claim, Option<Timed<FastGrant>>>>,
    /// Combines fast-path releases into statements.
    release_batch: Arc<Batch<Release, Option<Timed<()>>>>,
    /// Notified to wake the maintenance task: when a claim entered the queue, when a check became due sooner, or when
    /// notifications stopped arriving.
    pub(crate) maintenance_wake: Arc<Notify>,
    /// Whether the maintenance task was started.
    maintenance_started: AtomicBool,
    /// When to check next whether the holds ahead of the waiting claims have ended.
    next_check: Mutex<Instant>,
    /// Whether a claim entered the queue since the last poll.
    new_entry: AtomicBool,
    /// Whether notifications stopped since the last poll.
    listener_lost: AtomicBool,
    /// Limits claims that wait for the row of a name, so that renewals and releases of other names find a connection.
    row_wait_permits: Semaphore,
    /// This client, for its maintenance task, which must not keep the client alive.
    weak_self: Weak<Client>,
}

impl Client {
    /// A client of the database, of which up to `connections` connections serve requests at the same time.
    pub(crate) fn new(database: Arc<dyn Database>, id: ClientId, env: &Env, connections: usize) -> Arc<Self> {
        Arc::new_cyclic(|weak_self| Self {
            database,
            id,
            clock: Arc::clone(&env.clock),
            mailbox: Mailbox::default(),
            in_flight: InFlight::default(),
            waiting: WaitingClaims::default(),
            env: env.clone(),
            held: Mutex::default(),
            server_clock: Mutex::default(),
            claim_batch: Arc::default(),
            release_batch: Arc::default(),
            maintenance_wake: Arc::default(),
            maintenance_started: AtomicBool::new(false),
            next_check: Mutex::new(Instant::NEVER),
            new_entry: AtomicBool::new(false),
            listener_lost: AtomicBool::new(false),
            row_wait_permits: Semaphore::new(connections - 1),
            weak_self: Weak::clone(weak_self),
        })
    }

    /// Records that the LISTEN connection was lost, and wakes the maintenance.
    #[cfg(feature = "postgres")]
    pub(crate) fn note_listener_lost(&self) {
        self.listener_lost.store(true, Ordering::Relaxed);
        self.maintenance_wake.notify_one();
    }

    /// Whether the LISTEN connection was lost since the last call.
    pub(crate) fn was_listener_lost(&self) -> bool {
        self.listener_lost.swap(false, Ordering::Relaxed)
    }

    /// A random number.
    pub(crate) fn random_number(&self) -> u32 {
        self.env.lineage().get() as u32
    }

    /// Whether this client holds anything.
    pub(crate) fn holds(&self) -> bool {
        !lock_mutex(&self.held).is_empty()
    }

    /// Records that nothing of the claim is left.
    pub(crate) fn note_ended(&self, id: ClaimId) {
        lock_mutex(&self.held).remove(&id);
        self.forget(id);
    }

    /// Records that this client holds the claim.
    pub(crate) fn note_held(&self, id: ClaimId) {
        lock_mutex(&self.held).insert(id);
    }

    /// Records that a claim entered the queue, and wakes the maintenance.
    pub(crate) fn note_queued(&self) {
        self.new_entry.store(true, Ordering::Relaxed);
        self.maintenance_wake.notify_one();
    }

    /// Whether a claim entered the queue since the last call.
    pub(crate) fn was_queued(&self) -> bool {
        self.new_entry.swap(false, Ordering::Relaxed)
    }

    /// Schedules a check of the waiting claims after `remaining`, when a hold ahead of them ends unless the hold is
    /// extended. Changes nothing if a check is already scheduled for that time or earlier.
    pub(crate) fn schedule_check(&self, remaining: Duration) {
        let check_at = self.now().after(remaining);
        let mut next_check = lock_mutex(&self.next_check);
        // A second report of the same end of a hold can give a slightly earlier time, only because it arrived faster
        // than the first report. Such a report does not move the check.
        if check_at.after(CLOCK_TOLERANCE) < *next_check {
            *next_check = check_at;
            self.maintenance_wake.notify_one();
        }
    }

    /// When the waiting claims are checked next.
    pub(crate) fn next_check(&self) -> Instant {
        *lock_mutex(&self.next_check)
    }

    /// Records that a check starts now; the next one starts after `interval` at the latest.
    pub(crate) fn note_check_started(&self, interval: Duration) {
        *lock_mutex(&self.next_check) = self.now().after(interval);
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Learns the time of the database from an answer to a request sent at `sent`.
    pub(crate) fn learn_time(&self, sent: Instant, micros: i64) {
        let server_time = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        let step = lock_mutex(&self.server_clock).learn(sent, self.now(), server_time);
        if let Some(step) = step {
            tracing::warn!(ahead = ?step, "the clock of the database went forward: holds are in doubt");
            self.mailbox.push(Notification::Doubt);
        }
    }

    /// A local time that is certainly not after the moment at which the database's clock showed `micros`.
    pub(crate) fn local_time_not_after(&self, micros: i64) -> Option<Instant> {
        lock_mutex(&self.server_clock).not_after(Duration::from_micros(u64::try_from(micros).ok()?))
    }

    /// Claims a name: by the fast path where that is possible, else in a transaction.
    pub(crate) async fn claim(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        self.ensure_maintenance();
        let now = self.now();
        if self.in_flight.is_released(claim.id, now) {
            return Ok(Answer::Gone);
        }
        let in_flight = self.start_claim(claim.id, now);
        let is_new = how == How::Create && !self.is_queued(claim.id);
        if is_new && claim.mode == Mode::Exclusive {
            let sent = self.now();
            let (database, client) = (Arc::clone(&self.database), self.id);
            let execute = move |claims: Vec<Claim>| {
                let database = Arc::clone(&database);
                async move { within_request_timeout(database.fast_claim(&claims, client)).await }
            };
            let fast_grant = self.claim_batch.ask(claim.clone(), |claim| claim.name.clone(), execute).await;
            let fast_grant = engine_result(fast_grant)?;
            if let Some(Timed { now, value: FastGrant { token, previous } }) = fast_grant {
                in_flight.complete();
                self.learn_time(sent, now);
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
        let reply = engine_result(self.apply(&claim.name, &verb).await)?;
        in_flight.complete();
        let Reply::Claim(reply) = reply else { return Err(reply_mismatch()) };
        let mut answer = reply.map_err(refused)?;
        if let Answer::Waiting(hint) = &mut answer {
            // Takes the time out of the hint, so that core does not ask for this claim when a hold ahead ends. Instead
            // one check of the maintenance task then serves all claims of this client.
            let remaining = hint.ask_in.take();
            self.note_waiting(claim, remaining.is_some(), hint.ahead);
            if let Some(remaining) = remaining {
                self.schedule_check(remaining);
            }
            if let Some(notification) = arrival.take_deferred() {
                self.handle_notification(&notification);
            }
        } else if matches!(answer, Answer::Held(_)) {
            self.note_held(claim.id);
            self.note_granted(claim.id);
        } else {
            self.forget(claim.id);
        }
        Ok(answer)
    }

    /// Records that a request of the claim is sent now.
    pub(crate) fn start_claim(&self, id: ClaimId, now: Instant) -> InFlightRequest<'_> {
        // All claims count as sent on connection 0: a statement can use any connection of the pool, and an answer on
        // one connection does not show that the statements on the other connections have ended.
        self.in_flight.start(id, CLAIM_CONNECTION, now)
    }

    /// Starts the maintenance task, unless it was started before.
    pub(crate) fn ensure_maintenance(&self) {
        if !self.maintenance_started.swap(true, Ordering::Relaxed) {
            self.start_maintenance();
        }
    }

    /// Starts the task that maintains waiting claims and sweeps the tables.
    fn start_maintenance(&self) {
        let (weak_self, maintenance_wake) =
            (Weak::clone(&self.weak_self), Arc::clone(&self.maintenance_wake));
        let client = Weak::clone(&self.weak_self);
        let on_failure = move || {
            // The failed task may have left work undone, so core has to ask for the state of all claims.
            if let Some(client) = client.upgrade() {
                client.mailbox.push(Notification::AskAll);
            }
        };
        runtime::spawn(leasehold_core::run_with_restarts(
            "maintenance",
            move || maintenance::run(Weak::clone(&weak_self), Arc::clone(&maintenance_wake)),
            on_failure,
            runtime::sleep,
        ));
    }

    /// Renews holds: first many in one statement; then, in a transaction of its own, each hold that got no answer.
    pub(crate) async fn renew(&self, holds: &[Hold]) -> Vec<Renewed> {
        let mut order: Vec<usize> = (0..holds.len()).collect();
        order.sort_by(|&left, &right| holds[left].name.cmp(&holds[right].name));
        let mut answers: Vec<Option<Renewed>> = holds.iter().map(|_| None).collect();
        let shortest_ttl = holds.iter().map(|hold| hold.ttl).min().unwrap_or_default();
        for chunk in order.chunks(MAX_RENEWALS) {
            let requested: Vec<Hold> = chunk.iter().map(|&index| holds[index].clone()).collect();
            let sent = self.now();
            // Other clients may have locked some rows for long. So this statement for many holds has a short time
            // limit. If it exceeds the limit, each hold is renewed in a transaction of its own.
            let limit =
                Some(shortest_ttl / 16).filter(|limit| requested.len() > 1 && *limit >= LIKELY_LOCK_WAIT);
            let renewal = within_request_timeout(self.database.renew(&requested));
            let Some(renewed) = runtime::within(limit.unwrap_or(REQUEST_TIMEOUT), renewal).await else {
                continue;
            };
            match renewed {
                Ok(extensions) => {
                    for (&index, extension) in chunk.iter().zip(extensions) {
                        if let Some(Timed { now, .. }) = extension {
                            self.learn_time(sent, now);
                            // A hold of another lineage is stored in other tables. The row that was extended here is
                            // only a copy of the row of the hold, so this extension does not count.
                            if holds[index].token.lineage != self.database.lineage() {
                                continue;
                            }
                            answers[index] = Some(Renewed::Extended {
                                ttl: Some(holds[index].ttl),
                                left: TimeLeft::Unknown,
                            });
                        }
                    }
                }
                Err(failed) => {
                    for &index in chunk {
                        answers[index] = Some(Renewed::Unknown(failed.clone().into()));
                    }
                }
            }
        }
        let renewals = holds.iter().zip(answers).map(|(hold, answer)| async {
            match answer {
                Some(answer) => answer,
                // This limit ends before core gives up on the answers for all holds.
                None => runtime::within(shortest_ttl / 8, self.renew_one(hold))
                    .await
                    .unwrap_or_else(row_locked_for_long),
            }
        });
        futures_util::future::join_all(renewals).await
    }

    /// Renews one hold in a transaction. If the hold is gone, the transaction finds the reason of the loss, and grants
    /// the name to the next waiter.
    async fn renew_one(&self, hold: &Hold) -> Renewed {
        let verb = Verb::Renew { id: hold.id, token: hold.token, ttl: hold.ttl };
        match self.apply(&hold.name, &verb).await {
            Ok(Reply::Renewed(Ok(()))) => Renewed::Extended { ttl: Some(hold.ttl), left: TimeLeft::Unknown },
            Ok(Reply::Renewed(Err(loss))) => {
                lock_mutex(&self.held).remove(&hold.id);
                Renewed::Lost(loss)
            }
            Ok(_) => Renewed::Unknown(reply_mismatch()),
            Err(failed) => Renewed::Unknown(failed.into()),
        }
    }

    /// Releases claims; the results are in the order of the releases.
    pub(crate) async fn release(&self, releases: &[Release]) -> Vec<Released> {
        let released = releases.iter().map(|release| async {
            let released = self.release_one(release).await;
            if !matches!(released, Released::Unknown(_)) {
                lock_mutex(&self.held).remove(&release.id);
            }
            released
        });
        futures_util::future::join_all(released).await
    }

    /// Releases one claim: by the fast path where that is possible, else in a transaction.
    async fn release_one(&self, release: &Release) -> Released {
        let now = self.now();
        // The release counts as sent on another connection than the claim, so the answer to the release does not show
        // that the requests of the claim have ended.
        let late_request_possible =
            self.in_flight.release(release.id, RELEASE_CONNECTION, now, now.after(REQUEST_LIFE));
        let waited_before = self.forget(release.id);
        let suits_fast_path =
            release.token.is_some() && release.mode == Mode::Exclusive && release.min_hold.is_none();
        if suits_fast_path && !late_request_possible && !waited_before {
            let database = Arc::clone(&self.database);
            let execute = move |releases: Vec<Release>| {
                let database = Arc::clone(&database);
                async move { within_request_timeout(database.fast_release(&releases)).await }
            };
            let sent = self.now();
            match self.release_batch.ask(release.clone(), |release| release.name.clone(), execute).await {
                Ok(Some(Timed { now, .. })) => {
                    self.learn_time(sent, now);
                    return Released::Freed;
                }
                Ok(None) => {}
                Err(failed) => return Released::Unknown(failed.into()),
            }
        }
        let verb = Verb::Release { release: release.clone(), late_request_possible };
        match self.apply(&release.name, &verb).await {
            Ok(Reply::Released(freed)) => {
                self.in_flight.settle(release.id);
                if freed { Released::Freed } else { Released::NotThere }
            }
            Ok(_) => Released::Unknown(reply_mismatch()),
            Err(failed) => Released::Unknown(failed.into()),
        }
    }

    /// Records that a claim was released, with the last request of it.
    pub(crate) fn note_released(&self, id: ClaimId, now: Instant) {
        self.in_flight.release(id, RELEASE_CONNECTION, now, now.after(REQUEST_LIFE));
        self.in_flight.settle(id);
        self.forget(id);
    }

    /// Applies a verb to one name in a transaction, and handles the notifications in its result that are for this
    /// client.
    pub(crate) async fn apply(&self, name: &Name, verb: &Verb) -> Result<Reply, Failed> {
        let may_wait = !matches!(verb, Verb::Renew { .. } | Verb::Downgrade { .. } | Verb::Release { .. });
        let _permit = if may_wait { self.row_wait_permit().await } else { None };
        let sent = self.now();
        let Timed { now, value: changes } = within_request_timeout(self.database.apply(name, verb)).await?;
        self.learn_time(sent, now);
        for notification in changes.notifications.iter().filter(|notification| notification.client == self.id)
        {
            self.handle_notification(notification);
        }
        Ok(changes.reply)
    }

    /// The permission to wait for the row of a name.
    pub(crate) async fn row_wait_permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.row_wait_permits.acquire().await.ok()
    }

    /// Ends the expired claims and holds of a part of the tables: of `count` names after the name `after`. Returns the
    /// name after which the next part begins; `None` at the end of the tables.
    pub(crate) async fn sweep(&self, after: &str, count: i64) -> Result<Option<String>, Failed> {
        let (expired_names, last) = within_request_timeout(self.database.sweep(after, count)).await?;
        self.end_expired(expired_names.iter()).await;
        Ok(last)
    }

    /// Ends the expired claims and holds of these names. All names are handled at the same time, so that a row that is
    /// locked for long does not delay the others.
    pub(crate) async fn end_expired(&self, names: impl Iterator<Item = &Name>) {
        let settled = names.map(|name| self.apply(name, &Verb::Settle));
        for failed in futures_util::future::join_all(settled).await.into_iter().filter_map(Result::err) {
            tracing::debug!(%failed, "expired claims and holds could not be ended");
        }
    }

    /// The token with this number, of the current lineage.
    fn token(&self, number: i64) -> Token {
        Token { lineage: self.database.lineage(), number: number.unsigned_abs() }
    }
}

/// Limits the wait for an answer: a silent connection must not block its caller.
pub(crate) async fn within_request_timeout<T>(
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    let timed_out = || Failed::new(Fault::Unknown, format!("no answer within {REQUEST_TIMEOUT:?}"));
    runtime::within(REQUEST_TIMEOUT, work).await.unwrap_or_else(|| Err(timed_out()))
}

/// The answer for a hold whose row other clients have locked for too long.
fn row_locked_for_long() -> Renewed {
    Renewed::Unknown(EngineError::new(
        Fault::Unknown,
        "other clients have locked the row of the name for long",
    ))
}

/// Converts the error of a statement into an error of core. After an error the request still counts as in flight,
/// because the claim may have been granted.
pub(crate) fn engine_result<T>(answer: Result<T, Failed>) -> Result<T, EngineError> {
    answer.map_err(EngineError::from)
}

/// The error for a claim that the lock rules refuse.
pub(crate) fn refused(refusal: leasehold_core::lock_state::Refusal) -> EngineError {
    use leasehold_core::lock_state::Refusal;
    let fault = match refusal {
        Refusal::QueueFull => Fault::Refused,
        _ => Fault::Misconfigured,
    };
    EngineError::new(fault, refusal.to_string())
}

/// The error for a reply of another kind than the request.
pub(crate) fn reply_mismatch() -> EngineError {
    EngineError::new(Fault::Internal, "the reply of the database does not match the request")
}

/// Locks a mutex, even if a thread panicked while it had the lock.
pub(crate) fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under these locks can panic in the middle of a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
