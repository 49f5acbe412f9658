//! etcd: one server, or a cluster of three.

mod alone;
mod cluster;

use std::collections::BTreeMap;

pub use alone::Alone;
pub use cluster::{CLUSTER, Three, promise_of};

/// The longest time in milliseconds for which a client is stopped: longer than the clients' leases of two seconds.
const MAX_STOP: u64 = 3500;
/// The longest time in milliseconds for which a proxy holds messages.
const MAX_HOLD_BACK: u64 = 2500;

/// The keys and leases on a server; `command` runs `etcdctl`.
fn leftovers(command: impl Fn(&[&str]) -> Vec<String>) -> BTreeMap<String, u64> {
    // Keys and leases of dead clients need no exception: a key ends with its lease, and the lease of a dead client
    // expires.
    let keys = command(&["get", "", "--prefix", "--keys-only"]);
    let keys = keys.into_iter().filter(|key| !key.is_empty());
    let mut leftovers: BTreeMap<String, u64> = keys.map(|key| (format!("key {key}"), 1)).collect();
    // The first line of the output is the number of leases.
    let leases = command(&["lease", "list"]).len().saturating_sub(1);
    leftovers.insert("leases".to_owned(), leases as u64);
    leftovers
}
