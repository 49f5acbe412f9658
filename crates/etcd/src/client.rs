//! The client of one engine: the connection, the leases and the claims that all verbs share.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    ClaimId, Clock, Contact, ContendedNames, EngineError, Env, Grant, InFlight, Instant, Lineage, Mailbox,
    Name, TokenBlocks,
};
use tokio::sync::Notify;
use tonic::Status;

use crate::{
    claims::{Claims, KeysInUse},
    config::{Config, Layout},
    conn::Conn,
    dial::{Dialer, Link},
    engine::REQUEST_TIMEOUT,
    error::{classify, unreadable, wants_login},
    keys::{self, Dir, Span},
    known_memos::KnownMemos,
    lock_mutex,
    memo_followers::MemoFollowers,
    memo_leases::MemoLeases,
    min_hold_expiry::MinHoldKeys,
    push_handler::PushHandler,
    runtime,
    session::{LeaseSlot, Session, Sessions, URGENT_INTERVAL, lease_ended, whole_seconds},
    views::Views,
    watches::{WatchStart, WatchTarget},
    wire::{self, UnaryRequest},
};

/// What the verbs of one engine share.
pub(crate) struct Client {
    /// The connection to the cluster.
    pub(crate) link: Link,
    pub(crate) clock: Arc<dyn Clock>,
    /// The notifications for the keeper.
    pub(crate) mailbox: Mailbox,
    /// Which requests of claims may still arrive at the server.
    pub(crate) in_flight: InFlight,
    /// The leases that this client keeps alive.
    pub(crate) sessions: Sessions,
    /// For each minimum hold of this client: when it ends, and its lease.
    pub(crate) min_hold_leases: Mutex<Vec<(Instant, i64)>>,
    /// The keys of minimum holds that this client has seen, of its own and of other clients.
    pub(crate) min_hold_keys: Mutex<MinHoldKeys>,
    /// The leases of the memos that this client wrote.
    pub(crate) memo_leases: MemoLeases,
    pub(crate) known_memos: KnownMemos,
    pub(crate) memo_followers: MemoFollowers,
    /// The views that are told of changes.
    pub(crate) views: Views,
    /// Wakes the maintenance task when something is due earlier than before.
    pub(crate) wake_maintenance: Arc<Notify>,
    /// The claim table.
    claims: Mutex<Claims>,
    /// The keys that belong to a claim now.
    pub(crate) keys_in_use: KeysInUse,
    pub(crate) contended_names: ContendedNames,
    /// The newest revision in a reply.
    newest_revision: AtomicI64,
    /// Numbers the requests that create keys: such requests may overtake each other, even on one connection.
    request_counter: AtomicU64,
    /// Whether the maintenance task was started.
    maintenance_started: AtomicBool,
    /// Whether this client has ever revoked a lease together with the only claim on it. If so, it keeps its later
    /// leases for a while when they are idle.
    pub(crate) keeps_leases: AtomicBool,
    /// For tasks that must not keep this client alive.
    weak_self: Weak<Client>,
}

impl Client {
    pub(crate) fn new(config: Config, env: &Env, contact: Contact) -> Arc<Self> {
        let first_member = env.lineage().get() as usize;
        Arc::new_cyclic(|weak_self: &Weak<Self>| Self {
            link: Link::new(
                Dialer::new(config, Arc::clone(&env.clock), Weak::clone(weak_self) as _, first_member),
                Arc::clone(&env.clock),
                contact,
            ),
            clock: Arc::clone(&env.clock),
            mailbox: Mailbox::default(),
            in_flight: InFlight::default(),
            sessions: Sessions::default(),
            min_hold_leases: Mutex::default(),
            min_hold_keys: Mutex::default(),
            memo_leases: MemoLeases::default(),
            known_memos: KnownMemos::default(),
            memo_followers: MemoFollowers::default(),
            views: Views::default(),
            wake_maintenance: Arc::default(),
            claims: Mutex::default(),
            keys_in_use: KeysInUse::default(),
            contended_names: ContendedNames::default(),
            newest_revision: AtomicI64::new(0),
            request_counter: AtomicU64::new(0),
            maintenance_started: AtomicBool::new(false),
            keeps_leases: AtomicBool::new(false),
            weak_self: Weak::clone(weak_self),
        })
    }

    pub(crate) fn prefix(&self) -> &str {
        self.link.dialer().config.key_prefix()
    }

    pub(crate) fn layout(&self) -> Layout {
        self.link.dialer().config.layout
    }

    pub(crate) fn dir(&self, name: &Name) -> Dir {
        match self.layout() {
            Layout::Directory => Dir::of(self.prefix(), name),
            Layout::Key => Dir::of_queue(self.prefix(), name),
            Layout::Election => Dir::of_election(self.prefix(), name),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn claims(&self) -> MutexGuard<'_, Claims> {
        lock_mutex(&self.claims)
    }

    /// The next number for a request that creates a key, or for a release.
    pub(crate) fn next_request_number(&self) -> u64 {
        self.request_counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request. Sends it once more if the server refused it only because the client has to log in again.
    pub(crate) async fn call<R: UnaryRequest>(&self, request: R) -> Result<(Arc<Conn>, R::Answer), Failed> {
        // A smaller revision in the answer shows that the server was restored from older data.
        let newest_revision = self.newest_revision.load(Ordering::Relaxed);
        let mut conn = self.link.conn().await.map_err(Failed::NotSent)?;
        // Only a client with a login may have to log in again.
        let login_retry = self.link.dialer().config.login.as_ref().map(|_| request.clone());
        let mut answer = conn.call(request).await;
        if let Err(status) = &answer
            && let Some(request) = login_retry.filter(|_| wants_login(status))
        {
            conn = self.link.conn().await.map_err(Failed::NotSent)?;
            answer = conn.call(request).await;
        }
        let answer = answer.map_err(Failed::Sent)?;
        if let Some(revision) = R::revision(&answer) {
            self.newest_revision.fetch_max(revision, Ordering::Relaxed);
            if revision < newest_revision {
                self.end_rolled_back(revision);
            }
        }
        Ok((conn, answer))
    }

    /// Ends all leases of this client after a rollback of the data (F47): a reply has an older revision than another
    /// reply that arrived before the request was sent, so the server was restored from older data. The old data can
    /// contain claims that have ended. Such claims end only with their leases, so this client revokes all leases that
    /// it kept alive.
    fn end_rolled_back(&self, revision: i64) {
        self.newest_revision.store(revision, Ordering::Relaxed);
        tracing::warn!(revision, "the server's data went back: all holds are lost");
        lock_mutex(&self.min_hold_keys).clear();
        self.memo_leases.clear();
        self.known_memos.clear();
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

    /// Sends a request as [`call`](Self::call) does, and returns a classified error.
    pub(crate) async fn ask<R: UnaryRequest>(
        &self,
        request: R,
    ) -> Result<(Arc<Conn>, R::Answer), EngineError> {
        self.call(request).await.map_err(Failed::classified)
    }

    /// Takes a slot on a lease for this ttl that the server confirmed recently: the place for one key.
    pub(crate) async fn take_lease_slot(&self, ttl: Duration) -> Result<LeaseSlot, EngineError> {
        loop {
            let lease_slot = self.existing_or_new_slot(ttl).await?;
            match self.wait_until_confirmed(lease_slot.session()).await {
                Ok(()) => return Ok(lease_slot),
                Err(_) if lease_slot.session().has_ended() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes a slot on a lease for this ttl; creates a lease if none has room. The last confirmation of the lease is
    /// possibly long ago.
    async fn existing_or_new_slot(&self, ttl: Duration) -> Result<LeaseSlot, EngineError> {
        let lease_seconds = whole_seconds(ttl);
        if let Some(lease_slot) = self.sessions.take_slot(lease_seconds) {
            return Ok(lease_slot);
        }
        let _creation = self.sessions.creation.lock().await;
        if let Some(lease_slot) = self.sessions.take_slot(lease_seconds) {
            return Ok(lease_slot);
        }
        let sent = self.now();
        let (id, ttl) = self.create_lease(lease_seconds).await?;
        let lease_slot =
            self.sessions.add(Session::new(id, lease_seconds, ttl, sent)).ok_or_else(unreadable)?;
        if let Some(conn) = self.link.live() {
            self.watch_epoch_key(&conn, id);
        }
        if !self.maintenance_started.swap(true, Ordering::Relaxed) {
            leasehold_core::maintain(
                Weak::clone(&self.weak_self),
                Arc::clone(&self.clock),
                Arc::clone(&self.wake_maintenance),
            );
        }
        self.wake_maintenance.notify_one();
        Ok(lease_slot)
    }

    /// Creates a lease of at least this many seconds. Returns its id and the granted time.
    pub(crate) async fn create_lease(&self, whole_seconds: u64) -> Result<(i64, Duration), EngineError> {
        let ttl = i64::try_from(whole_seconds).map_err(|_| unreadable())?;
        let (_, granted) = self.ask(wire::Grant { ttl }).await?;
        let granted_seconds = u64::try_from(granted.ttl).unwrap_or(0);
        if granted.id == 0 || granted_seconds == 0 || !granted.error.is_empty() {
            return Err(unreadable());
        }
        Ok((granted.id, Duration::from_secs(granted_seconds)))
    }

    /// Waits until a keep-alive of the lease was answered recently.
    pub(crate) async fn wait_until_confirmed(&self, session: &Session) -> Result<(), EngineError> {
        loop {
            let mut changed = std::pin::pin!(session.changed.notified());
            changed.as_mut().enable();
            if session.has_ended() {
                return Err(lease_ended());
            }
            if session.remaining(self.now()).is_some() {
                return Ok(());
            }
            let conn = self.link.conn().await?;
            if session.should_send_keep_alive(self.now()) {
                conn.keep_alive(session.id);
            }
            // The answer may be lost with its connection, so the loop sends the keep-alive again.
            runtime::within(URGENT_INTERVAL, changed).await;
        }
    }

    /// Watches the epoch key of this lease: an operator who breaks a hold writes to it.
    pub(crate) fn watch_epoch_key(&self, conn: &Conn, lease: i64) {
        let key = keys::epoch_key(self.prefix(), lease);
        // A write before the start of the watch concerned earlier holds of the lease, so nothing is missed.
        let start = WatchStart::NowOnly { read_revision: 0 };
        self.watch_target(conn, WatchTarget::Epoch(lease), (key, Vec::new()), start);
    }

    /// Watches a span for this target. Reads once if a change that the target has not seen was reported before.
    pub(crate) fn watch_target(&self, conn: &Conn, target: WatchTarget, span: Span, start: WatchStart) {
        if conn.watches.watch(target, span, start, self.now()) {
            self.on_missed(target);
        }
    }

    /// A reference for tasks that must not keep the client alive.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.weak_self)
    }

    /// Ends the watches of this claim.
    pub(crate) fn unwatch(&self, id: ClaimId) {
        if let Some(conn) = self.link.live() {
            let now = self.now();
            conn.watches.unwatch(WatchTarget::Blocker(id), now);
            conn.watches.unwatch(WatchTarget::Own(id), now);
        }
    }

    /// How the create revision of a key becomes the tokens of its hold.
    pub(crate) fn token_blocks(&self) -> TokenBlocks {
        self.link.dialer().config.token_blocks()
    }

    /// Revisions of two clusters cannot be compared, so the lineage is made from the id of the cluster.
    pub(crate) fn lineage(&self, cluster: u64) -> Lineage {
        self.token_blocks().lineage(cluster)
    }

    /// The grant of a claim that asked for `tokens` tokens and holds by a key created at this revision. The grant is
    /// valid for `ttl`, counted from before the request left.
    pub(crate) fn held(
        &self,
        conn: &Conn,
        revision: i64,
        tokens: u32,
        ttl: Duration,
    ) -> Result<Grant, EngineError> {
        self.token_blocks().grant(self.lineage(conn.cluster), revision, tokens, ttl)
    }
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
