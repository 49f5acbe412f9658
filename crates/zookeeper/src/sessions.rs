//! The sessions of a client, each with its own connection. All claims of one ttl share a session, or a few sessions
//! under load, because a server handles the requests of one session one after the other.

use std::{
    sync::{Arc, Mutex, Weak, atomic::Ordering},
    time::Duration,
};

use leasehold_core::{
    BoxFuture, Clock, Contact, Dial, Endpoint, EngineError, Fault, Link, Rotation, dial_limit,
};
use tokio::sync::Notify;
use zeroize::Zeroizing;

use crate::{
    config::Config,
    conn::Conn,
    error::{Failed, multi_outcome},
    lock_mutex, runtime,
    session::{SessionState, session_ended},
    watches::WatchHandler,
    wire::{ANY_VERSION, Auth, Close, Hello, Multi, MultiOp, Sync},
};

/// A server that leaves a request unanswered for this long, or for a third of the session's timeout if that is less,
/// counts as dead.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// The pause before a session is closed, in which its holders are notified that the session is over.
const NOTIFY_PAUSE: Duration = Duration::from_millis(200);
/// The most sessions for claims of one ttl.
const MAX_SESSIONS_PER_TTL: usize = 4;
/// If the least busy session has this many requests in flight, another session is worth its cost.
const BUSY_REQUESTS: usize = 12;

/// One session and its connection.
pub(crate) struct Session {
    pub(crate) state: Arc<SessionState>,
    pub(crate) link: Link<Dialer>,
}

/// Connects one session to the servers.
pub(crate) struct Dialer {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    state: Arc<SessionState>,
    /// Receives the events of each connection.
    handler: Weak<dyn WatchHandler>,
    /// Which server is tried next.
    rotation: Rotation,
}

impl Session {
    /// A session that is created on the server at its first use.
    pub(crate) fn new(
        config: Arc<Config>,
        clock: Arc<dyn Clock>,
        handler: Weak<dyn WatchHandler>,
        state: SessionState,
        first_server: usize,
        contact: Contact,
    ) -> Self {
        let state = Arc::new(state);
        let dialer = Dialer {
            config,
            clock: Arc::clone(&clock),
            state: Arc::clone(&state),
            handler,
            rotation: Rotation::new(first_server),
        };
        Self { state, link: Link::new(dialer, clock, contact) }
    }

    /// The connection of the session, or an error if the session is over.
    pub(crate) async fn conn(&self) -> Result<Arc<Conn>, EngineError> {
        if self.state.has_ended() {
            return Err(session_ended());
        }
        self.link.conn().await
    }

    /// Reconnects whenever the connection breaks, until the session is over.
    pub(crate) async fn mend(&self) {
        let ended = async {
            loop {
                let mut changed = std::pin::pin!(self.state.changed.notified());
                changed.as_mut().enable();
                if self.state.has_ended() {
                    return;
                }
                changed.await;
            }
        };
        tokio::select! {
            () = ended => {}
            () = self.link.mend() => {}
        }
    }

    /// Closes the session on the server, which deletes all its nodes.
    pub(crate) async fn close(&self) -> Result<(), Failed> {
        self.state.end();
        let Some(conn) = self.link.live() else { return Err(Failed::Unsent) };
        conn.send(&Close).answer().await
    }
}

impl Dial for Dialer {
    type Conn = Conn;

    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<Conn, EngineError>> {
        // Before the first connection, the session has no id, and no claim has a node.
        if self.state.id() != 0
            && let Some(handler) = self.handler.upgrade()
        {
            handler.reconnecting(&self.state);
        }
        Box::pin(self.connect_any(broken))
    }

    fn is_dead(conn: &Conn) -> bool {
        conn.is_dead()
    }

    fn address(conn: &Conn) -> String {
        conn.endpoint.to_string()
    }

    fn connected(&self, _: &Arc<Conn>, is_reconnect: bool) {
        if is_reconnect && let Some(handler) = self.handler.upgrade() {
            handler.reconnected(&self.state);
        }
    }
}

impl Dialer {
    /// Connects to the first server that works, beginning with the next one of the rotation. If none works, returns the
    /// first error that is not [`Fault::Retry`], or else the last error. If the session is over after an attempt,
    /// returns the error of that attempt.
    async fn connect_any(&self, broken: Arc<Notify>) -> Result<Conn, EngineError> {
        let servers = &self.config.servers;
        // The limit for each attempt, which includes the wait until the server is up to date.
        let limit = dial_limit(self.config.connect_timeout, servers.len());
        let dial = async |endpoint| {
            let dialed = runtime::within(limit, self.connect_to(endpoint, Arc::clone(&broken))).await;
            dialed.unwrap_or_else(|| {
                Err(EngineError::new(
                    Fault::Retry,
                    format!("cannot connect to {endpoint}: no answer within {limit:?}"),
                ))
            })
        };
        self.rotation.connect(servers, dial, || self.state.has_ended()).await
    }

    /// Connects to this server, logs in, creates or resumes the session, and waits until the server is up to date.
    async fn connect_to(&self, endpoint: &Endpoint, broken: Arc<Notify>) -> Result<Conn, EngineError> {
        let (session, password) = self.state.identity();
        let requested_millis = i32::try_from(self.state.requested_timeout.as_millis()).unwrap_or(i32::MAX);
        let sent = self.clock.now();
        let hello = Hello { timeout_millis: requested_millis, session, password: &password };
        let (stream, welcome) = Conn::handshake(&self.config, endpoint, &hello).await?;
        if !self.state.record_welcome(welcome, (sent, self.clock.now())) {
            return Err(session_ended());
        }
        let newest_zxid = Arc::clone(&self.state.newest_zxid);
        let newest_zxid_before = newest_zxid.load(Ordering::Relaxed);
        let silence_limit = SILENCE_LIMIT.min(self.state.timeout() / 3);
        let (clock, handler) = (Arc::clone(&self.clock), Weak::clone(&self.handler));
        let counters = (newest_zxid, Arc::clone(&self.state.last_xid));
        let conn = Conn::start(stream, endpoint.clone(), silence_limit, counters, clock, handler, broken);
        let failed = |failed: Failed| {
            let error = EngineError::from(failed);
            let fault = if error.fault == Fault::Unknown { Fault::Retry } else { error.fault };
            EngineError::new(fault, format!("cannot connect to {endpoint}: {}", error.message))
        };
        if let Some((user, password)) = &self.config.login {
            let password = password.read().await?;
            let secret = Zeroizing::new(format!("{user}:{}", password.as_str()));
            conn.send(&Auth { scheme: "digest", secret: &secret }).answer().await.map_err(failed)?;
        }
        let path = if self.config.chroot.is_empty() { "/" } else { &self.config.chroot };
        if session == 0 {
            conn.send(&Sync { path }).answer().await.map_err(failed)?;
            return Ok(conn);
        }
        // This server possibly lags behind the changes that this client has seen. The quorum has possibly agreed on a
        // request that was sent on an earlier connection, and this server has not applied it yet. A `sync` proves
        // nothing here: a former leader answers a `sync` by itself. So this client sends a change that changes nothing,
        // which needs a quorum.
        let check = MultiOp::Check { path: path.to_owned(), version: ANY_VERSION };
        let _ = multi_outcome(conn.send(&Multi(vec![check])).answer().await).map_err(failed)?;
        if conn.last_zxid() < newest_zxid_before {
            self.end_rolled_back(&conn).await.map_err(failed)?;
        }
        Ok(conn)
    }

    /// Ends the session after a rollback of the data: a quorum has older data than a server reported before. The old
    /// data can contain claims that have ended; such claims end with the session.
    async fn end_rolled_back(&self, conn: &Conn) -> Result<(), Failed> {
        tracing::warn!(endpoint = %conn.endpoint, "the data of the servers went back: all holds are lost");
        self.state.end();
        // The holders are notified before other claims can be granted.
        runtime::sleep(NOTIFY_PAUSE).await;
        // If the request is lost, the session times out.
        let _ = conn.send(&Close).answer().await;
        Err(session_ended().into())
    }
}

/// A session slot: the place of one claim on a session. Dropping it frees the place.
pub(crate) struct SessionSlot {
    session: Arc<Session>,
    /// The total length of the paths of the claim's nodes.
    path_bytes: usize,
}

impl SessionSlot {
    pub(crate) fn take(session: &Arc<Session>, path_bytes: usize) -> Option<Self> {
        session.state.try_reserve(path_bytes).then(|| Self { session: Arc::clone(session), path_bytes })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.session.state.give_back(self.path_bytes);
    }
}

/// All sessions of a client.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Vec<Arc<Session>>>);

impl Sessions {
    /// Takes a slot on the least busy session of this timeout that has room, if there is one. Also returns whether the
    /// load makes a further session worth its cost.
    pub(crate) fn take_slot(
        &self,
        requested_timeout: Duration,
        path_bytes: usize,
    ) -> (Option<SessionSlot>, bool) {
        let sessions = lock_mutex(&self.0);
        let mut by_load: Vec<_> = sessions
            .iter()
            .filter(|session| {
                session.state.requested_timeout == requested_timeout && !session.state.has_ended()
            })
            .map(|session| (session.link.live().map_or(usize::MAX, |conn| conn.load()), session))
            .collect();
        by_load.sort_by_key(|(load, _)| *load);
        let wants_another = by_load.len() < MAX_SESSIONS_PER_TTL
            && by_load.first().is_none_or(|(load, _)| (BUSY_REQUESTS..usize::MAX).contains(load));
        let slot = by_load.into_iter().find_map(|(_, session)| SessionSlot::take(session, path_bytes));
        (slot, wants_another)
    }

    /// Takes a slot for a short request on any connected session that has room, if there is one.
    pub(crate) fn take_any_slot(&self) -> Option<SessionSlot> {
        let sessions = lock_mutex(&self.0);
        let connected = sessions.iter().filter(|session| session.link.live().is_some());
        connected
            .filter(|session| !session.state.has_ended())
            .find_map(|session| SessionSlot::take(session, 0))
    }

    pub(crate) fn add(&self, session: Arc<Session>) {
        lock_mutex(&self.0).push(session);
    }

    pub(crate) fn forget(&self, session: &Arc<Session>) {
        lock_mutex(&self.0).retain(|other| !Arc::ptr_eq(other, session));
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        lock_mutex(&self.0).clone()
    }
}
