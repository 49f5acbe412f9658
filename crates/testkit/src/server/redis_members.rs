//! Adding and removing nodes of a private Redis Cluster, and the addresses that they announce.

use super::{redis_cluster::RedisCluster, redis_cluster_view::KnownNode, redis_group::poll_until};

impl RedisCluster {
    /// Adds a master without slots and returns its number.
    ///
    /// # Panics
    /// If the node cannot be started, or the other nodes do not learn of it.
    pub fn add(&mut self) -> usize {
        let node = self.group.len();
        let present: Vec<_> = self.members().filter(|&other| self.group.is_present(other)).collect();
        self.start_node();
        present.iter().for_each(|&other| self.meet(node, other));
        poll_until("the new node in the cluster", || {
            let is_known_by_all = present.iter().all(|&other| self.is_known(other, node));
            // If no node served before, the new node does not make the cluster complete, so it need not serve.
            let serves = self.serves(node) || !present.iter().any(|&other| self.serves(other));
            (is_known_by_all && serves).then_some(())
        });
        node
    }

    /// Like [`add`](Self::add), but the new node is a replica of this master.
    ///
    /// # Panics
    /// If the node cannot be started, or does not follow the master.
    pub fn add_replica(&mut self, master: usize) -> usize {
        let node = self.add();
        self.make_replica(node, master);
        let port = self.group.port(master).to_string();
        poll_until("the new replica", || self.group.master_port(node).filter(|followed| *followed == port));
        node
    }

    /// Kills a node and removes it from the views of the others (`CLUSTER FORGET`). Its number is not used again. Its
    /// slots have no owner afterwards.
    ///
    /// # Panics
    /// If another node is its replica, or the others do not forget it.
    pub fn forget(&mut self, node: usize) {
        self.group.kill(node);
        self.removed.insert(node);
        poll_until("a cluster without the node", || {
            let knowing_nodes: Vec<_> = self.members().filter(|&other| self.is_known(other, node)).collect();
            knowing_nodes
                .iter()
                .for_each(|&other| drop(self.command(other, &["CLUSTER", "FORGET", &self.ids[node]])));
            knowing_nodes.is_empty().then_some(())
        });
    }

    /// Makes a node announce another address than its own, and waits until the others know this address. The nodes
    /// still reach each other. Clients do not reach the node if nothing listens at the address, for instance at
    /// 127.9.9.9.
    ///
    /// # Panics
    /// If the others do not learn of the address.
    pub fn announce_address(&mut self, node: usize, address: &str) {
        self.announce(node, "cluster-announce-ip", address, |announced| {
            announced.starts_with(&format!("{address}:"))
        });
    }

    /// Like [`announce_address`](Self::announce_address), but for a port.
    ///
    /// # Panics
    /// If the others do not learn of the announcement.
    pub fn announce_port(&mut self, node: usize, port: u16) {
        self.group.add_announced_port(node, port);
        self.announce(node, "cluster-announce-port", &port.to_string(), |announced| {
            announced.contains(&format!(":{port}@"))
        });
    }

    /// Like [`announce_address`](Self::announce_address), but for a name (Redis 7.0 or later). Also makes all nodes
    /// send clients the names of nodes in place of the addresses, and `?` for a node without a name.
    ///
    /// # Panics
    /// If the others do not learn of the announcement.
    pub fn announce_name(&mut self, node: usize, name: &str) {
        for other in self.members().filter(|&other| self.group.is_present(other)) {
            self.command(other, &["CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname"]);
        }
        self.announce(node, "cluster-announce-hostname", name, |announced| {
            announced.ends_with(&format!(",{name}"))
        });
    }

    /// Whether the node `by` knows `node`.
    fn is_known(&self, by: usize, node: usize) -> bool {
        let id = &self.ids[node];
        self.view(by).is_some_and(|view| view.iter().any(|known| known.id == *id && !known.is("handshake")))
    }

    /// Sets the option by which a node announces `value`, and waits until the others know an announcement that
    /// `is_announced` accepts.
    fn announce(&self, node: usize, option: &str, value: &str, is_announced: impl Fn(&str) -> bool) {
        self.command(node, &["CONFIG", "SET", option, value]);
        let announces = |known: &KnownNode| known.id == self.ids[node] && is_announced(&known.announced);
        let knows = |other| self.view(other).is_some_and(|view| view.iter().any(announces));
        let present = || self.members().filter(|&other| self.group.is_present(other));
        poll_until("nodes that know the announcement", || present().all(knows).then_some(()));
    }
}
