//! etcd: one server, or a cluster of three.

mod alone;
mod cluster;

use std::collections::BTreeMap;

pub use alone::Alone;
pub use cluster::{CLUSTER, Three, promise_of};

/// For how long clients are stopped, and what they say is held, in milliseconds: leases have two seconds.
const STOPPED: u64 = 3500;
const HELD: u64 = 2500;

/// What is there, by the keys and leases that `etcdctl` tells.
fn leftovers(command: impl Fn(&[&str]) -> Vec<String>) -> BTreeMap<String, u64> {
    // What belongs to a lease ends with it, and the leases of whoever is gone end by themselves.
    let keys = command(&["get", "", "--prefix", "--keys-only"]);
    let keys = keys.into_iter().filter(|key| !key.is_empty());
    let mut leftovers: BTreeMap<String, u64> = keys.map(|key| (format!("key {key}"), 1)).collect();
    // The first line tells how many there are.
    let leases = command(&["lease", "list"]).len().saturating_sub(1);
    leftovers.insert("leases".to_owned(), leases as u64);
    leftovers
}
