//! The client of one engine: the sessions and the claims that all verbs share.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    ClaimId, Clock, Contact, ContendedNames, EngineError, Env, Fault, InFlight, Instant, Lineage, Mailbox,
};
use tokio::sync::Notify;

use crate::{
    claims::Claims,
    config::Config,
    conn::Conn,
    error::{Failed, multi_outcome},
    lock_mutex,
    memo_ends::MemoEnds,
    memo_followers::MemoFollowers,
    runtime,
    session::{SessionState, session_ended},
    sessions::{Session, SessionSlot, Sessions},
    views::Views,
    watches::WatchHandler,
    wire::{ANY_VERSION, Acl, Create, ErrorCode, Exists, Multi, MultiOp, NodeKind},
};

/// How long a waiting request sleeps at most before it checks again whether a heartbeat is due.
const HEARTBEAT_WAIT: Duration = Duration::from_millis(200);
/// The time limit for closing the sessions of a client that was dropped.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// What the verbs of one engine share.
pub(crate) struct Client {
    pub(crate) config: Arc<Config>,
    /// The access list of the nodes that this client creates.
    pub(crate) acl: Vec<Acl>,
    pub(crate) clock: Arc<dyn Clock>,
    contact: Contact,
    /// The notifications for the keeper.
    pub(crate) mailbox: Mailbox,
    /// Which claims were released, so that no further request of them is sent.
    pub(crate) in_flight: InFlight,
    pub(crate) sessions: Sessions,
    /// Wakes the maintenance task when something is due earlier than before.
    pub(crate) wake_maintenance: Arc<Notify>,
    /// The claim table.
    claims: Mutex<Claims>,
    /// The memos that this client follows.
    pub(crate) followers: Arc<MemoFollowers>,
    /// The views that are told of changes.
    pub(crate) views: Views,
    /// The memos that this client wrote and deletes after their end.
    pub(crate) memo_ends: MemoEnds,
    /// The queues in which the server's counter is nearly used up.
    pub(crate) used_up_queues: Mutex<HashSet<String>>,
    /// The names that were taken when this client last claimed them as part of a set.
    pub(crate) contended_names: ContendedNames,
    /// Locked while a session is created, so that all claims that need one share it.
    session_creation: Mutex<()>,
    /// The runtime on which the tasks of this client run; empty before the first task.
    runtime: OnceLock<runtime::Runtime>,
    /// Whether this client has ever closed a session together with its only claim. If so, it keeps its later sessions
    /// for a while when they are unused.
    pub(crate) keeps_sessions: AtomicBool,
    /// The index of the server to which the next session connects first, so that clients and sessions spread over the
    /// servers.
    first_server: AtomicUsize,
    /// For tasks that must not keep this client alive.
    pub(crate) weak_self: Weak<Client>,
}

impl Client {
    pub(crate) fn new(config: Config, env: &Env, contact: Contact) -> Arc<Self> {
        let first_server = env.lineage().get() as usize % config.servers.len().max(1);
        Arc::new_cyclic(|weak_self: &Weak<Self>| Self {
            acl: config.acls(),
            config: Arc::new(config),
            clock: Arc::clone(&env.clock),
            contact,
            mailbox: Mailbox::default(),
            in_flight: InFlight::default(),
            sessions: Sessions::default(),
            wake_maintenance: Arc::default(),
            claims: Mutex::default(),
            followers: Arc::default(),
            views: Views::default(),
            memo_ends: MemoEnds::default(),
            used_up_queues: Mutex::default(),
            contended_names: ContendedNames::default(),
            session_creation: Mutex::default(),
            runtime: OnceLock::new(),
            keeps_sessions: AtomicBool::new(false),
            first_server: AtomicUsize::new(first_server),
            weak_self: Weak::clone(weak_self),
        })
    }

    /// The path that contains the directory of each name, or with `path=` the directory of the only lock; with the
    /// chroot.
    pub(crate) fn base_path(&self) -> String {
        format!("{}{}", self.config.chroot, self.config.base_path())
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn claims(&self) -> MutexGuard<'_, Claims> {
        lock_mutex(&self.claims)
    }

    /// Takes a slot on a session of this timeout, for nodes with paths of `path_bytes` bytes in all. Creates a session
    /// if no existing one has room.
    pub(crate) fn take_session_slot(
        &self,
        ttl: Duration,
        path_bytes: usize,
    ) -> Result<SessionSlot, EngineError> {
        let _one_at_a_time = lock_mutex(&self.session_creation);
        let (session_slot, wants_another) = self.sessions.take_slot(ttl, path_bytes);
        if let Some(session_slot) = session_slot {
            if wants_another {
                self.start_session(ttl);
            }
            return Ok(session_slot);
        }
        SessionSlot::take(&self.start_session(ttl), path_bytes).ok_or_else(session_ended)
    }

    /// Adds a session, which its own task creates on the server.
    fn start_session(&self, ttl: Duration) -> Arc<Session> {
        let first_server = self.first_server.fetch_add(1, Ordering::Relaxed);
        let handler: Weak<dyn WatchHandler> = Weak::clone(&self.weak_self) as _;
        let state = SessionState::new(ttl, self.now(), Arc::clone(&self.wake_maintenance));
        let session = Session::new(
            Arc::clone(&self.config),
            Arc::clone(&self.clock),
            handler,
            state,
            first_server,
            self.contact.clone(),
        );
        let session = Arc::new(session);
        self.sessions.add(Arc::clone(&session));
        let connected_session = Arc::clone(&session);
        let keep_connected = move || {
            let session = Arc::clone(&connected_session);
            async move {
                // The error goes to the requests that wait for the connection. Later requests try again.
                let _ = session.conn().await;
                session.mend().await;
            }
        };
        runtime::spawn(leasehold_core::run_with_restarts("session", keep_connected, || (), runtime::sleep));
        if self.runtime.set(runtime::runtime()).is_ok() {
            leasehold_core::maintain(
                Weak::clone(&self.weak_self),
                Arc::clone(&self.clock),
                Arc::clone(&self.wake_maintenance),
            );
        }
        self.wake_maintenance.notify_one();
        session
    }

    /// Waits until a quorum has confirmed the session recently; sends heartbeats if necessary.
    pub(crate) async fn wait_until_confirmed(&self, session: &Session) -> Result<(), EngineError> {
        loop {
            let mut changed = std::pin::pin!(session.state.changed.notified());
            changed.as_mut().enable();
            if session.state.has_ended() {
                return Err(session_ended());
            }
            if session.state.is_fresh(self.now()) {
                return Ok(());
            }
            let conn = session.conn().await?;
            if session.state.is_fresh(self.now()) {
                return Ok(());
            }
            if session.state.should_send_heartbeat(self.now()) {
                // The request of the caller was not sent yet, so its result is not unknown.
                self.send_heartbeat(session, &conn).await.map_err(unsent_error)?;
                continue;
            }
            // The answer may be lost with its connection, so the loop sends the heartbeat again.
            runtime::within(HEARTBEAT_WAIT, changed).await;
        }
    }

    /// Sends a heartbeat: a change that changes nothing, because only a quorum can answer it.
    pub(crate) async fn send_heartbeat(&self, session: &Session, conn: &Conn) -> Result<(), Failed> {
        let check = MultiOp::Check { path: self.base_path(), version: ANY_VERSION };
        // A failed check also needed the agreement of a quorum.
        let outcome = self.apply_changes(session, conn, vec![check]).await;
        if outcome.as_ref().is_err_and(Failed::is_expired) {
            session.state.end();
        }
        outcome.map(drop)
    }

    /// The time at which the directory of all locks was created. This time distinguishes the tokens of this ensemble
    /// from those of another ensemble, and from those that this ensemble granted before its data was deleted. Creates
    /// that directory if necessary.
    pub(crate) async fn lineage(&self, session: &Session, conn: &Conn) -> Result<Lineage, Failed> {
        match self.existing_lineage(session, conn).await {
            Err(failed) if failed.is(ErrorCode::NO_NODE) => {
                self.create_dirs(conn, &self.base_path(), NodeKind::Persistent, Vec::new()).await?;
                self.existing_lineage(session, conn).await
            }
            lineage => lineage,
        }
    }

    /// The lineage; an error if the directory of all locks does not exist.
    pub(crate) async fn existing_lineage(&self, session: &Session, conn: &Conn) -> Result<Lineage, Failed> {
        if let Some(lineage) = session.state.lineage() {
            return Ok(lineage);
        }
        let stat = conn.send(&Exists { path: &self.base_path() }).answer().await?;
        let lineage = self.config.token_blocks.lineage(stat.ctime.unsigned_abs());
        session.state.set_lineage(lineage);
        Ok(lineage)
    }

    /// Creates a directory and its parents, unless they exist.
    pub(crate) async fn create_dirs(
        &self,
        conn: &Conn,
        path: &str,
        kind: NodeKind,
        data: Vec<u8>,
    ) -> Result<(), Failed> {
        let mut missing: Vec<&str> = Vec::new();
        let mut current = path;
        loop {
            let kind = if current == path { kind } else { NodeKind::Persistent };
            let data = if current == path { data.clone() } else { Vec::new() };
            let create = Create { path: current.to_owned(), data, acl: self.acl.clone(), kind };
            match multi_outcome(conn.send(&Multi(vec![MultiOp::Create(create)])).answer().await)? {
                Ok(_) | Err((_, ErrorCode::NODE_EXISTS)) => match missing.pop() {
                    Some(child) => current = child,
                    None => return Ok(()),
                },
                Err((_, ErrorCode::NO_NODE)) => {
                    let Some((parent, _)) = current.rsplit_once('/').filter(|(parent, _)| !parent.is_empty())
                    else {
                        return Err(Failed::NO_NODE);
                    };
                    missing.push(current);
                    current = parent;
                }
                Err((_, code)) => return Err(Failed::Refused(code)),
            }
        }
    }

    /// Applies changes in one step. Returns success, or the index and the error of the failed step. Also records the
    /// answer, because every answer that needs a quorum helps to confirm the session.
    pub(crate) async fn apply_changes(
        &self,
        session: &Session,
        conn: &Conn,
        steps: Vec<MultiOp>,
    ) -> Result<Result<(), (usize, ErrorCode)>, Failed> {
        let sent = self.now();
        let outcome = multi_outcome(conn.send(&Multi(steps)).answer().await)?;
        session.state.record_answer(sent, self.now());
        Ok(outcome)
    }

    /// Ends all watches of this claim.
    pub(crate) fn unwatch(&self, id: ClaimId) {
        let mut claims = self.claims();
        let Some(entry) = claims.get(id) else { return };
        if let Some(conn) = entry.data.session_slot.session().link.live() {
            conn.watches.stop_watching_all(id, &entry.state);
        }
    }
}

/// The error of a request that was not sent, because a request that had to precede it has failed.
pub(crate) fn unsent_error(failed: Failed) -> EngineError {
    let error = EngineError::from(failed);
    let fault = if error.fault == Fault::Unknown { Fault::Retry } else { error.fault };
    EngineError::new(fault, error.message)
}

impl Drop for Client {
    fn drop(&mut self) {
        self.followers.wake();
        for session in self.sessions.all() {
            session.state.end();
            let Some(runtime) = self.runtime.get() else { return };
            // Closing deletes the session's nodes. If the request is lost, the session times out.
            runtime::spawn_on(runtime, async move {
                let _ = runtime::within(CLOSE_LIMIT, session.close()).await;
            });
        }
    }
}
