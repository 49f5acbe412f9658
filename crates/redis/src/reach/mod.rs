//! Finds the server to which a request goes. Redis has three setups: one server, a group that Sentinels watch, a
//! cluster. They differ in how the server of a slot is found, and in the reaction when that server changes. Scripts,
//! outbox, listener and records are the same for all three.

use std::sync::{Arc, atomic::AtomicU64};

use leasehold_core::{ClaimId, Clock, Contact, EngineError, Fault, Mailbox};

mod cluster;
mod map_task;
mod master_decision;
mod node;
mod one;
mod routed_request;
mod sentinel;
mod sentinel_poller;
pub(crate) mod shard_wire;
mod shards;
mod slot_waiters;
pub(crate) mod slots;

pub(crate) use master_decision::{SentinelAnswer, SentinelReport};
pub(crate) use one::{Dialer, OneServer};
pub(crate) use routed_request::{Route, RoutedRequest};

use crate::{
    config::Config,
    conn::Conn,
    error::Refused,
    identity::ServerKind,
    keys::channel,
    outbox::{Destination, Items, Values},
    push_listener::PushListener,
    scripts::Script,
    servers::Servers,
    token_counter::TokenCounter,
};
use cluster::Cluster;
use sentinel::SentinelGroup;

/// What all connections of one client share.
pub(crate) struct Client {
    pub(crate) config: Config,
    /// The name of the channel on which this client receives notifications, on each server.
    pub(crate) channel: String,
    pub(crate) clock: Arc<dyn Clock>,
    /// Collects the notifications for the keeper.
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) token_counter: TokenCounter,
    /// The serial number of the next connection. A failed attempt to connect uses a number too.
    next_connection: AtomicU64,
}

/// How this client finds the server for a request, by the setup of the servers in its URL.
pub(crate) enum Reach {
    /// One server.
    One(OneServer),
    /// The master of a group that Sentinels watch.
    Sentinel(SentinelGroup),
    /// Servers that share the slots.
    Cluster(Cluster),
}

/// A server of the URL, for a diagnosis.
pub(crate) struct ServerConn {
    pub(crate) address: String,
    /// The connection, or why there is none.
    pub(crate) conn: Result<Arc<Conn>, EngineError>,
    /// Whether locks are on the server, or it only tells where they are.
    pub(crate) has_locks: bool,
}

impl Client {
    pub(crate) fn new(config: Config, id: ClaimId, clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::with_mailbox(config, id, clock, Arc::default())
    }

    /// A client whose notifications go to this mailbox.
    pub(crate) fn with_mailbox(
        config: Config,
        id: ClaimId,
        clock: Arc<dyn Clock>,
        mailbox: Arc<Mailbox>,
    ) -> Arc<Self> {
        let (channel, token_counter) = (channel(id), TokenCounter::new(&config.prefix));
        let next_connection = AtomicU64::new(1);
        Arc::new(Self { config, channel, clock, mailbox, token_counter, next_connection })
    }

    /// A listener for one server.
    pub(crate) fn listener(&self) -> Arc<PushListener> {
        self.with_confirmed_grants(PushListener::new(&self.config.prefix, Arc::clone(&self.mailbox)))
    }

    /// A listener for one of several servers that relay published messages to each other.
    pub(crate) fn cluster_node_listener(&self) -> Arc<PushListener> {
        self.with_confirmed_grants(PushListener::of_cluster_node(
            &self.config.prefix,
            Arc::clone(&self.mailbox),
        ))
    }

    /// If grants must be on replicas (`wait=` in the URL), every pushed grant must be confirmed: a grant is pushed
    /// before any replica has it.
    fn with_confirmed_grants(&self, listener: Arc<PushListener>) -> Arc<PushListener> {
        if self.config.wait > 0 {
            listener.time.confirm_grants();
        }
        listener
    }
}

impl Reach {
    pub(crate) fn new(client: &Arc<Client>, contact: Contact) -> Self {
        match &client.config.servers {
            Servers::One(address) => Self::One(OneServer::new(client, address.clone(), contact)),
            Servers::Sentinel(sentinels) => Self::Sentinel(SentinelGroup::new(client, sentinels, contact)),
            Servers::Cluster(nodes) => Self::Cluster(Cluster::new(client, nodes, contact)),
        }
    }

    /// The connection to the server that has the keys of this slot.
    pub(crate) async fn route(&self, slot: u16) -> Result<Route, EngineError> {
        match self {
            Self::One(one) => {
                Ok(Route { conn: one.conn().await?, destination: Destination::default(), cluster_node: None })
            }
            Self::Sentinel(sentinel) => Ok(Route {
                conn: sentinel.conn().await?,
                destination: Destination::default(),
                cluster_node: None,
            }),
            Self::Cluster(cluster) => cluster.route(slot).await,
        }
    }

    /// The connection to the server that has the keys of this slot, if there is one that can be used at once.
    pub(crate) fn ready_route(&self, slot: u16) -> Option<Route> {
        let conn = match self {
            Self::One(one) => one.live_conn()?,
            Self::Sentinel(sentinel) => sentinel.live_conn()?,
            Self::Cluster(cluster) => return cluster.ready_route(slot),
        };
        Some(Route { conn, destination: Destination::default(), cluster_node: None })
    }

    /// Whether several servers share the slots (a cluster): then a request can be about keys of one slot only.
    pub(crate) const fn shares_slots(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Begins a request about keys of this slot.
    pub(crate) const fn request(&self, slot: u16) -> RoutedRequest<'_> {
        RoutedRequest::new(self, slot)
    }

    /// Runs a script on the server of this slot, and follows redirections. `items` builds the items anew for each
    /// server that is asked.
    pub(crate) async fn run(
        &self,
        slot: u16,
        script: Script,
        items: impl Fn(&Route) -> Result<Items, EngineError>,
    ) -> Result<Values, Refused> {
        let mut request = self.request(slot);
        loop {
            let route = request.route().await.map_err(Refused::Failed)?;
            match route.run(script, items(&route).map_err(Refused::Failed)?).await {
                Ok(reply) => return Ok(reply),
                Err(refused) => request.retry(refused).await?,
            }
        }
    }

    /// Handles the report of a server that it is not, or no longer, a master. Returns the error, unless the request is
    /// to be sent to another server. `connection` is the number of the connection to the reporting server.
    pub(crate) fn handle_demotion(&self, connection: u64, error: EngineError) -> Result<(), EngineError> {
        match self {
            Self::One(one) => Err(one.handle_demotion(connection, error)),
            Self::Sentinel(sentinel) => {
                sentinel.handle_demotion(connection);
                Ok(())
            }
            // The owners of the slots are asked for anew, and core repeats the request.
            Self::Cluster(_) => Err(EngineError::new(Fault::Retry, error.message)),
        }
    }

    /// The kind of server to which connections lead.
    pub(crate) const fn kind(&self) -> ServerKind {
        match self {
            Self::One(_) => ServerKind::Single,
            Self::Sentinel(_) => ServerKind::SentinelMaster,
            Self::Cluster(_) => ServerKind::ClusterNode,
        }
    }

    /// The Sentinels of the URL; `None` if the URL names none.
    pub(crate) const fn sentinels(&self) -> Option<&SentinelGroup> {
        match self {
            Self::Sentinel(sentinels) => Some(sentinels),
            Self::One(_) | Self::Cluster(_) => None,
        }
    }

    /// The connections to all servers of the URL, also to those that cannot be reached.
    pub(crate) async fn all_conns(&self) -> Result<Vec<ServerConn>, EngineError> {
        match self {
            Self::One(_) | Self::Sentinel(_) => {
                let conn = self.route(0).await?.conn;
                Ok(vec![ServerConn { address: conn.address.clone(), conn: Ok(conn), has_locks: true }])
            }
            Self::Cluster(cluster) => cluster.all_conns().await,
        }
    }

    /// How many Sentinels the URL names, and how many exist; `None` if the URL names none.
    pub(crate) fn sentinel_counts(&self) -> Option<(usize, u32)> {
        match self {
            Self::One(_) | Self::Cluster(_) => None,
            Self::Sentinel(sentinel) => Some(sentinel.sentinel_counts()),
        }
    }

    /// The connections to all servers that have keys.
    pub(crate) async fn routes_to_all(&self) -> Result<Vec<Route>, EngineError> {
        match self {
            Self::One(_) | Self::Sentinel(_) => Ok(vec![self.route(0).await?]),
            Self::Cluster(cluster) => cluster.routes_to_owners().await,
        }
    }

    /// A connection to the same server as `route`, whose connection may have broken.
    pub(crate) async fn reconnect(&self, route: &Route) -> Result<Route, EngineError> {
        match (self, &route.cluster_node) {
            (Self::Cluster(cluster), Some(cluster_node)) => {
                cluster.connect(&cluster_node.node, Destination::default()).await
            }
            _ => self.route(0).await,
        }
    }

    /// Records that the claim, of a name in this slot, no longer waits at any server.
    pub(crate) fn stop_waiting(&self, slot: u16, claim: ClaimId) {
        match self {
            Self::One(one) => one.listener().set_waiting(claim, false),
            Self::Sentinel(sentinel) => sentinel.listener().set_waiting(claim, false),
            Self::Cluster(cluster) => cluster.stop_waiting(slot, claim),
        }
    }

    /// Makes broken connections again, in the background. Never returns.
    pub(crate) async fn mend(&self) {
        match self {
            Self::One(one) => one.mend().await,
            Self::Sentinel(sentinel) => sentinel.mend().await,
            Self::Cluster(cluster) => cluster.mend().await,
        }
    }
}
