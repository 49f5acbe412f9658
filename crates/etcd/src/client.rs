//! One client of a cluster: what the verbs share.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    Answer, ClaimId, Clock, Contact, EngineError, Env, Grant, InFlight, Instant, Lineage, Mailbox, Name,
    Previous, Token,
};
use tokio::sync::Notify;
use tonic::Status;

use crate::{
    claims::{Claims, Keys},
    config::Config,
    conn::Conn,
    dial::{Dialer, Link},
    engine::REQUEST_TIMEOUT,
    error::{classify, unreadable, wants_login},
    keys::{self, Dir},
    lock_of,
    min_hold_expiry::MinHoldKeys,
    runtime,
    session::{LeaseSlot, Session, Sessions, URGENT_INTERVAL, gone, seconds},
    watches::{Begin, Target},
    wire::{self, UnaryRequest},
};

/// What the verbs of one engine share.
pub(crate) struct Client {
    pub(crate) link: Link,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) mailbox: Mailbox,
    pub(crate) in_flight: InFlight,
    pub(crate) sessions: Sessions,
    /// The leases of minimum holds of this client, and when each ends.
    pub(crate) min_hold_leases: Mutex<Vec<(Instant, i64)>>,
    /// The keys of minimum holds that this client has seen, of its own and of other clients.
    pub(crate) min_hold_keys: Mutex<MinHoldKeys>,
    /// Wakes the maintenance task when something is due earlier than before.
    pub(crate) wake_maintenance: Arc<Notify>,
    claims: Mutex<Claims>,
    pub(crate) keys: Keys,
    /// The newest revision in a reply.
    newest_revision: AtomicI64,
    /// Numbers the requests that create keys: they may overtake each other, on one connection too.
    requests: AtomicU64,
    has_maintenance: AtomicBool,
    /// This client needed a lease again after its first one, so it now keeps idle leases for a while.
    pub(crate) keeps_leases: AtomicBool,
    weak_self: Weak<Client>,
}

impl Client {
    pub(crate) fn new(config: Config, env: &Env, contact: Contact) -> Arc<Self> {
        let first = env.lineage().get() as usize;
        Arc::new_cyclic(|weak_self: &Weak<Self>| Self {
            link: Link::new(
                Dialer::new(config, Arc::clone(&env.clock), Weak::clone(weak_self) as _, first),
                Arc::clone(&env.clock),
                contact,
            ),
            clock: Arc::clone(&env.clock),
            mailbox: Mailbox::default(),
            in_flight: InFlight::default(),
            sessions: Sessions::default(),
            min_hold_leases: Mutex::default(),
            min_hold_keys: Mutex::default(),
            wake_maintenance: Arc::default(),
            claims: Mutex::default(),
            keys: Keys::default(),
            newest_revision: AtomicI64::new(0),
            requests: AtomicU64::new(0),
            has_maintenance: AtomicBool::new(false),
            keeps_leases: AtomicBool::new(false),
            weak_self: Weak::clone(weak_self),
        })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.link.dialer().config.prefix
    }

    pub(crate) fn dir(&self, name: &Name) -> Dir {
        Dir::of(self.prefix(), name)
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn claims(&self) -> MutexGuard<'_, Claims> {
        lock_of(&self.claims)
    }

    /// The number of a request that creates.
    pub(crate) fn request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request; once more if the server only wanted a new login.
    pub(crate) async fn call<R: UnaryRequest>(&self, request: R) -> Result<(Arc<Conn>, R::Answer), Failed> {
        let newest_revision = self.newest_revision.load(Ordering::Relaxed);
        let mut conn = self.link.conn().await.map_err(Failed::NotSent)?;
        // Only a client with a login may have to log in again.
        let again = self.link.dialer().config.login.as_ref().map(|_| request.clone());
        let mut answer = conn.call(request).await;
        if let Err(status) = &answer
            && let Some(request) = again.filter(|_| wants_login(status))
        {
            conn = self.link.conn().await.map_err(Failed::NotSent)?;
            answer = conn.call(request).await;
        }
        let answer = answer.map_err(Failed::Sent)?;
        if let Some(revision) = R::revision(&answer) {
            self.newest_revision.fetch_max(revision, Ordering::Relaxed);
            if revision < newest_revision {
                self.went_back(revision);
            }
        }
        Ok((conn, answer))
    }

    /// F47: a request that left after a reply with a newer revision got an older one. The server was restored from
    /// older data, which may contain claims that have ended. They end with their leases, so this client revokes the
    /// leases that it kept alive.
    fn went_back(&self, revision: i64) {
        self.newest_revision.store(revision, Ordering::Relaxed);
        tracing::warn!(revision, "the server's data went back: all holds are lost");
        lock_of(&self.min_hold_keys).clear();
        for session in self.sessions.all() {
            session.end();
            self.lease_is_gone(session.id);
            let (client, id) = (Weak::clone(&self.weak_self), session.id);
            runtime::spawn(async move {
                if let Some(client) = client.upgrade() {
                    let _ = runtime::within(REQUEST_TIMEOUT, client.ask(wire::Revoke { id })).await;
                }
            });
        }
    }

    /// Like `call`, with the error classified.
    pub(crate) async fn ask<R: UnaryRequest>(
        &self,
        request: R,
    ) -> Result<(Arc<Conn>, R::Answer), EngineError> {
        self.call(request).await.map_err(Failed::classified)
    }

    /// A slot on a lease for this ttl that was confirmed recently.
    pub(crate) async fn slot(&self, ttl: Duration) -> Result<LeaseSlot, EngineError> {
        loop {
            let slot = self.slot_on_any(ttl).await?;
            match self.freshen(slot.session()).await {
                Ok(()) => return Ok(slot),
                Err(_) if slot.session().is_gone() => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn slot_on_any(&self, ttl: Duration) -> Result<LeaseSlot, EngineError> {
        let class = seconds(ttl);
        if let Some(slot) = self.sessions.slot(class) {
            return Ok(slot);
        }
        let _making = self.sessions.making.lock().await;
        if let Some(slot) = self.sessions.slot(class) {
            return Ok(slot);
        }
        let asked = self.now();
        let (id, ttl) = self.grant(class).await?;
        let slot = self.sessions.add(Session::new(id, class, ttl, asked)).ok_or_else(unreadable)?;
        if let Some(conn) = self.link.live() {
            self.watch_epoch_key(&conn, id);
        }
        if !self.has_maintenance.swap(true, Ordering::Relaxed) {
            leasehold_core::maintain(
                Weak::clone(&self.weak_self),
                Arc::clone(&self.clock),
                Arc::clone(&self.wake_maintenance),
            );
        }
        self.wake_maintenance.notify_one();
        Ok(slot)
    }

    /// Creates a lease of at least this many seconds. Returns its id and the granted time.
    pub(crate) async fn grant(&self, seconds: u64) -> Result<(i64, Duration), EngineError> {
        let ttl = i64::try_from(seconds).map_err(|_| unreadable())?;
        let (_, granted) = self.ask(wire::Grant { ttl }).await?;
        let given = u64::try_from(granted.ttl).unwrap_or(0);
        if granted.id == 0 || given == 0 || !granted.error.is_empty() {
            return Err(unreadable());
        }
        Ok((granted.id, Duration::from_secs(given)))
    }

    /// Waits until a keep-alive of the lease was answered recently.
    pub(crate) async fn freshen(&self, session: &Session) -> Result<(), EngineError> {
        loop {
            let mut changed = std::pin::pin!(session.changed.notified());
            changed.as_mut().enable();
            if session.is_gone() {
                return Err(gone());
            }
            if session.left(self.now()).is_some() {
                return Ok(());
            }
            let conn = self.link.conn().await?;
            if session.should_send_keep_alive(self.now()) {
                conn.keep_alive(session.id);
            }
            // The answer may be lost with its connection, so the loop asks again.
            runtime::within(URGENT_INTERVAL, changed).await;
        }
    }

    /// Watches the epoch key of this lease: an operator who breaks a hold writes to it.
    pub(crate) fn watch_epoch_key(&self, conn: &Conn, lease: i64) {
        let key = keys::epoch(self.prefix(), lease);
        // A write before the watch concerned earlier holds of the lease, so it is not missed.
        conn.watches.watch(Target::Epoch(lease), (key, Vec::new()), Begin::Now { seen: i64::MAX });
    }

    /// For tasks that must not keep the client alive.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.weak_self)
    }

    /// Ends the watches of this claim.
    pub(crate) fn unwatch(&self, id: ClaimId) {
        if let Some(conn) = self.link.live() {
            conn.watches.leave(Target::Blocker(id));
            conn.watches.leave(Target::Own(id));
        }
    }

    /// The answer for a claim that holds by a key created at this revision, for `ttl` from before the request left.
    pub(crate) fn held(conn: &Conn, revision: i64, ttl: Duration) -> Answer {
        Answer::Held(grant(conn.cluster, revision, ttl))
    }
}

/// Revisions of two clusters cannot be compared, so the lineage is the cluster.
pub(crate) fn lineage(cluster: u64) -> Lineage {
    Lineage::new(cluster.into())
}

/// A grant. The server does not report how the previous hold ended.
pub(crate) fn grant(cluster: u64, revision: i64, ttl: Duration) -> Grant {
    let token = Token { lineage: lineage(cluster), number: revision.unsigned_abs() };
    Grant { token, tokens: 1, ttl: Some(ttl), previous: Previous::Unknown }
}

/// Why a request has no reply.
pub(crate) enum Failed {
    /// The request was not sent.
    NotSent(EngineError),
    /// The request may have been sent.
    Sent(Status),
}

impl Failed {
    pub(crate) fn classified(self) -> EngineError {
        match self {
            Self::NotSent(error) => error,
            Self::Sent(status) => classify(&status),
        }
    }
}
