//! The engine of a Redlock: one client of the nodes.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Breaking, Claim, ClaimId, Clock, Contact, Engine, EngineError, Env, Hold,
    How, Life, Mailbox, Name, Notification, Profile, Release, Released, Renewed, cannot_claim_all,
};

use super::{config::RedlockConfig, node::Node};
use crate::{engine::REQUEST_LIFE, keys::Keys, lock_mutex, scripts::millis};

/// The poll intervals of waiting claims. A release notifies some waiters, so polling is only for expired leases and for
/// the waiters that are not notified.
const POLL_INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_millis(250);
/// The number of tokens of a grant: one for the claim itself, and one for each of the up to 64 tasks of this process to
/// which the hold is handed over before another process gets the lock.
const TOKENS_PER_GRANT: u32 = 1 + 64;
/// The time limit of a request: without an answer by then, its outcome is unknown. The first request connects to all
/// nodes, which can take most of this time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the engine waits for the other nodes after its first connections to a majority of the nodes.
const FIRST_CONTACT_TIMEOUT: Duration = Duration::from_millis(200);

/// Locks on a majority of independent servers.
pub struct RedlockEngine {
    /// The nodes of the URL, and the options.
    pub(super) config: RedlockConfig,
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) clock: Arc<dyn Clock>,
    /// Collects the notifications of all nodes for the keeper.
    mailbox: Arc<Mailbox>,
    /// The number of the next attempt to claim: each attempt writes its own value under the lock key.
    pub(super) next_attempt: AtomicU32,
    /// Whether this client was connected to a majority of the nodes at some time.
    pub(super) was_connected: AtomicBool,
    /// Records whether the nodes were ever reached.
    pub(super) contact: Contact,
    /// The longest ttl of any client of the nodes, in milliseconds.
    max_ttl: AtomicU64,
    /// Claims that wait: they were answered "taken".
    waiting_claims: Mutex<HashSet<ClaimId>>,
    profile: Profile,
}

impl RedlockEngine {
    /// Creates a client of the nodes. The first request connects to the nodes.
    ///
    /// The futures of this engine need a tokio runtime with timers and I/O, such as the keeper's.
    #[must_use]
    pub fn new(config: RedlockConfig, env: &Env) -> Self {
        let (mailbox, id) = (Arc::default(), ClaimId(env.lineage().get().to_be_bytes()));
        let contact = Contact::default();
        let node =
            |node_config| Node::new(node_config, config.nodes.len(), id, &env.clock, &mailbox, &contact);
        let nodes = config.nodes.iter().map(node).collect();
        let (next_attempt, was_connected, waiting_claims) = Default::default();
        Self {
            nodes,
            clock: Arc::clone(&env.clock),
            mailbox,
            next_attempt,
            was_connected,
            max_ttl: AtomicU64::new(millis(config.max_ttl)),
            waiting_claims,
            profile: profile(&config, contact.clone()),
            contact,
            config,
        }
    }

    /// The size of a majority.
    pub(super) fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// The keys of a name, which are the same on all nodes.
    pub(super) fn keys<'a>(&'a self, name: &'a Name) -> Result<Keys<'a>, EngineError> {
        Keys::of(&self.config.nodes[0].prefix, name)
    }

    /// How long the engine waits for the other nodes after its first connections to a majority of the nodes.
    pub(super) fn first_contact_timeout(&self) -> Duration {
        self.config.node_timeout.unwrap_or(FIRST_CONTACT_TIMEOUT)
    }

    /// The longest ttl of any client of the nodes.
    pub(super) fn max_ttl(&self) -> Duration {
        Duration::from_millis(self.max_ttl.load(Ordering::Relaxed))
    }

    /// Records the longest ttl of another client, if it is longer than the longest one so far.
    pub(super) fn record_max_ttl(&self, max_ttl: Duration) {
        self.max_ttl.fetch_max(millis(max_ttl), Ordering::Relaxed);
    }

    /// Whether the claim waits.
    pub(super) fn is_waiting(&self, claim: ClaimId) -> bool {
        lock_mutex(&self.waiting_claims).contains(&claim)
    }

    /// Records whether the claim waits.
    pub(super) fn set_waiting(&self, claim: ClaimId, waits: bool) {
        let mut waiting_claims = lock_mutex(&self.waiting_claims);
        let changed = if waits { waiting_claims.insert(claim) } else { waiting_claims.remove(&claim) };
        drop(waiting_claims);
        if changed {
            self.nodes.iter().for_each(|node| node.set_waiting(claim, waits));
        }
    }
}

impl Engine for RedlockEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    /// No groups: a request about any holds goes to all nodes.
    fn group(&self, _: &Name) -> Option<u16> {
        None
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(self.claim_now(claim, how))
    }

    fn claim_all<'a>(&'a self, _: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        cannot_claim_all()
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(self.renew_now(holds))
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(self.release_now(releases))
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(async move {
            // While the keeper waits for notifications, broken connections are made again.
            let mend = join_all(self.nodes.iter().map(|node| node.mend()));
            let notifications = tokio::select! {
                biased;
                notifications = self.mailbox.read() => notifications,
                _ = mend => Vec::new(),
            };
            // A notification of doubt is about one node that was restarted, or whose clock stepped. The votes of the
            // other nodes still count, and a renewal sets the lock on that node again. So holds are not put in doubt:
            // all claims ask again instead.
            let replace_doubt = |notification| {
                if matches!(notification, Notification::Doubt) { Notification::AskAll } else { notification }
            };
            notifications.into_iter().map(replace_doubt).collect()
        })
    }

    fn memos(&self) -> Option<&dyn leasehold_core::Memos> {
        None
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        None
    }
}

/// The properties of this engine, as the crate `leasehold_core` reads them.
fn profile(config: &RedlockConfig, contact: Contact) -> Profile {
    let mut profile = Profile::new("redlock");
    profile.life = Life::Lease;
    profile.push = true;
    profile.extends = false;
    profile.poll = POLL_INTERVALS;
    profile.tokens = TOKENS_PER_GRANT;
    profile.no_memos = Some("a minority of the nodes could keep a memo that the majority never had");
    profile.no_conversion = Some(leasehold_core::EXCLUSIVE_ONLY);
    profile.no_handles = None;
    profile.modes = leasehold_core::Modes::Exclusive;
    profile.breaking = Breaking::Lease;
    profile.ttl = Duration::from_millis(100)..=config.max_ttl;
    profile.request_timeout = REQUEST_TIMEOUT;
    profile.request_life = REQUEST_LIFE;
    profile.contact = Some(contact);
    profile
}

impl fmt::Debug for RedlockEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockEngine").field("config", &self.config).finish_non_exhaustive()
    }
}
