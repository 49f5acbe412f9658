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
    cluster::Inner,
    one::Dialer,
    shards::{ShardDialer, Shards},
};
use crate::{
    conn::Conn, open::micros, push_listener::PushListener, reply::unreadable, runtime, server::Address,
};

/// An answer that took longer proves nothing, because another node may have taken this one's place. The limit is half
/// of the node timeout, and at most half of its default.
const MAX_TRUST_PERIOD: Duration = Duration::from_secs(5);

/// A node, as long as its address stays the same.
pub(crate) struct Node {
    /// The address at which it is reached.
    pub(crate) endpoint: Endpoint,
    /// Its id in the cluster, once known.
    pub(crate) id: OnceLock<String>,
    link: Link<NodeDialer>,
    /// Notifications of its slots, if it has channels of slots.
    pub(crate) shards: Shards,
    /// Whether it has channels of slots.
    has_slot_channels: OnceLock<bool>,
    /// How often slots came to it.
    slot_arrivals: AtomicU64,
    /// For how many of these arrivals its time was asked for.
    arrivals_in_floor: AtomicU64,
}

/// Connects to a node, again and again.
struct NodeDialer {
    cluster: Weak<Inner>,
    dialer: Dialer,
    made: AtomicBool,
}

impl Node {
    pub(crate) fn new(
        cluster: &Weak<Inner>,
        client: &Arc<Client>,
        endpoint: Endpoint,
        nodes: usize,
    ) -> Arc<Self> {
        let server = client.config.server(Address::Tcp(endpoint.clone()), nodes.max(2));
        let listener = client.cluster_node_listener();
        listener.process.trust(MAX_TRUST_PERIOD);
        let dialer = Dialer {
            evidence_limit: Some(MAX_TRUST_PERIOD),
            ..Dialer::with_listener(client, server.clone(), Arc::clone(&listener))
        };
        let dialer = NodeDialer { cluster: Weak::clone(cluster), dialer, made: AtomicBool::new(false) };
        // The cluster records whether any node was reached.
        let link = Link::new(dialer, Arc::clone(&client.clock), Contact::default());
        let shards = Shards::new(ShardDialer::new(cluster, client, server, listener), &client.clock);
        let (id, has_slot_channels, slot_arrivals, arrivals_in_floor) = Default::default();
        Arc::new(Self { endpoint, id, link, shards, has_slot_channels, slot_arrivals, arrivals_in_floor })
    }

    pub(crate) async fn conn(&self) -> Result<Arc<Conn>, EngineError> {
        self.link.conn().await
    }

    /// Its connection, if it is made, and no slot has come since its time was asked for.
    pub(crate) fn made(&self) -> Option<Arc<Conn>> {
        self.link.live().filter(|_| self.is_floor_current())
    }

    pub(crate) fn listener(&self) -> &Arc<PushListener> {
        &self.link.dialer().dialer.listener
    }

    pub(crate) fn is_live(&self) -> bool {
        self.link.live().is_some()
    }

    pub(crate) fn hang_up(&self) {
        self.link.hang_up();
    }

    pub(crate) async fn mend(&self) {
        self.link.mend().await;
    }

    /// The node has slots, or some are migrating to it.
    pub(crate) fn may_have_holds(&self) {
        self.listener().process.may_have_holds();
    }

    /// Slots came to it from another.
    pub(crate) fn slots_arrived(&self) {
        self.slot_arrivals.fetch_add(1, Ordering::AcqRel);
    }

    /// To be called before the first request about a slot that came from another node: its token counter may be a copy
    /// that lacks the newest tokens, so it must be above the clock's present time.
    pub(crate) async fn raise_token_floor(&self, conn: &Conn) -> Result<(), EngineError> {
        if self.is_floor_current() {
            return Ok(());
        }
        let slot_arrivals = self.slot_arrivals.load(Ordering::Acquire);
        let time = conn.ask(&redis::cmd("TIME")).await.map_err(not_sent)?;
        self.listener().time.raise_floor(micros(from_redis_value(time).map_err(|_| unreadable())?));
        self.arrivals_in_floor.fetch_max(slot_arrivals, Ordering::AcqRel);
        Ok(())
    }

    fn is_floor_current(&self) -> bool {
        let slot_arrivals = self.slot_arrivals.load(Ordering::Acquire);
        self.arrivals_in_floor.load(Ordering::Acquire) >= slot_arrivals
    }

    /// Whether it has channels of slots (Redis 7.0). Calls the command without arguments, which does nothing.
    pub(crate) async fn has_slot_channels(&self, conn: &Conn) -> Result<bool, EngineError> {
        if let Some(&known) = self.has_slot_channels.get() {
            return Ok(known);
        }
        let Err(error) = conn.ask(&redis::cmd("SPUBLISH")).await else { return Err(unreadable()) };
        if matches!(error.fault, Fault::Unknown | Fault::Retry) {
            return Err(not_sent(error));
        }
        let has = !error.message.contains("unknown command");
        Ok(*self.has_slot_channels.get_or_init(|| has))
    }
}

/// How long a node must be silent before other nodes replace it, if we may know.
async fn node_timeout(conn: &Conn) -> Option<Duration> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("cluster-node-timeout");
    let reply: HashMap<String, u64> = from_redis_value(conn.ask(&command).await.ok()?).ok()?;
    reply.into_values().next().map(Duration::from_millis)
}

/// The error of a preparation: the request itself was not sent.
fn not_sent(error: EngineError) -> EngineError {
    match error.fault {
        Fault::Unknown => EngineError { fault: Fault::Retry, ..error },
        _ => error,
    }
}

impl Dial for NodeDialer {
    type Conn = Conn;

    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<Conn, EngineError>> {
        // Another node may have taken its place.
        if self.made.load(Ordering::Acquire)
            && let Some(cluster) = self.cluster.upgrade()
        {
            cluster.want_map();
        }
        Box::pin(async move {
            let conn = self.dialer.dial(broken).await?;
            if let Some(timeout) = runtime::within(MAX_TRUST_PERIOD, node_timeout(&conn)).await.flatten() {
                let trust = (timeout / 2).min(MAX_TRUST_PERIOD);
                conn.trust(trust);
                self.dialer.listener.process.trust(trust);
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
        self.made.store(true, Ordering::Release);
        self.dialer.connected(conn, again);
    }
}
