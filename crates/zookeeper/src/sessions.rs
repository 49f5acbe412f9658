//! The sessions of a client, each with its connection. All claims of one ttl share one, or a few when there is much to do: a server does
//! the requests of one session one after the other.

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
    lock_of, runtime,
    session::{Facts, session_ended},
    watches::WatchHandler,
    wire::{Auth, Close, Hello, Multi, MultiOp, Sync},
};

/// A server that answers nothing for so long is taken for gone; or for a third of a shorter timeout.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// How long it takes at most that those who hold by a session hear of its end.
const NOTIFY_PAUSE: Duration = Duration::from_millis(200);
/// The most sessions for claims of one ttl, and how many requests are under way on the least busy one when another pays.
const MAX_SESSIONS_PER_TTL: usize = 4;
const BUSY_REQUESTS: usize = 12;

/// One session and its connection.
pub(crate) struct Session {
    pub(crate) facts: Arc<Facts>,
    pub(crate) link: Link<Dialer>,
}

/// Connects to the servers, for one session.
pub(crate) struct Dialer {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    facts: Arc<Facts>,
    handler: Weak<dyn WatchHandler>,
    rotation: Rotation,
}

impl Session {
    /// A session that begins when it is first used.
    pub(crate) fn new(
        config: Arc<Config>,
        clock: Arc<dyn Clock>,
        handler: Weak<dyn WatchHandler>,
        facts: Facts,
        first: usize,
        contact: Contact,
    ) -> Self {
        let facts = Arc::new(facts);
        let dialer = Dialer {
            config,
            clock: Arc::clone(&clock),
            facts: Arc::clone(&facts),
            handler,
            rotation: Rotation::new(first),
        };
        Self { facts, link: Link::new(dialer, clock, contact) }
    }

    /// Its connection; an error if it is over.
    pub(crate) async fn conn(&self) -> Result<Arc<Conn>, EngineError> {
        if self.facts.is_gone() {
            return Err(session_ended());
        }
        self.link.conn().await
    }

    /// Keeps its connection as long as it lasts.
    pub(crate) async fn mend(&self) {
        let ended = async {
            loop {
                let mut changed = std::pin::pin!(self.facts.changed.notified());
                changed.as_mut().enable();
                if self.facts.is_gone() {
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

    /// Ends it on the server, with all its nodes.
    pub(crate) async fn close(&self) -> Result<(), Failed> {
        self.facts.end();
        let Some(conn) = self.link.live() else { return Err(Failed::Unsent) };
        conn.send(&Close).answer().await
    }
}

impl Dial for Dialer {
    type Conn = Conn;

    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<Conn, EngineError>> {
        Box::pin(self.connect_any(broken))
    }

    fn is_dead(conn: &Conn) -> bool {
        conn.is_dead()
    }

    fn place(conn: &Conn) -> String {
        conn.endpoint.to_string()
    }

    fn connected(&self, _: &Arc<Conn>, again: bool) {
        if again && let Some(handler) = self.handler.upgrade() {
            handler.connected_again(&self.facts);
        }
    }
}

impl Dialer {
    /// The first server, from the next one on, that serves; else what the last one that can be reached said.
    async fn connect_any(&self, broken: Arc<Notify>) -> Result<Conn, EngineError> {
        let servers = &self.config.servers;
        // Until it has caught up.
        let limit = dial_limit(self.config.connect_timeout, servers.len());
        let dial = async |endpoint| {
            let dialed = runtime::within(limit, self.dial_one(endpoint, Arc::clone(&broken))).await;
            dialed.unwrap_or_else(|| {
                Err(EngineError::new(
                    Fault::Retry,
                    format!("cannot connect to {endpoint}: no answer within {limit:?}"),
                ))
            })
        };
        self.rotation.connect(servers, dial, || self.facts.is_gone()).await
    }

    async fn dial_one(&self, endpoint: &Endpoint, broken: Arc<Notify>) -> Result<Conn, EngineError> {
        let (session, password) = self.facts.identity();
        let asked = i32::try_from(self.facts.asked.as_millis()).unwrap_or(i32::MAX);
        let sent = self.clock.now();
        let hello = Hello { timeout_millis: asked, session, password: &password };
        let (bytes, welcome) = Conn::greet(&self.config, endpoint, &hello).await?;
        if !self.facts.accepted(welcome, (sent, self.clock.now())) {
            return Err(session_ended());
        }
        let seen = Arc::clone(&self.facts.seen);
        let before = seen.load(Ordering::Relaxed);
        let silence = SILENCE_LIMIT.min(self.facts.timeout() / 3);
        let (clock, handler) = (Arc::clone(&self.clock), Weak::clone(&self.handler));
        let known = (seen, Arc::clone(&self.facts.xids));
        let conn = Conn::begin(bytes, endpoint.clone(), silence, known, clock, handler, broken);
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
        // What this client did already, the server may not know yet; and what it asked for on another connection may be agreed upon
        // and not done. A `sync` does not tell: who led before answers it by itself. A change that changes nothing does.
        let check = MultiOp::Check { path: path.to_owned(), version: -1 };
        let _ = multi_outcome(conn.send(&Multi(vec![check])).answer().await).map_err(failed)?;
        if conn.zxid() < before {
            self.end_rolled_back(&conn).await.map_err(failed)?;
        }
        Ok(conn)
    }

    /// A quorum knows of less than a server said before: they were given older data, in which claims stand that are over. They end
    /// with their session.
    async fn end_rolled_back(&self, conn: &Conn) -> Result<(), Failed> {
        tracing::warn!(endpoint = %conn.endpoint, "the data of the servers went back: all holds are lost");
        self.facts.end();
        // Its holders are told before others are let in.
        runtime::sleep(NOTIFY_PAUSE).await;
        // If it does not arrive, the session ends by itself.
        let _ = conn.send(&Close).answer().await;
        Err(session_ended().into())
    }
}

/// A claim's place on a session.
pub(crate) struct SessionSlot {
    session: Arc<Session>,
    bytes: usize,
}

impl SessionSlot {
    pub(crate) fn take(session: &Arc<Session>, bytes: usize) -> Option<Self> {
        session.facts.take(bytes).then(|| Self { session: Arc::clone(session), bytes })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.session.facts.give_back(self.bytes);
    }
}

/// All sessions of a client.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Vec<Arc<Session>>>);

impl Sessions {
    /// A seat on a session of this timeout, the least busy one with room, if there is one; and whether another session pays.
    pub(crate) fn slot(&self, asked: Duration, bytes: usize) -> (Option<SessionSlot>, bool) {
        let known = lock_of(&self.0);
        let mut same_ttl: Vec<_> = known
            .iter()
            .filter(|session| session.facts.asked == asked && !session.facts.is_gone())
            .map(|session| (session.link.live().map_or(usize::MAX, |conn| conn.load()), session))
            .collect();
        same_ttl.sort_by_key(|(load, _)| *load);
        let wants_another = same_ttl.len() < MAX_SESSIONS_PER_TTL
            && same_ttl.first().is_none_or(|(load, _)| (BUSY_REQUESTS..usize::MAX).contains(load));
        let slot = same_ttl.into_iter().find_map(|(_, session)| SessionSlot::take(session, bytes));
        (slot, wants_another)
    }

    pub(crate) fn add(&self, session: Arc<Session>) {
        lock_of(&self.0).push(session);
    }

    pub(crate) fn forget(&self, session: &Arc<Session>) {
        lock_of(&self.0).retain(|known| !Arc::ptr_eq(known, session));
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        lock_of(&self.0).clone()
    }
}
