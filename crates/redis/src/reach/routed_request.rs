//! One request: sent to the server that has its keys, and redirected if they have moved.

use std::{borrow::Cow, sync::Arc};

use leasehold_core::{ClaimId, EngineError, Fault, Instant, Name};

use super::{Client, Reach, cluster::Inner, node::Node};
use crate::{
    conn::Conn,
    error::Refused,
    keys::channel_of,
    outbox::{Items, To, Values},
    scripts::Script,
};

/// The most redirections of a request. Each one names its target; more are needed only if servers contradict each
/// other.
const MOST_REDIRECTIONS: u32 = 5;
/// A request that was dropped earlier than this was not dropped because of the server.
const OVERDUE_MS: u64 = 1000;

/// One request, its redirections and its last server.
pub(crate) struct RoutedRequest<'a> {
    reach: &'a Reach,
    slot: u16,
    /// The connection that it last used.
    last: u64,
    /// How many servers reported that they do not have the locks.
    demoted: u32,
    redirections: u32,
    /// The node that was asked last.
    asked: Option<Arc<Node>>,
    /// The node to ask next, to which the slot is migrating.
    importer: Option<Arc<Node>>,
}

/// After this many servers in a row that are no masters the request fails: core asks again later.
const MOST_DEMOTED: u32 = 3;

/// The connection for a request, and the destination there.
#[derive(Clone)]
pub(crate) struct Via {
    pub(crate) conn: Arc<Conn>,
    pub(crate) to: To,
    /// Its node, where servers share the slots.
    pub(crate) home: Option<Home>,
}

/// The node of a connection.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) cluster: Arc<Inner>,
    pub(crate) node: Arc<Node>,
}

impl<'a> RoutedRequest<'a> {
    pub(crate) const fn new(reach: &'a Reach, slot: u16) -> Self {
        Self { reach, slot, last: 0, demoted: 0, redirections: 0, asked: None, importer: None }
    }

    /// The connection to the server that is to be asked next.
    pub(crate) async fn via(&mut self) -> Result<Via, EngineError> {
        let via = match (self.reach, self.importer.take()) {
            (Reach::Cluster(cluster), Some(importer)) => {
                let to = To { slot: Some(self.slot), asking: true, unsettled: true };
                cluster.connect(&importer, to).await?
            }
            _ => self.reach.via(self.slot).await?,
        };
        self.last = via.conn.number;
        self.asked = via.home.as_ref().map(|home| Arc::clone(&home.node));
        Ok(via)
    }

    /// The server refused the request. Returns the reason, if no other server is to be asked.
    pub(crate) async fn retry(&mut self, refused: Refused) -> Result<(), Refused> {
        match refused {
            Refused::Demoted(error) => {
                self.demoted += 1;
                let found = self.reach.demoted(self.last, error.again());
                if self.demoted > MOST_DEMOTED {
                    return Err(Refused::Failed(EngineError::new(Fault::Retry, error.message)));
                }
                found.map_err(Refused::Failed)
            }
            Refused::Split(error) => {
                let message = format!("slot {} is moving between two servers ({})", self.slot, error.message);
                Err(Refused::Split(EngineError::new(Fault::Retry, message)))
            }
            Refused::Moved { .. } | Refused::Ask { .. } => self.redirect(refused),
            Refused::Failed(error) => Err(Refused::Failed(error)),
        }
    }

    /// Redirects to another node of the cluster.
    fn redirect(&mut self, refused: Refused) -> Result<(), Refused> {
        let (Reach::Cluster(cluster), Some(asked)) = (self.reach, &self.asked) else { return Err(refused) };
        let slot = self.slot;
        self.redirections += 1;
        match refused {
            Refused::Moved { to, .. } | Refused::Ask { to, .. } if self.redirections > MOST_REDIRECTIONS => {
                let message = format!(
                    "the nodes of the Redis Cluster do not agree which node has slot {slot}: {} names {to}",
                    asked.endpoint
                );
                Err(Refused::Failed(EngineError::new(Fault::Retry, message)))
            }
            Refused::Moved { to, .. } => cluster.moved(slot, &to, asked).map_err(Refused::Failed),
            Refused::Ask { to, .. } => {
                self.importer = Some(cluster.importer(slot, &to, asked).map_err(Refused::Failed)?);
                Ok(())
            }
            refused => Err(refused),
        }
    }
}

impl Via {
    /// Runs a script for these items.
    pub(crate) async fn run(&self, script: Script, items: Items) -> Result<Values, Refused> {
        let mut overdue = self.home.as_ref().map(Overdue::new);
        let to = if script.is_fast_path() { To::default() } else { self.to };
        let reply = self.conn.run(to, script, items).await;
        if let Some(overdue) = &mut overdue {
            overdue.home = None;
        }
        if let (Err(Refused::Failed(error) | Refused::Demoted(error)), Some(home)) = (&reply, &self.home)
            && matches!(error.fault, Fault::Retry | Fault::Unknown)
        {
            home.cluster.suspect(&home.node);
        }
        reply
    }

    /// The channel for notifications to a claim in this slot.
    pub(crate) async fn channel<'c>(&self, client: &'c Client) -> Result<Cow<'c, str>, EngineError> {
        match (&self.home, self.to.slot) {
            (Some(home), Some(slot)) if home.node.has_shards(&self.conn).await? => {
                Ok(channel_of(&client.channel, slot).into())
            }
            _ => Ok(Cow::Borrowed(&client.channel)),
        }
    }

    /// Whether the client listens to notifications of the slot from this server. While the slot is migrating to the
    /// server, no client can listen there, and no claim is passed over.
    pub(crate) async fn is_listening(&self) -> Result<bool, EngineError> {
        match (&self.home, self.to.slot) {
            (Some(home), Some(slot)) if home.node.has_shards(&self.conn).await? => {
                Ok(self.to.asking || home.node.shards.is_subscribed(slot))
            }
            // They come on this connection.
            _ => Ok(true),
        }
    }

    /// Subscribes to notifications of the slot.
    pub(crate) async fn listen(&self) -> Result<(), Refused> {
        match (&self.home, self.to.slot) {
            (Some(home), Some(slot)) => home.node.shards.listen(slot).await,
            _ => Ok(()),
        }
    }

    /// Records whether the claim waits at this server.
    pub(crate) fn waits(&self, claim: ClaimId, name: &Name, waits: bool) {
        let (Some(home), Some(slot)) = (&self.home, self.to.slot) else {
            return self.conn.listener.set_waiting(claim, waits);
        };
        if waits {
            home.cluster.waits(slot, claim, name);
            self.conn.listener.set_waiting(claim, true);
        } else {
            home.cluster.waits_no_more(slot, claim);
        }
    }
}

/// A request in flight. If its caller gives it up after a while, the node may be stuck: such a node sends no
/// redirection.
struct Overdue<'a> {
    home: Option<&'a Home>,
    sent: Instant,
}

impl<'a> Overdue<'a> {
    fn new(home: &'a Home) -> Self {
        Self { home: Some(home), sent: home.cluster.client.clock.now() }
    }
}

impl Drop for Overdue<'_> {
    fn drop(&mut self) {
        if let Some(home) = self.home
            && home.cluster.client.clock.now().since(self.sent).as_millis() >= u128::from(OVERDUE_MS)
        {
            home.cluster.suspect(&home.node);
        }
    }
}
