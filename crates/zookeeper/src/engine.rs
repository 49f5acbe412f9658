//! The five verbs on an ensemble.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

pub(crate) use leasehold_core::REQUEST_TIMEOUT;
use leasehold_core::{
    Breaking, Contact, Env, MAX_NAMES_AT_ONCE, Modes, Profile, WATCHED_CLAIM_LIFE, WATCHED_POLL,
};

use crate::{
    client::Client,
    config::{Config, Layout},
};

/// The range of ttls. The ttl of a hold is the timeout that the client requests for the session. The server raises or
/// lowers this timeout to its own bounds, which are 4 and 40 s by default.
const TTL: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(24 * 3600);
/// How long after it was sent a request may still be applied.
pub(crate) const REQUEST_LIFE: Duration = Duration::from_secs(15);

/// Why there are no memos with [`Layout::Plain`].
const NO_PLAIN_MEMOS: &str = "with layout=plain the name of a node contains no claim id, so no condition of a write \
    tells the node of the holder from a node of another program: use another layout, and another name";

/// Locks on one ZooKeeper ensemble.
pub struct ZookeeperEngine {
    pub(crate) client: Arc<Client>,
    profile: Profile,
}

impl ZookeeperEngine {
    /// A client of the ensemble. This function does not connect; the first request does.
    ///
    /// The futures of this engine need a tokio runtime with timers and I/O, such as the runtime of the keeper.
    #[must_use]
    pub fn new(config: Config, env: &Env) -> Self {
        let contact = Contact::default();
        let profile = profile(&config, contact.clone());
        Self { client: Client::new(config, env, contact), profile }
    }
}

leasehold_core::forward_engine!(ZookeeperEngine, memos: unless_refused, claim_all, |client| client.notifications());

/// What this engine can do, for core.
fn profile(config: &Config, contact: Contact) -> Profile {
    let mut profile = Profile::new("zookeeper");
    profile.push = true;
    profile.extends = false;
    profile.poll = WATCHED_POLL;
    profile.entry_life = WATCHED_CLAIM_LIFE;
    profile.tokens = config.token_blocks.size();
    profile.modes = match config.layout {
        Layout::Mutex | Layout::ReadWrite => Modes::All,
        Layout::Latch | Layout::Plain => Modes::Exclusive,
    };
    // With `layout=plain` the name of a node contains no claim id.
    profile.claims_at_once = if config.layout == Layout::Plain { 1 } else { MAX_NAMES_AT_ONCE };
    profile.fifo = true;
    profile.breaking = if config.layout == Layout::Latch { Breaking::Force } else { Breaking::Lease };
    profile.ttl = TTL;
    profile.request_life = REQUEST_LIFE;
    profile.no_conversion =
        Some("the new node of a converted hold would be behind the claims that wait already");
    profile.no_memos = (config.layout == Layout::Plain).then_some(NO_PLAIN_MEMOS);
    profile.contact = Some(contact);
    profile
}

impl fmt::Debug for ZookeeperEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperEngine").field("config", &self.client.config).finish_non_exhaustive()
    }
}
