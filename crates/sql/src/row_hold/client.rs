//! The verbs of one client: which connection holds which row, for which claim.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use leasehold_core::{
    Answer, Claim, ClaimId, EngineError, Fault, Grant, Hint, Hold, How, Loss, Mailbox, Name, Notification,
    Previous, Release, Released, Renewed, TimeLeft, Token,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{
    claims::{ClaimState, Claims},
    not_created,
    server::{LONGEST_TTL, RowServer, RowSession, TryLock},
};
use crate::{database::Failed, engine::REQUEST_TIMEOUT, runtime};

/// The maximum number of connections of a client, one for each hold. Most servers accept fewer, and say so.
const MAX_CONNECTIONS: usize = 256;
/// How many claims ask at the same time. The others wait for their turn, so that waiting claims need no connections.
const MAX_TRIES: usize = 2;
/// The time between two looks at a connection that is being closed.
const CLOSING_INTERVAL: Duration = Duration::from_millis(100);

/// The claim that a connection holds a row for.
type Holder = Mutex<Option<(Name, ClaimId)>>;

/// Tells core that a hold is lost, when dropped: the connection of a hold ended. It is the right to have a connection,
/// so a connection counts until it is closed.
pub(crate) struct EndReport {
    mailbox: Weak<Mailbox>,
    holder: Arc<Holder>,
    _permit: Arc<OwnedSemaphorePermit>,
}

/// The task of a connection.
pub(super) struct ConnectionTask(Weak<OwnedSemaphorePermit>);

/// A connection. If it is dropped, its task closes it.
pub(super) struct Connection {
    session: Arc<dyn RowSession>,
    holder: Arc<Holder>,
    task: ConnectionTask,
}

/// The state that the verbs share.
pub(crate) struct Client {
    pub(super) server: Arc<dyn RowServer>,
    pub(super) mailbox: Arc<Mailbox>,
    claims: Claims,
    idle: Mutex<Vec<Connection>>,
    connections: Arc<Semaphore>,
    tries: Semaphore,
}

impl EndReport {
    /// Whether the connection holds a row.
    #[cfg(feature = "mysql")]
    pub(crate) fn is_holding(&self) -> bool {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Drop for EndReport {
    fn drop(&mut self) {
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(mailbox), Some((name, id))) = (self.mailbox.upgrade(), holder) {
            mailbox.push(Notification::Lost { name, id, loss: Loss::Gone });
        }
    }
}

impl ConnectionTask {
    /// Whether the connection is closed.
    fn has_ended(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Connection {
    fn set_holder(&self, holder: Option<(Name, ClaimId)>) {
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = holder;
    }

    fn token(&self, number: u64) -> Token {
        Token { lineage: self.session.lineage(), number }
    }

    fn grant(&self, number: u64, claim: &Claim) -> Grant {
        let (token, ttl) = (self.token(number), Some(claim.ttl.min(LONGEST_TTL)));
        // The server does not say how the transaction before ended.
        Grant { token, tokens: 1, ttl, previous: Previous::Unknown }
    }
}

impl Client {
    pub(super) fn new(server: Arc<dyn RowServer>) -> Self {
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let (mailbox, claims, idle) = Default::default();
        Self { server, mailbox, claims, idle, connections, tries: Semaphore::new(MAX_TRIES) }
    }

    /// Claims in a task of its own: so a request whose future is dropped is completed, and a release that comes then
    /// finds what it did.
    pub(super) async fn claim(self: &Arc<Self>, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        let (client, claim) = (Arc::clone(self), claim.clone());
        completed(async move { client.claim_now(&claim, how).await }).await?
    }

    async fn claim_now(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        let cell = match how {
            How::Create => self.claims.get_or_create(claim.id),
            How::Ask => self.claims.find(claim.id),
        };
        let Some(cell) = cell else { return Ok(Answer::Gone) };
        let mut state = cell.lock().await;
        match &*state {
            ClaimState::Closing(_) | ClaimState::Gone => Ok(Answer::Gone),
            ClaimState::Held { connection, number, .. } => {
                let answer = runtime::within(REQUEST_TIMEOUT, connection.session.heartbeat()).await;
                match answer {
                    Some(Ok(())) => Ok(Answer::Held(connection.grant(*number, claim))),
                    // The hold exists as far as anybody knows.
                    None => {
                        Err(EngineError::new(Fault::Unknown, format!("no answer within {REQUEST_TIMEOUT:?}")))
                    }
                    Some(Err(_)) => {
                        self.end(claim.id, &mut state);
                        Ok(Answer::Gone)
                    }
                }
            }
            ClaimState::Fresh | ClaimState::Waiting => {
                let answer = self.try_claim(claim, &mut state).await;
                if matches!(*state, ClaimState::Fresh) {
                    self.claims.forget(claim.id);
                    *state = ClaimState::Gone;
                }
                answer
            }
        }
    }

    /// Forgets a claim whose connection ended.
    fn end(&self, id: ClaimId, state: &mut ClaimState) {
        if let ClaimState::Held { connection, .. } = std::mem::replace(state, ClaimState::Gone) {
            connection.set_holder(None);
        }
        self.claims.forget(id);
    }

    /// Tries to lock the row of a claim.
    async fn try_claim(&self, claim: &Claim, state: &mut ClaimState) -> Result<Answer, EngineError> {
        let Ok(_turn) = self.tries.acquire().await else { return Ok(Answer::Gone) };
        let (connection, outcome) = self.try_lock(&claim.name).await?;
        match outcome {
            TryLock::Locked(number) => {
                connection.set_holder(Some((claim.name.clone(), claim.id)));
                if connection.session.has_ended() {
                    connection.set_holder(None);
                    return Err(EngineError::new(Fault::Retry, "the connection to the server broke"));
                }
                let grant = connection.grant(number, claim);
                *state = ClaimState::Held { connection, name: claim.name.clone(), number };
                // A release that came meanwhile waits for this state.
                Ok(if self.claims.is_released(claim.id) { Answer::Gone } else { Answer::Held(grant) })
            }
            TryLock::Taken => {
                self.give_back(connection);
                if claim.may_queue {
                    *state = ClaimState::Waiting;
                    return Ok(Answer::Waiting(Hint::default()));
                }
                Ok(Answer::Taken(Hint::default()))
            }
            TryLock::Missing => {
                self.give_back(connection);
                let row = self.server.rows().described(&claim.name);
                let message = format!("there is no row {row}: insert it, or add create=yes to the URL");
                Err(EngineError::new(Fault::Misconfigured, message))
            }
        }
    }

    /// Tries on an idle connection, and on a new one if the idle one broke meanwhile.
    async fn try_lock(&self, name: &Name) -> Result<(Connection, TryLock), Failed> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(connection) = idle.filter(|connection| !connection.session.has_ended()) {
            match within(self.try_on(&connection, name)).await {
                Ok(outcome) => return Ok((connection, outcome)),
                // The server may still execute a try that was not answered. A second try would find the row taken.
                Err(failed) if !connection.session.has_ended() => return Err(failed),
                Err(_) => {}
            }
        }
        let connection = self.open().await?;
        let outcome = within(self.try_on(&connection, name)).await?;
        Ok((connection, outcome))
    }

    /// Tries to lock the row of a name, and first creates a missing row if the client creates rows.
    async fn try_on(&self, connection: &Connection, name: &Name) -> Result<TryLock, Failed> {
        let outcome = connection.session.lock(name).await?;
        if outcome != TryLock::Missing || !self.server.rows().creates() {
            return Ok(outcome);
        }
        connection.session.create(name).await.map_err(not_created)?;
        connection.session.lock(name).await
    }

    /// Opens a connection.
    async fn open(&self) -> Result<Connection, Failed> {
        let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
            let message =
                format!("this process holds {MAX_CONNECTIONS} rows, each on a connection of its own");
            return Err(Failed::new(Fault::Full, message));
        };
        let (holder, permit) = (Arc::new(Holder::default()), Arc::new(permit));
        let task = ConnectionTask(Arc::downgrade(&permit));
        let mailbox = Arc::downgrade(&self.mailbox);
        let end = EndReport { mailbox, holder: Arc::clone(&holder), _permit: permit };
        let contact = self.server.contact();
        let opened = self.server.open(end).await;
        let session = opened.inspect_err(|failed| contact.record_failure(failed.fault, &failed.message))?;
        contact.record_connected();
        Ok(Connection { session, holder, task })
    }

    /// Keeps a connection without a transaction for the next try, or closes it.
    fn give_back(&self, connection: Connection) {
        connection.set_holder(None);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| !connection.session.has_ended());
        if idle.len() < MAX_TRIES && !connection.session.has_ended() {
            idle.push(connection);
        }
    }

    /// Executes an inspection on a connection without a transaction, and on a new one if an idle one broke meanwhile.
    pub(super) async fn inspect<T, F>(
        &self,
        work: impl Fn(Arc<dyn RowSession>) -> F,
    ) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, Failed>>,
    {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(connection) = idle.filter(|connection| !connection.session.has_ended()) {
            let result = within(work(Arc::clone(&connection.session))).await;
            if result.is_ok() || !connection.session.has_ended() {
                if result.is_ok() {
                    self.give_back(connection);
                }
                return Ok(result?);
            }
        }
        let connection = self.open().await?;
        let result = within(work(Arc::clone(&connection.session))).await;
        if result.is_ok() {
            self.give_back(connection);
        }
        Ok(result?)
    }

    pub(super) async fn renew(&self, holds: &[Hold]) -> Vec<Renewed> {
        futures_util::future::join_all(holds.iter().map(|hold| self.renew_one(hold))).await
    }

    async fn renew_one(&self, hold: &Hold) -> Renewed {
        let Some(cell) = self.claims.find(hold.id) else { return Renewed::Lost(Loss::Gone) };
        let mut state = cell.lock().await;
        let ClaimState::Held { connection, name, number } = &*state else { return Renewed::Lost(Loss::Gone) };
        if connection.token(*number) != hold.token || *name != hold.name {
            return Renewed::Lost(Loss::Gone);
        }
        match runtime::within(REQUEST_TIMEOUT, connection.session.heartbeat()).await {
            Some(Ok(())) => {
                Renewed::Extended { ttl: Some(hold.ttl.min(LONGEST_TTL)), left: TimeLeft::Unknown }
            }
            Some(Err(_)) => {
                self.end(hold.id, &mut state);
                Renewed::Lost(Loss::Gone)
            }
            None => {
                let message = format!("no answer within {REQUEST_TIMEOUT:?}");
                Renewed::Unknown(EngineError::new(Fault::Unknown, message))
            }
        }
    }

    /// Releases in tasks of their own, as [`claim`](Self::claim) does.
    pub(super) async fn release(self: &Arc<Self>, releases: &[Release]) -> Vec<Released> {
        let released = releases.iter().map(|release| {
            let (client, release) = (Arc::clone(self), release.clone());
            completed(async move { client.release_now(&release).await })
        });
        let released = futures_util::future::join_all(released).await.into_iter();
        released.map(|released| released.unwrap_or_else(Released::Unknown)).collect()
    }

    /// Ends a claim. If the server does not answer, the connection is closed: then the server ends the transaction as
    /// soon as it notices. The claim is not forgotten before that.
    async fn release_now(self: &Arc<Self>, release: &Release) -> Released {
        let Some(cell) = self.claims.bury(release.id) else { return Released::NotThere };
        let mut state = cell.lock().await;
        let released = match std::mem::replace(&mut *state, ClaimState::Gone) {
            ClaimState::Held { connection, .. } if connection.session.has_ended() => Released::NotThere,
            ClaimState::Held { connection, number, .. } => {
                connection.set_holder(None);
                let is_right = release.token.is_none_or(|token| token == connection.token(number));
                match within(connection.session.unlock()).await {
                    Ok(()) => {
                        self.give_back(connection);
                        if is_right { Released::Freed } else { Released::NotThere }
                    }
                    Err(failed) => {
                        *state = ClaimState::Closing(connection.task);
                        runtime::spawn(Arc::clone(self).forget_when_closed(release.id));
                        return Released::Unknown(failed.into());
                    }
                }
            }
            ClaimState::Closing(task) if !task.has_ended() => {
                *state = ClaimState::Closing(task);
                let message = "the server did not answer the release, and the connection is being closed";
                return Released::Unknown(EngineError::new(Fault::Retry, message));
            }
            ClaimState::Waiting if release.token.is_none() => Released::Freed,
            ClaimState::Closing(_) | ClaimState::Waiting | ClaimState::Fresh | ClaimState::Gone => {
                Released::NotThere
            }
        };
        self.claims.forget(release.id);
        released
    }

    /// Forgets a claim when its connection is closed, for the case that nobody asks for it again. The task of a
    /// connection limits the time for this.
    async fn forget_when_closed(self: Arc<Self>, id: ClaimId) {
        while let Some(cell) = self.claims.find(id) {
            if !matches!(&*cell.lock().await, ClaimState::Closing(task) if !task.has_ended()) {
                break;
            }
            runtime::sleep(CLOSING_INTERVAL).await;
        }
        self.claims.forget(id);
    }
}

/// The result of `work`, which is completed even if nobody waits for it.
async fn completed<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, EngineError> {
    let (sender, receiver) = oneshot::channel();
    runtime::spawn(async move {
        let _ = sender.send(work.await);
    });
    receiver.await.map_err(|_| EngineError::new(Fault::Internal, "a task of a request ended early"))
}

/// The answer of the server within the time limit of a request. Nothing that a transaction did is kept without an
/// answer: its connection is closed.
async fn within<T>(work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let timed_out = || Err(Failed::new(Fault::Retry, format!("no answer within {REQUEST_TIMEOUT:?}")));
    runtime::within(REQUEST_TIMEOUT, work).await.unwrap_or_else(timed_out)
}
