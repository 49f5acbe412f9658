//! A Redis Cluster: the known owner of each slot, and what is done when another node turns out to be the owner.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{join, join_all},
    stream::FuturesUnordered,
};
use leasehold_core::{ClaimId, Contact, Endpoint, EngineError, Fault, Instant, Name, Notification};
use tokio::sync::Notify;

use super::{
    Client, ServerConn,
    map_task::MapTask,
    node::Node,
    routed_request::{ClusterNode, Route},
    slot_waiters::SlotWaiters,
    slots::{self, NodeInfo, SlotRange},
};
use crate::{keys::SLOTS, outbox::Destination};

/// A slot is unsettled for this long after this client found it at a node. The clients of the slot's waiters learn of
/// the move at about the same time as this client, so they may not be subscribed at that node yet. During this time a
/// waiter can get a grant although its client does not listen.
const SETTLING_TIME: Duration = Duration::from_secs(5);

/// The Redis Cluster of a URL.
pub(crate) struct Cluster(Arc<ClusterState>);

/// The shared state of a [`Cluster`], which background tasks and connections use too.
pub(crate) struct ClusterState {
    /// The reference that nodes and tasks get: it does not keep the cluster alive.
    weak_self: Weak<ClusterState>,
    pub(crate) client: Arc<Client>,
    /// Records whether a connection to any node was ever made.
    contact: Contact,
    /// The waiting claims, by slot.
    pub(crate) slot_waiters: SlotWaiters,
    /// Which node owns which slot.
    map: Mutex<ClusterMap>,
    /// Notified when an attempt to learn the owners of the slots (the map) has ended.
    pub(crate) map_attempt_ended: Notify,
    /// Notified when the set of nodes changes.
    nodes_changed: Notify,
}

/// What is known of the cluster: which node owns which slot.
pub(crate) struct ClusterMap {
    /// The owner of each slot; `None` until a node reports the owner.
    slots: Vec<Option<Owner>>,
    /// Nodes that lost slots after the newest report of the owners.
    former_owners: Vec<Arc<Node>>,
    /// Nodes that own slots, or to which other nodes redirected a request.
    nodes: Vec<Arc<Node>>,
    /// The nodes of the URL.
    seeds: Vec<Arc<Node>>,
    /// The node to ask first for the owners of the slots: the newest redirection names it as an owner.
    first_to_ask: Option<Arc<Node>>,
    /// The node to ask last for the owners of the slots: it does not answer.
    last_to_ask: Option<Arc<Node>>,
    /// The task that asks for the owners of the slots.
    pub(crate) task: MapTask,
}

/// The owner of a slot, and since when it is known.
#[derive(Clone)]
struct Owner {
    node: Arc<Node>,
    known_since: Instant,
}

impl Cluster {
    pub(crate) fn new(client: &Arc<Client>, seeds: &[Endpoint], contact: Contact) -> Self {
        Self(Arc::new_cyclic(|weak_self| {
            let node =
                |endpoint: &Endpoint| Node::new(weak_self, client, endpoint.clone(), seeds.len(), &contact);
            let map = ClusterMap {
                slots: vec![None; SLOTS],
                former_owners: Vec::new(),
                nodes: Vec::new(),
                seeds: seeds.iter().map(node).collect(),
                first_to_ask: None,
                last_to_ask: None,
                task: MapTask::default(),
            };
            ClusterState {
                weak_self: Weak::clone(weak_self),
                client: Arc::clone(client),
                contact,
                slot_waiters: SlotWaiters::default(),
                map: Mutex::new(map),
                map_attempt_ended: Notify::new(),
                nodes_changed: Notify::new(),
            }
        }))
    }

    /// The connection to the node that has this slot, which is made if there is none.
    pub(crate) async fn route(&self, slot: u16) -> Result<Route, EngineError> {
        let owner = match self.0.owner(slot) {
            Some(owner) => owner,
            None => {
                self.0.wait_for_map().await?;
                self.0.owner(slot).ok_or_else(|| slot_without_owner(slot))?
            }
        };
        let error = match self.connect(&owner.node, self.destination(slot, &owner)).await {
            Ok(route) => return Ok(route),
            Err(error) => error,
        };
        // The request was not sent. If another node has the slot by now, the request goes to that node.
        if error.fault != Fault::Retry || self.0.wait_for_map().await.is_err() {
            return Err(error);
        }
        match self.0.owner(slot) {
            Some(new_owner) if !Arc::ptr_eq(&new_owner.node, &owner.node) => {
                self.connect(&new_owner.node, self.destination(slot, &new_owner)).await
            }
            _ => Err(error),
        }
    }

    /// The connection to the node that has this slot, if there is one that can be used at once.
    pub(crate) fn ready_route(&self, slot: u16) -> Option<Route> {
        let owner = self.0.owner(slot)?;
        let (conn, destination) = (owner.node.ready_conn()?, self.destination(slot, &owner));
        Some(Route {
            conn,
            destination,
            cluster_node: Some(ClusterNode { cluster: Arc::clone(&self.0), node: owner.node }),
        })
    }

    /// The destination of a request about this slot at its owner.
    fn destination(&self, slot: u16, owner: &Owner) -> Destination {
        let unsettled = self.0.client.clock.now().since(owner.known_since) < SETTLING_TIME;
        Destination { slot: Some(slot), asking: false, unsettled }
    }

    /// The connection to this node, which is made if there is none.
    pub(crate) async fn connect(
        &self,
        node: &Arc<Node>,
        destination: Destination,
    ) -> Result<Route, EngineError> {
        match node.conn().await {
            Ok(conn) => {
                self.0.contact.record_connected();
                node.raise_token_floor(&conn).await.inspect_err(|_| self.0.suspect(node))?;
                Ok(Route {
                    conn,
                    destination,
                    cluster_node: Some(ClusterNode { cluster: Arc::clone(&self.0), node: Arc::clone(node) }),
                })
            }
            Err(mut error) => {
                self.0.suspect(node);
                if !self.0.is_seed(node) && error.fault == Fault::Retry {
                    error.message += ": if the nodes announce other addresses than they have from here, give the URL a map";
                }
                self.0.contact.record_failure(error.fault, &error.message);
                Err(error)
            }
        }
    }

    /// A connection to each node that has slots.
    pub(crate) async fn routes_to_owners(&self) -> Result<Vec<Route>, EngineError> {
        let mut owners = self.0.lock().owners();
        if owners.is_empty() {
            self.0.wait_for_map().await?;
            owners = self.0.lock().owners();
        }
        let mut routes = Vec::new();
        for node in owners {
            routes.push(self.connect(&node, Destination::default()).await?);
        }
        Ok(routes)
    }

    /// The connections to the nodes that have slots and to the nodes of the URL, also to those that cannot be reached.
    pub(crate) async fn all_conns(&self) -> Result<Vec<ServerConn>, EngineError> {
        self.0.wait_for_map().await?;
        let (owners, seeds) = {
            let map = self.0.lock();
            (map.owners(), map.seeds.clone())
        };
        let is_owner = |seed: &Arc<Node>| owners.iter().any(|owner| owner.endpoint == seed.endpoint);
        let others: Vec<_> = seeds.iter().filter(|seed| !is_owner(seed)).collect();
        // All at once: the time limits of nodes that do not answer must not add up.
        let of_owners = join_all(owners.iter().map(async |node| {
            let conn = self.connect(node, Destination::default()).await.map(|route| route.conn);
            ServerConn { address: node.endpoint.to_string(), conn, has_locks: true }
        }));
        let of_others = join_all(others.into_iter().map(async |seed| {
            let conn = seed.conn().await;
            seed.hang_up();
            ServerConn { address: seed.endpoint.to_string(), conn, has_locks: false }
        }));
        let (mut conns, mut of_others) = join(of_owners, of_others).await;
        conns.append(&mut of_others);
        Ok(conns)
    }

    /// Records the report of the node `from` that the slot is at the address `to`. From now on requests about the slot
    /// go to that address.
    pub(crate) fn record_move(&self, slot: u16, to: &str, from: &Node) -> Result<(), EngineError> {
        let node = self.0.node_of_address(to, from, slot)?;
        let now = self.0.client.clock.now();
        {
            let mut map = self.0.lock();
            map.set_owner(slot, &node, now);
            map.first_to_ask = Some(node);
        }
        self.0.slot_waiters.recheck(slot, &self.0.client.mailbox);
        self.0.request_map();
        Ok(())
    }

    /// The node to which a slot is migrating, at the address `to`, as the node `from` reports.
    pub(crate) fn importer(&self, slot: u16, to: &str, from: &Node) -> Result<Arc<Node>, EngineError> {
        self.0.node_of_address(to, from, slot).inspect(|node| node.may_have_holds())
    }

    /// Records that the claim no longer waits.
    pub(crate) fn stop_waiting(&self, slot: u16, claim: ClaimId) {
        self.0.stop_waiting(slot, claim);
    }

    /// Makes broken connections again, in the background. Never returns.
    pub(crate) async fn mend(&self) {
        loop {
            let mut nodes_changed = pin!(self.0.nodes_changed.notified());
            nodes_changed.as_mut().enable();
            let nodes = self.0.lock().nodes.clone();
            let mut nodes_mending: FuturesUnordered<_> = nodes.iter().map(|node| node.mend()).collect();
            tokio::select! {
                () = nodes_changed => {}
                Some(()) = nodes_mending.next() => {}
            }
        }
    }
}

impl ClusterState {
    /// Records that the claim waits in this slot.
    pub(crate) fn add_waiter(&self, slot: u16, claim: ClaimId, name: &Name) {
        self.slot_waiters.add(slot, claim, name);
    }

    /// Records that the claim no longer waits, at all nodes: when the claim began to wait, its slot may have been at
    /// another node than now.
    pub(crate) fn stop_waiting(&self, slot: u16, claim: ClaimId) {
        if self.slot_waiters.remove(slot, claim) {
            let nodes = self.lock().nodes.clone();
            nodes.iter().for_each(|node| node.listener().set_waiting(claim, false));
        }
    }

    /// Makes the background task ask for the owners of the slots, this node last. Called when this node did not answer,
    /// because another node may have replaced it.
    pub(crate) fn suspect(&self, node: &Arc<Node>) {
        self.lock().last_to_ask = Some(Arc::clone(node));
        self.request_map();
    }

    /// Makes the background task ask for the owners of the slots.
    pub(crate) fn request_map(&self) {
        MapTask::request(&self.weak_self);
    }

    /// Waits until an attempt to learn the owners of the slots has ended; an error if no node reported them.
    async fn wait_for_map(&self) -> Result<(), EngineError> {
        let mut map_attempt_ended = pin!(self.map_attempt_ended.notified());
        map_attempt_ended.as_mut().enable();
        self.request_map();
        map_attempt_ended.await;
        match self.lock().task.last_error() {
            None => Ok(()),
            Some(error) => {
                self.contact.record_failure(error.fault, &error.message);
                Err(error)
            }
        }
    }

    /// The nodes to ask for the owners of the slots, in order: first the node that the newest redirection names, then
    /// connected nodes, then the others, and last the node that did not answer.
    pub(crate) fn nodes_to_ask(&self) -> Vec<Arc<Node>> {
        let mut map = self.lock();
        let (first_to_ask, last_to_ask) = (map.first_to_ask.take(), map.last_to_ask.take());
        let mut nodes: Vec<Arc<Node>> = first_to_ask.into_iter().collect();
        for node in map.nodes.iter().chain(&map.seeds) {
            if !nodes.iter().any(|other| Arc::ptr_eq(node, other)) {
                nodes.push(Arc::clone(node));
            }
        }
        let is_last =
            |node: &Arc<Node>| last_to_ask.as_ref().is_some_and(|last_to_ask| Arc::ptr_eq(last_to_ask, node));
        nodes.sort_by_key(|node| (is_last(node), !node.is_live()));
        nodes
    }

    /// Records the owners of the slots that the node `reporter` reported.
    pub(crate) fn set_owners(&self, ranges: &[SlotRange], reporter: &Node) -> Result<(), EngineError> {
        if ranges.is_empty() {
            let message = format!("{} knows no node that has slots", reporter.endpoint);
            return Err(EngineError::new(Fault::Retry, message));
        }
        let now = self.client.clock.now();
        let mut map = self.lock();
        let mut moved_slots = Vec::new();
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for range in ranges {
            let Some(node) = map.find_or_create_node(&range.owner, &nodes, self) else { continue };
            for slot in range.first..=range.last {
                if map.set_owner(slot, &node, now) {
                    moved_slots.push(slot);
                }
            }
            if !nodes.iter().any(|other| Arc::ptr_eq(other, &node)) {
                nodes.push(node);
            }
        }
        // A slot that has no owner now keeps its former owner in the map; that node refuses requests about the slot.
        map.nodes = nodes;
        let owners = map.owners();
        map.nodes.clone_from(&owners);
        let contains =
            |nodes: &[Arc<Node>], node: &Arc<Node>| nodes.iter().any(|other| Arc::ptr_eq(other, node));
        // A node of the URL that has no slots was needed only to find the other nodes.
        map.seeds.iter().filter(|seed| !contains(&owners, seed)).for_each(|seed| seed.hang_up());
        let former_owners = std::mem::take(&mut map.former_owners);
        drop(map);
        // A node that lost all its slots was replaced, perhaps by a node that lacks its newest data.
        if former_owners.iter().any(|node| !contains(&owners, node)) {
            self.client.mailbox.push(Notification::Doubt);
        }
        moved_slots.iter().for_each(|&slot| self.slot_waiters.recheck(slot, &self.client.mailbox));
        self.nodes_changed.notify_one();
        Ok(())
    }

    /// The known owner of the slot.
    fn owner(&self, slot: u16) -> Option<Owner> {
        self.lock().slots[usize::from(slot)].clone()
    }

    /// Whether the URL names this node.
    fn is_seed(&self, node: &Arc<Node>) -> bool {
        self.lock().seeds.iter().any(|seed| seed.endpoint == node.endpoint)
    }

    /// The node at the address to which the node `from` redirected a request.
    fn node_of_address(&self, address: &str, from: &Node, slot: u16) -> Result<Arc<Node>, EngineError> {
        let endpoint = slots::redirection_endpoint(address, &from.endpoint.host).ok_or_else(|| {
            let message = format!(
                "slot {slot} is on a node whose address {} does not know ({address}): set cluster-announce-hostname or cluster-announce-ip there",
                from.endpoint
            );
            EngineError::new(Fault::Retry, message)
        })?;
        let mut map = self.lock();
        let node = map.find_or_create_node(&NodeInfo { id: None, endpoint: Some(endpoint) }, &[], self);
        let node = node.ok_or_else(|| slot_without_owner(slot))?;
        if !map.nodes.iter().any(|other| Arc::ptr_eq(other, &node)) {
            map.nodes.push(Arc::clone(&node));
            self.nodes_changed.notify_one();
        }
        Ok(node)
    }

    /// Locks the map.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ClusterMap> {
        // No code panics half-way through a change of the map.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClusterMap {
    /// Records that the slot is at this node from `now` on. Returns true if another node was known as its owner.
    fn set_owner(&mut self, slot: u16, node: &Arc<Node>, now: Instant) -> bool {
        let owner = &mut self.slots[usize::from(slot)];
        if owner.as_ref().is_some_and(|owner| Arc::ptr_eq(&owner.node, node)) {
            return false;
        }
        node.may_have_holds();
        let Some(former_owner) = owner.replace(Owner { node: Arc::clone(node), known_since: now }) else {
            return false;
        };
        if !self.former_owners.iter().any(|node| Arc::ptr_eq(node, &former_owner.node)) {
            self.former_owners.push(former_owner.node);
        }
        node.count_slot_arrival();
        true
    }

    /// The node that a report is about: a known node, or a new one. If the report has an address, it is about the known
    /// node with that address, unless both ids are known and differ. If the report has no address, it is about the
    /// known node with its id; `None` if there is none. `new_nodes`: known nodes that are not in the map yet.
    fn find_or_create_node(
        &self,
        report: &NodeInfo,
        new_nodes: &[Arc<Node>],
        cluster: &ClusterState,
    ) -> Option<Arc<Node>> {
        let known_nodes = || self.nodes.iter().chain(new_nodes).chain(&self.seeds);
        let has_id = |node: &&Arc<Node>| report.id.is_some() && node.id.get() == report.id.as_ref();
        let Some(endpoint) = &report.endpoint else { return known_nodes().find(has_id).cloned() };
        // The node announces one address; this client may reach the node at another one.
        let endpoint = cluster.client.config.map.reachable(endpoint.clone());
        let has_address = |node: &&Arc<Node>| {
            node.endpoint == endpoint
                && (report.id.is_none() || node.id.get().is_none() || node.id.get() == report.id.as_ref())
        };
        let known_node = known_nodes().find(has_address).cloned();
        let node = known_node.unwrap_or_else(|| {
            let node_count = self.nodes.len().max(self.seeds.len());
            Node::new(&cluster.weak_self, &cluster.client, endpoint, node_count, &cluster.contact)
        });
        if let Some(id) = &report.id {
            let _ = node.id.set(id.clone());
        }
        Some(node)
    }

    /// The nodes that have slots.
    fn owners(&self) -> Vec<Arc<Node>> {
        let mut owners: Vec<Arc<Node>> = Vec::new();
        for owner in self.slots.iter().flatten() {
            // Neighbouring slots mostly have the same owner.
            let is_same = |other: &Arc<Node>| Arc::ptr_eq(other, &owner.node);
            if !owners.iter().rev().any(is_same) {
                owners.push(Arc::clone(&owner.node));
            }
        }
        owners
    }
}

/// The error for a request about a slot that no node has.
fn slot_without_owner(slot: u16) -> EngineError {
    let message = format!(
        "no node of the Redis Cluster has slot {slot} now (see CLUSTER INFO there), or it announces no address (cluster-announce-hostname, cluster-announce-ip)"
    );
    EngineError::new(Fault::Retry, message)
}
