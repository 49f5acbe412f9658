//! Fixture: an etcd server, clients through a proxy, and commands of an operator.

use std::time::Duration;

use leasehold::Locks;
use leasehold_testkit::server::{EtcdCluster, EtcdServer, Proxy};
use serde_json::Value;

use crate::rig::warm;

/// The shortest lease that the server grants.
pub(crate) const SHORTEST: Duration = Duration::from_secs(2);

/// How long an expired lease may remain: the server looks for expired leases twice a second.
pub(crate) const EXPIRY: Duration = Duration::from_millis(1000);

/// A server and its clients.
pub(crate) struct Rig {
    pub(crate) server: EtcdServer,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self { server: EtcdServer::start(&[]) }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn locks(&self) -> Locks {
        Locks::connect(&self.url()).unwrap()
    }

    /// A connected client behind a proxy.
    pub(crate) fn proxied(&self) -> (Proxy, Locks) {
        let proxy = Proxy::start(self.server.port());
        let locks = Locks::connect(&format!("etcd://127.0.0.1:{}", proxy.port())).unwrap();
        warm(&locks, SHORTEST);
        (proxy, locks)
    }

    /// The keys of a name in the order of their creation: the create revision and the lease of each.
    pub(crate) fn queue_keys(&self, name: &str) -> Vec<(u64, i64)> {
        queue_keys(&self.server.command(&["get", "-w=json", "--prefix", &format!("/locks/{name}/")]))
    }

    /// Revokes a lease, as an operator may.
    pub(crate) fn revoke(&self, lease: i64) {
        self.server.command(&["lease", "revoke", &format!("{lease:x}")]);
    }

    /// The revision of the server.
    pub(crate) fn revision(&self) -> u64 {
        let output = self.server.command(&["get", "-w=json", "nothing"]).join("");
        parse_json(&output)["header"]["revision"].as_u64().unwrap()
    }
}

/// A client that reaches each member through a proxy, which shows the members that it uses.
pub(crate) fn through_proxies(cluster: &EtcdCluster) -> ([Proxy; 3], Locks) {
    let proxies = cluster.ports().map(Proxy::start);
    let endpoints = proxies.each_ref().map(|proxy| format!("127.0.0.1:{}", proxy.port()));
    let locks = Locks::connect(&format!("etcd://{}", endpoints.join(","))).unwrap();
    (proxies, locks)
}

/// The create revisions and leases in the output of `etcdctl get`.
pub(crate) fn queue_keys(output: &[String]) -> Vec<(u64, i64)> {
    let output = parse_json(&output.join(""));
    let keys = output["kvs"].as_array().cloned().unwrap_or_default();
    let facts = |kv: &Value| (kv["create_revision"].as_u64().unwrap(), kv["lease"].as_i64().unwrap_or(0));
    let mut keys: Vec<_> = keys.iter().map(facts).collect();
    keys.sort_unstable();
    keys
}

fn parse_json(output: &str) -> Value {
    serde_json::from_str(output).unwrap()
}
