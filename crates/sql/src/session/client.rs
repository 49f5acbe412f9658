//! The verbs on the session of one process: each request goes through the table, and the table's batches to the server.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use leasehold_core::{
    Answer, BoxFuture, Claim, ClaimId, Clock, Contact, Dial, EngineError, Env, Fault, Hold, How, Link, Loss,
    Mailbox, Mode, Notification, Release, Released, Renewed, TimeLeft, catch_panic,
};
use tokio::sync::{Notify, oneshot};

use super::{
    lock_key::Key,
    server::{BatchFailed, Session, SessionEvents, SessionServer},
    table::{KeyedClaim, Outcome, SessionTerms, Table},
};
use crate::{client::lock_mutex, database::Failed, runtime};

/// How many batches are in flight at a time: while the client handles the reply to one, the server works on the others.
const MAX_BATCHES: usize = 4;

/// The state that the verbs of one engine share.
pub(crate) struct SessionClient {
    pub(crate) server: Arc<dyn SessionServer>,
    pub(crate) mailbox: Mailbox,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) link: Link<Dialer>,
    pub(super) state: Mutex<State>,
    /// Notified when a name has to be tried earlier.
    pub(super) poll_wake: Arc<Notify>,
    pub(super) weak_self: Weak<SessionClient>,
}

/// What is under the mutex.
pub(super) struct State {
    pub(super) table: Table,
    answers: HashMap<ClaimId, Vec<oneshot::Sender<Result<Answer, EngineError>>>>,
    releases: HashMap<ClaimId, Vec<oneshot::Sender<Result<bool, EngineError>>>>,
    batches_in_flight: usize,
    /// A task was started that takes the next batch.
    is_sender_due: bool,
    /// The number of the newest session that was begun.
    newest_begun: u64,
    /// Whether the task that polls runs.
    pub(super) polls: bool,
}

/// Opens the sessions of a client.
pub(super) struct Dialer {
    server: Arc<dyn SessionServer>,
    client: OnceLock<Weak<SessionClient>>,
    /// The number of the newest session.
    newest: AtomicU64,
}

/// A session with its number.
pub(super) struct NumberedSession {
    pub(super) number: u64,
    pub(super) session: Arc<dyn Session>,
}

impl Dial for Dialer {
    type Conn = NumberedSession;

    fn dial(&self, _: Arc<Notify>) -> BoxFuture<'_, Result<NumberedSession, EngineError>> {
        Box::pin(async move {
            let number = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
            let events = self.client.get().cloned().unwrap_or_default();
            let session = self.server.open(number, events).await.map_err(EngineError::from)?;
            Ok(NumberedSession { number, session })
        })
    }

    fn is_dead(conn: &NumberedSession) -> bool {
        conn.session.has_ended()
    }

    fn address(conn: &NumberedSession) -> String {
        conn.session.address()
    }

    fn connected(&self, conn: &Arc<NumberedSession>, _: bool) {
        if let Some(client) = self.client.get().and_then(Weak::upgrade) {
            client.begin_session(conn);
        }
    }
}

impl SessionClient {
    pub(crate) fn new(server: Arc<dyn SessionServer>, contact: Contact, env: &Env) -> Arc<Self> {
        Arc::new_cyclic(|weak_self: &Weak<Self>| {
            let client = OnceLock::from(Weak::clone(weak_self));
            let dialer = Dialer { server: Arc::clone(&server), client, newest: AtomicU64::new(0) };
            let state = State {
                table: Table::new(),
                answers: HashMap::new(),
                releases: HashMap::new(),
                batches_in_flight: 0,
                is_sender_due: false,
                newest_begun: 0,
                polls: false,
            };
            Self {
                server,
                mailbox: Mailbox::default(),
                clock: Arc::clone(&env.clock),
                link: Link::new(dialer, Arc::clone(&env.clock), contact),
                state: Mutex::new(state),
                poll_wake: Arc::default(),
                weak_self: Weak::clone(weak_self),
            }
        })
    }

    /// The session; opens one if there is none.
    pub(crate) async fn session(&self) -> Result<Arc<NumberedSession>, EngineError> {
        let conn = self.link.conn().await?;
        self.begin_session(&conn);
        Ok(conn)
    }

    /// Takes, queues or asks.
    pub(crate) async fn claim(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        let asked = self.clock.now();
        let conn = self.session().await?;
        let keys = self.server.keys(&claim.name)?;
        if claim.mode != Mode::Exclusive && !self.server.has_shared_locks() {
            let message = "GET_LOCK has no shared locks: hold=session has exclusive locks only";
            return Err(EngineError::new(Fault::Misconfigured, message));
        }
        let permit_keys = match claim.mode {
            Mode::Permits { limit, .. } => Some(self.server.permit_keys(&claim.name, limit)?),
            _ => None,
        };
        let held_before = lock_mutex(&self.state).table.token_of(&claim.name, claim.id).is_some();
        if held_before {
            // The answer counts from this request, so the server has to confirm now that the session lives.
            self.heartbeat(&conn).await?;
        }
        let (sender, receiver) = oneshot::channel();
        self.step(|state| {
            state.answers.entry(claim.id).or_default().push(sender);
            state.table.claim(KeyedClaim { claim, keys, permit_keys, asked }, how, self.clock.now());
        });
        receiver.await.unwrap_or_else(|_| Err(EngineError::new(Fault::Unknown, "the request was abandoned")))
    }

    /// Renews all holds by one heartbeat.
    pub(crate) async fn renew(&self, holds: &[Hold]) -> Vec<Renewed> {
        let lost = || holds.iter().map(|_| Renewed::Lost(Loss::Gone)).collect();
        let Some(conn) = self.link.live() else { return lost() };
        if let Err(error) = self.heartbeat(&conn).await {
            let unknown = |_| Renewed::Unknown(error.without_source());
            return if conn.session.has_ended() { lost() } else { holds.iter().map(unknown).collect() };
        }
        let longest = conn.session.longest_ttl();
        let state = lock_mutex(&self.state);
        let is_current = state.table.terms().number == conn.number;
        let renewed = holds.iter().map(|hold| {
            if is_current && state.table.token_of(&hold.name, hold.id) == Some(hold.token) {
                Renewed::Extended { ttl: Some(hold.ttl.min(longest)), left: TimeLeft::Unknown }
            } else {
                Renewed::Lost(Loss::Gone)
            }
        });
        renewed.collect()
    }

    /// Removes every trace of claims.
    pub(crate) async fn release(&self, releases: &[Release]) -> Vec<Released> {
        let mut receivers = Vec::with_capacity(releases.len());
        self.step(|state| {
            let now = self.clock.now();
            for release in releases {
                let (sender, receiver) = oneshot::channel();
                state.answers.remove(&release.id);
                state.releases.entry(release.id).or_default().push(sender);
                state.table.release(release, now);
                receivers.push(receiver);
            }
        });
        let mut released = Vec::with_capacity(receivers.len());
        for receiver in receivers {
            released.push(match receiver.await {
                Ok(Ok(true)) => Released::Freed,
                Ok(Ok(false)) => Released::NotThere,
                Ok(Err(error)) => Released::Unknown(error),
                Err(_) => Released::Unknown(EngineError::new(Fault::Unknown, "the request was abandoned")),
            });
        }
        released
    }

    /// One round trip that proves that the session lives. It runs in a task of its own: if the server stays silent for
    /// so long that every hold has lapsed, the task closes the connection, also when nobody waits for the answer.
    pub(super) async fn heartbeat(&self, conn: &Arc<NumberedSession>) -> Result<(), EngineError> {
        let (sender, receiver) = oneshot::channel();
        let (conn, client) = (Arc::clone(conn), Weak::clone(&self.weak_self));
        let (sent_at, limit) = (self.clock.now(), conn.session.longest_ttl());
        runtime::spawn(async move {
            let beat = runtime::within(limit, conn.session.heartbeat()).await;
            let beat = beat.unwrap_or_else(|| Err(BatchFailed::Ended(silent(limit))));
            let outcome = beat.map_err(|failed| match failed {
                BatchFailed::Undone(failed) => failed,
                BatchFailed::Ended(failed) => {
                    if let Some(client) = client.upgrade() {
                        client.end_session(&conn, &failed);
                    }
                    failed
                }
            });
            if let (Ok(()), Some(client)) = (&outcome, client.upgrade()) {
                lock_mutex(&client.state).table.heartbeat_answered(conn.number, sent_at);
            }
            drop(sender.send(outcome));
        });
        let outcome = receiver.await;
        let outcome = outcome.unwrap_or_else(|_| {
            Err(Failed::new(Fault::Unknown, "the heartbeat of the session was abandoned"))
        });
        outcome.map_err(EngineError::from)
    }

    /// Changes the table, sends what became due, and passes the outcomes on.
    pub(super) fn step<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = lock_mutex(&self.state);
        let due_before = state.table.next_due();
        let result = change(&mut state);
        self.flush(&mut state);
        let outcomes = state.table.take_outcomes();
        let due = state.table.next_due();
        let starts_poll = due.is_some() && !std::mem::replace(&mut state.polls, true);
        let notifications: Vec<Notification> =
            outcomes.into_iter().filter_map(|outcome| state.pass_on(outcome)).collect();
        drop(state);
        if starts_poll {
            super::poll::start(Weak::clone(&self.weak_self), Arc::clone(&self.poll_wake));
        } else if due.is_some_and(|due| due_before.is_none_or(|before| due < before)) {
            self.poll_wake.notify_one();
        }
        notifications.into_iter().for_each(|notification| self.mailbox.push(notification));
        result
    }

    /// Starts the task that sends the next batch, if there is something to send and another batch may be in flight.
    fn flush(&self, state: &mut State) {
        if state.is_sender_due || state.batches_in_flight >= MAX_BATCHES || !state.table.has_pending() {
            return;
        }
        let Some(conn) = self.link.live() else { return };
        if state.table.terms().number == conn.number
            && let Some(client) = self.weak_self.upgrade()
        {
            state.is_sender_due = true;
            runtime::spawn(client.send_batch(conn));
        }
    }

    /// Sends a batch and applies its reply. The batch is taken when this task runs, after the tasks that were ready
    /// when it was started: so their requests are in the same batch.
    async fn send_batch(self: Arc<Self>, conn: Arc<NumberedSession>) {
        let taken = {
            let mut state = lock_mutex(&self.state);
            let is_current = state.table.terms().number == conn.number;
            // While the client handles the reply to the first half, the server works on the rest. One batch with
            // everything would leave the server without work meanwhile, and would stay one: its reply makes all tasks
            // ready at the same time.
            let taken = match state.batches_in_flight {
                _ if !is_current => None,
                in_flight if in_flight + 1 < MAX_BATCHES => state.table.take_half(),
                _ => state.table.take_batch(),
            };
            state.is_sender_due = false;
            state.batches_in_flight += usize::from(taken.is_some());
            // A batch has bounds, and the session may be a new one: what is left is for another task.
            self.flush(&mut state);
            taken
        };
        let Some((batch, plan)) = taken else { return };
        let (sent_at, limit) = (self.clock.now(), conn.session.longest_ttl());
        let exchange = catch_panic(async { conn.session.exchange(&batch).await });
        let reply = match runtime::within(limit, exchange).await {
            Some(Ok(reply)) => reply,
            Some(Err(panicked)) => Err(BatchFailed::Ended(Failed::new(Fault::Unknown, panicked.to_string()))),
            None => Err(BatchFailed::Ended(silent(limit))),
        };
        if let Err(BatchFailed::Ended(failed)) = &reply {
            self.end_session(&conn, failed);
        }
        self.step(|state| {
            state.batches_in_flight -= 1;
            let now = self.clock.now();
            match reply {
                Ok(reply) => state.table.apply((batch, plan), reply, sent_at, now),
                Err(BatchFailed::Undone(failed)) => state.table.undone((batch, plan), &failed, now),
                Err(BatchFailed::Ended(_)) => {}
            }
        });
    }

    /// Makes a session the one of the table, if it is newer than all that were. A session that was begun never begins
    /// again, so its number tells its replies from those of every other session.
    fn begin_session(&self, conn: &NumberedSession) {
        if lock_mutex(&self.state).newest_begun >= conn.number {
            return;
        }
        self.step(|state| {
            // The end of a session is reported after `has_ended` is true. So either it is true here, or the report
            // comes later and finds the session in the table.
            if state.newest_begun >= conn.number || conn.session.has_ended() {
                return;
            }
            state.newest_begun = conn.number;
            let now = self.clock.now();
            state.table.end_session(&EngineError::from(ended()));
            let session = &conn.session;
            let terms = SessionTerms {
                number: conn.number,
                lineage: session.lineage(),
                longest_ttl: session.longest_ttl(),
                max_keys: session.max_keys(),
                grants_from: now.after(session.lock_delay()),
            };
            state.table.begin_session(terms, now);
        });
    }

    /// Ends a session: closes its connection, and reports its holds as lost.
    fn end_session(&self, conn: &NumberedSession, reason: &Failed) {
        conn.session.close();
        tracing::warn!(server = conn.session.address(), reason = reason.message, "the session ended");
        self.forget_session(conn.number, reason);
    }

    fn forget_session(&self, number: u64, reason: &Failed) {
        self.step(|state| {
            if state.table.terms().number == number {
                state.table.end_session(&EngineError::from(reason.clone()));
            }
        });
    }
}

impl State {
    /// Passes an outcome on to the requests that wait for it, or returns it as a notification.
    fn pass_on(&mut self, outcome: Outcome) -> Option<Notification> {
        match outcome {
            Outcome::Answer(id, answer) => {
                for sender in self.answers.remove(&id).into_iter().flatten() {
                    let answer = answer.as_ref().map(Answer::clone).map_err(EngineError::without_source);
                    drop(sender.send(answer));
                }
                None
            }
            Outcome::Released(id, freed) => {
                for sender in self.releases.remove(&id).into_iter().flatten() {
                    drop(
                        sender.send(freed.as_ref().map(|freed| *freed).map_err(EngineError::without_source)),
                    );
                }
                None
            }
            Outcome::Granted { name, id, grant, since } => {
                Some(Notification::Granted { name, id, grant, since: Some(since) })
            }
            Outcome::Lost(name, id) => Some(Notification::Lost { name, id, loss: Loss::Gone }),
            Outcome::Recheck(name, id) => Some(Notification::Recheck { name, id }),
        }
    }
}

impl SessionEvents for SessionClient {
    fn may_be_free(&self, waiters: &Key) {
        self.step(|state| state.table.may_be_free(waiters, self.clock.now()));
    }

    fn ended(&self, session: u64) {
        self.forget_session(session, &ended());
    }
}

/// The error for requests on a session that ended.
fn ended() -> Failed {
    Failed::new(Fault::Unknown, "the session on the server ended, and all its locks with it")
}

/// The error for a server that stayed silent for so long that all holds of the session have lapsed.
fn silent(limit: std::time::Duration) -> Failed {
    Failed::new(
        Fault::Unknown,
        format!("the server did not answer within {limit:?}: the session is given up"),
    )
}
