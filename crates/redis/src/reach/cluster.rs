//! A Redis Cluster: the known owner of each slot, and the reaction when the owner turns out to be another node.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use leasehold_core::{ClaimId, Contact, Endpoint, EngineError, Fault, Instant, Name, Notification};
use tokio::sync::Notify;

use super::{
    Client,
    map_task::MapTask,
    node::Node,
    routed_request::{ClusterNode, Route},
    slots::{self, NodeInfo, SlotRange},
    waiting::SlotWaiters,
};
use crate::{keys::SLOTS, outbox::Destination};

/// For this long after a slot was found at a node, the clients of its waiters may not be subscribed there yet: they
/// learn of the move at about the same time as this client. During this time a missing listener does not exclude a
/// waiter from a grant.
const SETTLING_TIME: Duration = Duration::from_secs(5);

/// The cluster of a URL.
pub(crate) struct Cluster(Arc<Inner>);

/// The shared state of a [`Cluster`], which background tasks and connections use too.
pub(crate) struct Inner {
    weak_self: Weak<Inner>,
    pub(crate) client: Arc<Client>,
    contact: Contact,
    /// The waiting claims, by slot.
    pub(crate) slot_waiters: SlotWaiters,
    map: Mutex<ClusterMap>,
    /// Notified when an attempt to learn the owners of the slots has ended.
    pub(crate) map_read: Notify,
    /// Notified when the set of nodes changes.
    nodes_changed: Notify,
}

/// What is known of the cluster.
pub(crate) struct ClusterMap {
    /// The owner of each slot; `None` before a node reported it.
    slots: Vec<Option<Owner>>,
    /// Nodes that lost slots since the owners were last reported.
    former_owners: Vec<Arc<Node>>,
    /// Nodes that own slots, or to which others redirected us.
    nodes: Vec<Arc<Node>>,
    /// The nodes of the URL.
    seeds: Vec<Arc<Node>>,
    /// The node to ask first for the owners of the slots: it reported the newest change.
    witness: Option<Arc<Node>>,
    /// The node to ask last for the owners of the slots: it does not answer.
    suspect: Option<Arc<Node>>,
    /// The task that asks for the owners of the slots.
    pub(crate) task: MapTask,
}

/// The owner of a slot, and since when it is known.
#[derive(Clone)]
struct Owner {
    node: Arc<Node>,
    since: Instant,
}

impl Cluster {
    pub(crate) fn new(client: &Arc<Client>, seeds: &[Endpoint], contact: Contact) -> Self {
        Self(Arc::new_cyclic(|weak_self| {
            let node = |endpoint: &Endpoint| Node::new(weak_self, client, endpoint.clone(), seeds.len());
            let map = ClusterMap {
                slots: vec![None; SLOTS],
                former_owners: Vec::new(),
                nodes: Vec::new(),
                seeds: seeds.iter().map(node).collect(),
                witness: None,
                suspect: None,
                task: MapTask::default(),
            };
            Inner {
                weak_self: Weak::clone(weak_self),
                client: Arc::clone(client),
                contact,
                slot_waiters: SlotWaiters::default(),
                map: Mutex::new(map),
                map_read: Notify::new(),
                nodes_changed: Notify::new(),
            }
        }))
    }

    /// The connection to the node that has this slot.
    pub(crate) async fn route(&self, slot: u16) -> Result<Route, EngineError> {
        let owner = match self.0.owner(slot) {
            Some(owner) => owner,
            None => {
                self.0.wait_for_map().await?;
                self.0.owner(slot).ok_or_else(|| slot_without_owner(slot))?
            }
        };
        let failure = match self.connect(&owner.node, self.destination(slot, &owner)).await {
            Ok(route) => return Ok(route),
            Err(error) => error,
        };
        // Nothing was sent: if another node has the slot by now, that node is asked.
        if failure.fault != Fault::Retry || self.0.wait_for_map().await.is_err() {
            return Err(failure);
        }
        match self.0.owner(slot) {
            Some(new_owner) if !Arc::ptr_eq(&new_owner.node, &owner.node) => {
                self.connect(&new_owner.node, self.destination(slot, &new_owner)).await
            }
            _ => Err(failure),
        }
    }

    /// The connection to the node that has this slot, if it is made and can be used at once.
    pub(crate) fn ready_route(&self, slot: u16) -> Option<Route> {
        let owner = self.0.owner(slot)?;
        let (conn, to) = (owner.node.ready_conn()?, self.destination(slot, &owner));
        Some(Route {
            conn,
            to,
            cluster_node: Some(ClusterNode { cluster: Arc::clone(&self.0), node: owner.node }),
        })
    }

    fn destination(&self, slot: u16, owner: &Owner) -> Destination {
        let unsettled = self.0.client.clock.now().since(owner.since) < SETTLING_TIME;
        Destination { slot: Some(slot), asking: false, unsettled }
    }

    /// The connection to this node.
    pub(crate) async fn connect(&self, node: &Arc<Node>, to: Destination) -> Result<Route, EngineError> {
        match node.conn().await {
            Ok(conn) => {
                self.0.contact.record_connected();
                node.raise_token_floor(&conn).await.inspect_err(|_| self.0.suspect(node))?;
                Ok(Route {
                    conn,
                    to,
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
    pub(crate) async fn owners(&self) -> Result<Vec<Route>, EngineError> {
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

    /// Records the report of the node `from` that the slot is at the address `to`, which is asked from now on.
    pub(crate) fn moved(&self, slot: u16, to: &str, from: &Node) -> Result<(), EngineError> {
        let node = self.0.node_at(to, from, slot)?;
        let now = self.0.client.clock.now();
        {
            let mut map = self.0.lock();
            map.set_owner(slot, &node, now);
            map.witness = Some(node);
        }
        self.0.slot_waiters.recheck(slot, &self.0.client.mailbox);
        self.0.want_map();
        Ok(())
    }

    /// The node to which a slot is migrating.
    pub(crate) fn importer(&self, slot: u16, to: &str, from: &Node) -> Result<Arc<Node>, EngineError> {
        self.0.node_at(to, from, slot).inspect(|node| node.may_have_holds())
    }

    /// Records that the claim no longer waits.
    pub(crate) fn waits_no_more(&self, slot: u16, claim: ClaimId) {
        self.0.waits_no_more(slot, claim);
    }

    /// Keeps connections that were made once connected. Never returns.
    pub(crate) async fn mend(&self) {
        loop {
            let mut nodes_changed = pin!(self.0.nodes_changed.notified());
            nodes_changed.as_mut().enable();
            let nodes = self.0.lock().nodes.clone();
            let mut mending: FuturesUnordered<_> = nodes.iter().map(|node| node.mend()).collect();
            tokio::select! {
                () = nodes_changed => {}
                Some(()) = mending.next() => {}
            }
        }
    }
}

impl Inner {
    /// Records that the claim waits in this slot.
    pub(crate) fn waits(&self, slot: u16, claim: ClaimId, name: &Name) {
        self.slot_waiters.add(slot, claim, name);
    }

    /// Records that the claim no longer waits at any node: when it began to wait, its slot may have been at another
    /// node.
    pub(crate) fn waits_no_more(&self, slot: u16, claim: ClaimId) {
        if self.slot_waiters.remove(slot, claim) {
            let nodes = self.lock().nodes.clone();
            nodes.iter().for_each(|node| node.listener().set_waiting(claim, false));
        }
    }

    /// Records that this node did not answer, and asks the other nodes for the owners of the slots.
    pub(crate) fn suspect(&self, node: &Arc<Node>) {
        self.lock().suspect = Some(Arc::clone(node));
        self.want_map();
    }

    /// Makes the background task ask for the owners of the slots.
    pub(crate) fn want_map(&self) {
        MapTask::want(&self.weak_self);
    }

    /// Waits until a node has reported the owners of the slots.
    async fn wait_for_map(&self) -> Result<(), EngineError> {
        let mut map_read = pin!(self.map_read.notified());
        map_read.as_mut().enable();
        self.want_map();
        map_read.await;
        match self.lock().task.last_error() {
            None => Ok(()),
            Some(error) => {
                self.contact.record_failure(error.fault, &error.message);
                Err(error)
            }
        }
    }

    /// The nodes to ask for the owners of the slots, in order: first the node that reported the newest change, then
    /// connected nodes, and last the node that did not answer.
    pub(crate) fn witnesses(&self) -> Vec<Arc<Node>> {
        let mut map = self.lock();
        let (witness, suspect) = (map.witness.take(), map.suspect.take());
        let mut all: Vec<Arc<Node>> = witness.into_iter().collect();
        for node in map.nodes.iter().chain(&map.seeds) {
            if !all.iter().any(|other| Arc::ptr_eq(node, other)) {
                all.push(Arc::clone(node));
            }
        }
        let is_suspect =
            |node: &Arc<Node>| suspect.as_ref().is_some_and(|suspect| Arc::ptr_eq(suspect, node));
        all.sort_by_key(|node| (is_suspect(node), !node.is_live()));
        all
    }

    /// Records the owners of the slots that `witness` reported.
    pub(crate) fn set_owners(&self, ranges: &[SlotRange], witness: &Node) -> Result<(), EngineError> {
        if ranges.is_empty() {
            let message = format!("{} knows no node that has slots", witness.endpoint);
            return Err(EngineError::new(Fault::Retry, message));
        }
        let now = self.client.clock.now();
        let mut map = self.lock();
        let mut moved = Vec::new();
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for range in ranges {
            let Some(node) = map.node(&range.owner, &nodes, self) else { continue };
            for slot in range.first..=range.last {
                if map.set_owner(slot, &node, now) {
                    moved.push(slot);
                }
            }
            if !nodes.iter().any(|other| Arc::ptr_eq(other, &node)) {
                nodes.push(node);
            }
        }
        // A slot without an owner keeps its former owner in the map, which refuses requests about the slot.
        map.nodes = nodes;
        let owners = map.owners();
        map.nodes.clone_from(&owners);
        let contains = |all: &[Arc<Node>], node: &Arc<Node>| all.iter().any(|other| Arc::ptr_eq(other, node));
        map.seeds.iter().filter(|seed| !contains(&owners, seed)).for_each(|seed| seed.hang_up());
        let former_owners = std::mem::take(&mut map.former_owners);
        drop(map);
        // A node that lost all slots was replaced, perhaps by a node that lacks newer data.
        if former_owners.iter().any(|node| !contains(&owners, node)) {
            self.client.mailbox.push(Notification::Doubt);
        }
        moved.iter().for_each(|&slot| self.slot_waiters.recheck(slot, &self.client.mailbox));
        self.nodes_changed.notify_one();
        Ok(())
    }

    fn owner(&self, slot: u16) -> Option<Owner> {
        self.lock().slots[usize::from(slot)].clone()
    }

    fn is_seed(&self, node: &Arc<Node>) -> bool {
        self.lock().seeds.iter().any(|seed| seed.endpoint == node.endpoint)
    }

    /// The node at the address that `from` reported.
    fn node_at(&self, address: &str, from: &Node, slot: u16) -> Result<Arc<Node>, EngineError> {
        let endpoint = slots::endpoint(address, &from.endpoint.host).ok_or_else(|| {
            let message = format!(
                "slot {slot} is on a node whose address {} does not know ({address}): set cluster-announce-hostname or cluster-announce-ip there",
                from.endpoint
            );
            EngineError::new(Fault::Retry, message)
        })?;
        let mut map = self.lock();
        let node = map.node(&NodeInfo { id: None, endpoint: Some(endpoint) }, &[], self);
        let node = node.ok_or_else(|| slot_without_owner(slot))?;
        if !map.nodes.iter().any(|other| Arc::ptr_eq(other, &node)) {
            map.nodes.push(Arc::clone(&node));
            self.nodes_changed.notify_one();
        }
        Ok(node)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ClusterMap> {
        // A panic under this lock leaves no change half done.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClusterMap {
    /// Records that the slot is at this node since `since`. True if it was at another node.
    fn set_owner(&mut self, slot: u16, node: &Arc<Node>, since: Instant) -> bool {
        let owner = &mut self.slots[usize::from(slot)];
        if owner.as_ref().is_some_and(|owner| Arc::ptr_eq(&owner.node, node)) {
            return false;
        }
        node.may_have_holds();
        let Some(former_owner) = owner.replace(Owner { node: Arc::clone(node), since }) else { return false };
        if !self.former_owners.iter().any(|node| Arc::ptr_eq(node, &former_owner.node)) {
            self.former_owners.push(former_owner.node);
        }
        node.slots_arrived();
        true
    }

    /// The node of a report, new or known. A known node has the address of the report, and the same id as far as ids
    /// are known; without an address in the report, the same id. `None` if the report has no address, and the id is
    /// unknown. `new`: further known nodes.
    fn node(&self, report: &NodeInfo, new: &[Arc<Node>], cluster: &Inner) -> Option<Arc<Node>> {
        let all = || self.nodes.iter().chain(new).chain(&self.seeds);
        let has_id = |node: &&Arc<Node>| report.id.is_some() && node.id.get() == report.id.as_ref();
        let Some(endpoint) = &report.endpoint else { return all().find(has_id).cloned() };
        let endpoint = cluster.client.config.map.reachable(endpoint.clone());
        let has_address = |node: &&Arc<Node>| {
            node.endpoint == endpoint
                && (report.id.is_none() || node.id.get().is_none() || node.id.get() == report.id.as_ref())
        };
        let known = all().find(has_address).cloned();
        let node = known.unwrap_or_else(|| {
            let nodes = self.nodes.len().max(self.seeds.len());
            Node::new(&cluster.weak_self, &cluster.client, endpoint, nodes)
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

fn slot_without_owner(slot: u16) -> EngineError {
    let message = format!(
        "no node of the Redis Cluster has slot {slot} now (see CLUSTER INFO there), or it announces no address (cluster-announce-hostname, cluster-announce-ip)"
    );
    EngineError::new(Fault::Retry, message)
}
