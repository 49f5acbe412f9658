//! One node of a Redis Cluster: its connection, and the time of its clock when slots came to it.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{BoxFuture, Contact, Dial, Endpoint, EngineError, Fault, Link};
use redis::from_redis_value;
use tokio::sync::Notify;

use super::{
    Client,
    cluster::ClusterState,
    one::Dialer,
    shards::{ShardDialer, ShardSubscriber},
};
use crate::{
    conn::Conn, open::micros, push_listener::PushListener, reply::unreadable, runtime, server::Address,
};

/// The longest trust period: for how long after a request with a prompt answer was sent no other node can have replaced
/// this one. An answer that took longer than the trust period proves nothing. The trust period is half of the cluster's
/// node timeout, but not more than this constant.
const MAX_TRUST_PERIOD: Duration = Duration::from_secs(5);

/// A node of the cluster. A node whose address changes counts as another node.
pub(crate) struct Node {
    /// The address at which this client reaches the node.
    pub(crate) endpoint: Endpoint,
    /// The node's id in the cluster, as soon as it is known.
    pub(crate) id: OnceLock<String>,
    /// The connection for requests.
    link: Link<NodeDialer>,
    /// The connection for the notifications of slots, if the server has channels of slots (sharded publish/subscribe).
    pub(crate) shard_subscriber: ShardSubscriber,
    /// Whether the server has channels of slots, as soon as that is known.
    has_slot_channels: OnceLock<bool>,
    /// How often slots came to this node from other nodes.
    slot_arrivals: AtomicU64,
    /// How many arrivals of slots happened before the floor of the token counter was last set.
    arrivals_in_floor: AtomicU64,
}

/// Makes the connections to a node, and a new one each time the connection breaks.
struct NodeDialer {
    /// The cluster of the node, which is told when the node may have been replaced.
    cluster: Weak<ClusterState>,
    /// Connects to one server, whatever its setup.
    dialer: Dialer,
    /// Whether a connection to the node was made at some time.
    was_connected: AtomicBool,
}

impl Node {
    pub(crate) fn new(
        cluster: &Weak<ClusterState>,
        client: &Arc<Client>,
        endpoint: Endpoint,
        node_count: usize,
        contact: &Contact,
    ) -> Arc<Self> {
        let server = client.config.server(Address::Tcp(endpoint.clone()), node_count.max(2));
        let listener = client.cluster_node_listener();
        listener.process.set_trust_period(MAX_TRUST_PERIOD);
        let dialer = Dialer {
            evidence_limit: Some(MAX_TRUST_PERIOD),
            ..Dialer::with_listener(client, server.clone(), Arc::clone(&listener))
        };
        let dialer =
            NodeDialer { cluster: Weak::clone(cluster), dialer, was_connected: AtomicBool::new(false) };
        // The cluster records whether any node was reached.
        let link = Link::new(dialer, Arc::clone(&client.clock), contact.of_one_server());
        let shard_subscriber =
            ShardSubscriber::new(ShardDialer::new(cluster, client, server, listener), &client.clock);
        let (id, has_slot_channels, slot_arrivals, arrivals_in_floor) = Default::default();
        Arc::new(Self {
            endpoint,
            id,
            link,
            shard_subscriber,
            has_slot_channels,
            slot_arrivals,
            arrivals_in_floor,
        })
    }

    /// The connection for requests, which is made if there is none.
    pub(crate) async fn conn(&self) -> Result<Arc<Conn>, EngineError> {
        self.link.conn().await
    }

    /// The connection, if there is one, and if no slot came to the node after the floor of the token counter was last
    /// set; otherwise `None`.
    pub(crate) fn ready_conn(&self) -> Option<Arc<Conn>> {
        self.link.live().filter(|_| self.is_floor_current())
    }

    /// The handler of the pushes of this node.
    pub(crate) fn listener(&self) -> &Arc<PushListener> {
        &self.link.dialer().dialer.listener
    }

    /// Whether there is a connection now.
    pub(crate) fn is_live(&self) -> bool {
        self.link.live().is_some()
    }

    /// Closes the connection.
    pub(crate) fn hang_up(&self) {
        self.link.hang_up();
    }

    /// Makes a broken connection again, in the background. Never returns.
    pub(crate) async fn mend(&self) {
        self.link.mend().await;
    }

    /// Records that our holds may be on the node: it has slots, or slots are migrating to it.
    pub(crate) fn may_have_holds(&self) {
        self.listener().process.may_have_holds();
    }

    /// Records that slots came to this node from another.
    pub(crate) fn count_slot_arrival(&self) {
        self.slot_arrivals.fetch_add(1, Ordering::AcqRel);
    }

    /// Raises the floor of the token counter to the node's present time, if slots came to the node since the floor was
    /// last set. Called before a request about such a slot, because the slot's counter may be a copy that lacks the
    /// newest tokens.
    pub(crate) async fn raise_token_floor(&self, conn: &Conn) -> Result<(), EngineError> {
        if self.is_floor_current() {
            return Ok(());
        }
        let slot_arrivals = self.slot_arrivals.load(Ordering::Acquire);
        let time = conn.ask(&redis::cmd("TIME")).await.map_err(to_retry)?;
        self.listener().time.raise_floor(micros(from_redis_value(time).map_err(|_| unreadable())?));
        self.arrivals_in_floor.fetch_max(slot_arrivals, Ordering::AcqRel);
        Ok(())
    }

    /// Whether no slot came to the node after the floor of the token counter was last set.
    fn is_floor_current(&self) -> bool {
        let slot_arrivals = self.slot_arrivals.load(Ordering::Acquire);
        self.arrivals_in_floor.load(Ordering::Acquire) >= slot_arrivals
    }

    /// Whether the server has channels of slots (Redis 7.0). Calls `SPUBLISH` without arguments, which publishes
    /// nothing.
    pub(crate) async fn has_slot_channels(&self, conn: &Conn) -> Result<bool, EngineError> {
        if let Some(&known) = self.has_slot_channels.get() {
            return Ok(known);
        }
        // Each server answers with an error: a missing argument, or an unknown command.
        let Err(error) = conn.ask(&redis::cmd("SPUBLISH")).await else { return Err(unreadable()) };
        if matches!(error.fault, Fault::Unknown | Fault::Retry) {
            return Err(to_retry(error));
        }
        let has_channels = !error.message.contains("unknown command");
        Ok(*self.has_slot_channels.get_or_init(|| has_channels))
    }
}

/// How long a node must be silent before a replica can replace it; `None` if the user has no right to read the setting.
async fn read_node_timeout(conn: &Conn) -> Option<Duration> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("cluster-node-timeout");
    let reply: HashMap<String, u64> = from_redis_value(conn.ask(&command).await.ok()?).ok()?;
    reply.into_values().next().map(Duration::from_millis)
}

/// Turns an unknown outcome into one to retry: only a preparation failed, and the request itself was not sent.
fn to_retry(error: EngineError) -> EngineError {
    match error.fault {
        Fault::Unknown => EngineError { fault: Fault::Retry, ..error },
        _ => error,
    }
}

impl Dial for NodeDialer {
    type Conn = Conn;

    /// `broken` is notified when the connection breaks.
    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<Conn, EngineError>> {
        // The connection broke: another node may have replaced this one.
        if self.was_connected.load(Ordering::Acquire)
            && let Some(cluster) = self.cluster.upgrade()
        {
            cluster.request_map();
        }
        Box::pin(async move {
            let conn = self.dialer.dial(broken).await?;
            if let Some(timeout) = runtime::within(MAX_TRUST_PERIOD, read_node_timeout(&conn)).await.flatten()
            {
                let trust_period = (timeout / 2).min(MAX_TRUST_PERIOD);
                conn.set_evidence_limit(trust_period);
                self.dialer.listener.process.set_trust_period(trust_period);
            }
            Ok(conn)
        })
    }

    fn is_dead(conn: &Conn) -> bool {
        Dialer::is_dead(conn)
    }

    fn address(conn: &Conn) -> String {
        Dialer::address(conn)
    }

    fn connected(&self, conn: &Arc<Conn>, again: bool) {
        self.was_connected.store(true, Ordering::Release);
        self.dialer.connected(conn, again);
    }
}
