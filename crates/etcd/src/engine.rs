//! The five verbs on a cluster.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

pub(crate) use leasehold_core::REQUEST_TIMEOUT;
use leasehold_core::{Breaking, Contact, Env, Modes, Profile, WATCHED_CLAIM_LIFE, WATCHED_POLL};

use crate::{
    claim_all_txn::MAX_NAMES,
    client::Client,
    config::{Config, Layout},
};

/// The range of ttls. A server with the default election timeout of one second grants no lease under 1.5 seconds, and
/// leases have whole seconds, so the shortest ttl is 2 seconds.
const TTL: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(24 * 3600);
/// How long after it was sent a request may still be applied: the server gives up a proposal after seven seconds.
pub(crate) const REQUEST_LIFE: Duration = Duration::from_secs(15);

/// Locks on one etcd cluster.
pub struct EtcdEngine {
    pub(crate) client: Arc<Client>,
    profile: Profile,
}

impl EtcdEngine {
    /// A client of the cluster. This function does not connect; the first request does.
    ///
    /// The futures of this engine need a tokio runtime with timers and I/O, such as the runtime of the keeper.
    #[must_use]
    pub fn new(config: Config, env: &Env) -> Self {
        let contact = Contact::default();
        let profile = profile(&config, contact.clone());
        Self { client: Client::new(config, env, contact), profile }
    }
}

leasehold_core::forward_engine!(EtcdEngine, memos: client, claim_all, |client| async move {
    tokio::select! {
        biased;
        notification = client.mailbox.read() => notification,
        () = client.link.mend() => Vec::new(),
        () = client.connect_for_followers() => Vec::new(),
    }
});

/// What this engine can do, for core.
fn profile(config: &Config, contact: Contact) -> Profile {
    let mut profile = Profile::new("etcd");
    profile.push = true;
    profile.extends = false;
    profile.poll = WATCHED_POLL;
    profile.entry_life = WATCHED_CLAIM_LIFE;
    profile.tokens = config.token_blocks().size();
    profile.claims_at_once = MAX_NAMES;
    profile.fifo = true;
    profile.supports_min_hold = true;
    profile.no_memos = None;
    profile.no_conversion =
        Some("the new key of a converted hold would be behind the claims that wait already");
    profile.no_handles =
        Some("its lease is shared by all holds of the process that acquired it, and ends with that process");
    profile.breaking = Breaking::Lease;
    profile.ttl = TTL;
    if config.layout != Layout::Directory {
        profile.modes = Modes::Exclusive;
    }
    if config.layout == Layout::Election {
        // The value of a key, which is the leader's, cannot say that the key is a minimum hold.
        profile.supports_min_hold = false;
    }
    profile.request_life = REQUEST_LIFE;
    profile.contact = Some(contact);
    profile
}

impl fmt::Debug for EtcdEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdEngine")
            .field("config", &self.client.link.dialer().config)
            .finish_non_exhaustive()
    }
}
