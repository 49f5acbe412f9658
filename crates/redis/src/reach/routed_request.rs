//! One request: it is sent to the server that has its keys, and redirected if the keys have moved.

use std::{borrow::Cow, sync::Arc};

use leasehold_core::{ClaimId, EngineError, Fault, Instant, Name};

use super::{Client, Reach, cluster::ClusterState, node::Node};
use crate::{
    conn::Conn,
    error::Refused,
    keys::slot_channel,
    outbox::{Destination, Items, Values},
    scripts::Script,
};

/// The most redirections of a request. Each redirection names the server to ask next; more than this are needed only if
/// servers contradict each other.
const MAX_REDIRECTIONS: u32 = 5;
/// A node may have been replaced if a caller drops a request to it that was sent longer ago than this, in milliseconds.
/// A caller that drops a younger request has other reasons.
const OVERDUE_MS: u64 = 1000;

/// One request, its redirections and its last server.
pub(crate) struct RoutedRequest<'a> {
    reach: &'a Reach,
    /// The slot of the keys of the request.
    slot: u16,
    /// The number of the connection that the request last used; 0 for none.
    last_connection: u64,
    /// How many servers have reported, in answer to this request, that they are not masters.
    demotions: u32,
    /// How many redirections the request followed.
    redirections: u32,
    /// The node that was asked last.
    last_node: Option<Arc<Node>>,
    /// The node to which the slot is migrating, if that node is to be asked next: the owner of the slot named it
    /// (`ASK`).
    importer: Option<Arc<Node>>,
}

/// A request fails if more servers than this report that they are not masters; core then repeats the request later.
const MAX_DEMOTIONS: u32 = 3;

/// The connection for a request, and the destination there.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) conn: Arc<Conn>,
    pub(crate) destination: Destination,
    /// The node of the connection, where servers share the slots.
    pub(crate) cluster_node: Option<ClusterNode>,
}

/// The node of a Redis Cluster to which a connection leads.
#[derive(Clone)]
pub(crate) struct ClusterNode {
    pub(crate) cluster: Arc<ClusterState>,
    pub(crate) node: Arc<Node>,
}

impl<'a> RoutedRequest<'a> {
    pub(crate) const fn new(reach: &'a Reach, slot: u16) -> Self {
        Self {
            reach,
            slot,
            last_connection: 0,
            demotions: 0,
            redirections: 0,
            last_node: None,
            importer: None,
        }
    }

    /// The connection to the server that is to be asked next.
    pub(crate) async fn route(&mut self) -> Result<Route, EngineError> {
        let route = match (self.reach, self.importer.take()) {
            (Reach::Cluster(cluster), Some(importer)) => {
                let destination = Destination { slot: Some(self.slot), asking: true, unsettled: true };
                cluster.connect(&importer, destination).await?
            }
            _ => self.reach.route(self.slot).await?,
        };
        self.last_connection = route.conn.number;
        self.last_node = route.cluster_node.as_ref().map(|cluster_node| Arc::clone(&cluster_node.node));
        Ok(route)
    }

    /// Reacts to a refused request. Returns the error, if no other server is to be asked; otherwise
    /// [`route`](Self::route) leads to the server to ask next.
    pub(crate) async fn retry(&mut self, refused: Refused) -> Result<(), Refused> {
        match refused {
            Refused::Demoted(error) => {
                self.demotions += 1;
                let outcome = self.reach.handle_demotion(self.last_connection, error.without_source());
                if self.demotions > MAX_DEMOTIONS {
                    return Err(Refused::Failed(EngineError::new(Fault::Retry, error.message)));
                }
                outcome.map_err(Refused::Failed)
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
        let (Reach::Cluster(cluster), Some(last_node)) = (self.reach, &self.last_node) else {
            return Err(refused);
        };
        let slot = self.slot;
        self.redirections += 1;
        match refused {
            Refused::Moved { to, .. } | Refused::Ask { to, .. } if self.redirections > MAX_REDIRECTIONS => {
                let message = format!(
                    "the nodes of the Redis Cluster do not agree which node has slot {slot}: {} names {to}",
                    last_node.endpoint
                );
                Err(Refused::Failed(EngineError::new(Fault::Retry, message)))
            }
            Refused::Moved { to, .. } => cluster.record_move(slot, &to, last_node).map_err(Refused::Failed),
            Refused::Ask { to, .. } => {
                self.importer = Some(cluster.importer(slot, &to, last_node).map_err(Refused::Failed)?);
                Ok(())
            }
            refused => Err(refused),
        }
    }
}

impl Route {
    /// Runs a script for these items.
    pub(crate) async fn run(&self, script: Script, items: Items) -> Result<Values, Refused> {
        let mut overdue_watch = self.cluster_node.as_ref().map(OverdueWatch::new);
        // The items of a fast path may be of several slots of the node.
        let destination = if script.is_fast_path() { Destination::default() } else { self.destination };
        let reply = self.conn.run(destination, script, items).await;
        // The answer came: the node is not silent.
        if let Some(overdue_watch) = &mut overdue_watch {
            overdue_watch.cluster_node = None;
        }
        if let (Err(Refused::Failed(error) | Refused::Demoted(error)), Some(cluster_node)) =
            (&reply, &self.cluster_node)
            && matches!(error.fault, Fault::Retry | Fault::Unknown)
        {
            cluster_node.cluster.suspect(&cluster_node.node);
        }
        reply
    }

    /// The channel for notifications to a claim in the slot of this request.
    pub(crate) async fn channel<'c>(&self, client: &'c Client) -> Result<Cow<'c, str>, EngineError> {
        match (&self.cluster_node, self.destination.slot) {
            (Some(cluster_node), Some(slot)) if cluster_node.node.has_slot_channels(&self.conn).await? => {
                Ok(slot_channel(&client.channel, slot).into())
            }
            _ => Ok(Cow::Borrowed(&client.channel)),
        }
    }

    /// Whether the client is subscribed to notifications of the slot from this server. Also true while the slot is
    /// migrating to the server: no client can subscribe there, and a claim can be granted although its client does not
    /// listen.
    pub(crate) async fn is_subscribed(&self) -> Result<bool, EngineError> {
        match (&self.cluster_node, self.destination.slot) {
            (Some(cluster_node), Some(slot)) if cluster_node.node.has_slot_channels(&self.conn).await? => {
                Ok(self.destination.asking || cluster_node.node.shard_subscriber.is_subscribed(slot))
            }
            // Without channels of slots, all notifications come on the connection for requests.
            _ => Ok(true),
        }
    }

    /// Subscribes to notifications of the slot.
    pub(crate) async fn subscribe(&self) -> Result<(), Refused> {
        match (&self.cluster_node, self.destination.slot) {
            (Some(cluster_node), Some(slot)) => cluster_node.node.shard_subscriber.subscribe(slot).await,
            _ => Ok(()),
        }
    }

    /// Records whether the claim waits at this server.
    pub(crate) fn set_waiting(&self, claim: ClaimId, name: &Name, waits: bool) {
        let (Some(cluster_node), Some(slot)) = (&self.cluster_node, self.destination.slot) else {
            return self.conn.listener.set_waiting(claim, waits);
        };
        if waits {
            cluster_node.cluster.add_waiter(slot, claim, name);
            self.conn.listener.set_waiting(claim, true);
        } else {
            cluster_node.cluster.stop_waiting(slot, claim);
        }
    }
}

/// A request in flight to a node. If it is dropped without an answer, longer than [`OVERDUE_MS`] after it was sent, the
/// cluster asks other nodes for the owners of the slots: a node that hangs sends no redirection to its successor.
struct OverdueWatch<'a> {
    /// `None` after the answer has come.
    cluster_node: Option<&'a ClusterNode>,
    sent: Instant,
}

impl<'a> OverdueWatch<'a> {
    fn new(cluster_node: &'a ClusterNode) -> Self {
        Self { cluster_node: Some(cluster_node), sent: cluster_node.cluster.client.clock.now() }
    }
}

impl Drop for OverdueWatch<'_> {
    fn drop(&mut self) {
        if let Some(cluster_node) = self.cluster_node
            && cluster_node.cluster.client.clock.now().since(self.sent).as_millis() >= u128::from(OVERDUE_MS)
        {
            cluster_node.cluster.suspect(&cluster_node.node);
        }
    }
}
