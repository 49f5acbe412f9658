//! etcd: one server, or a cluster of three.

mod alone;
mod cluster;

use std::collections::BTreeMap;

pub use alone::Alone;
pub use cluster::{CLUSTER, Three, promise_of};

/// The longest time in milliseconds for which a client is stopped: longer than the clients' leases of two seconds.
const MAX_STOP: u64 = 3500;
/// A lease of more seconds than this is of the value of a leader: eight days.
const LONG_LEASE: u64 = 8 * 24 * 3600;
/// The leftovers of this kind are leases of a leader's value without a key.
const UNUSED_LEASES: &str = "unused leases of values";
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
    let leases = command(&["lease", "list"]).into_iter().skip(1);
    let shown = leases.map(|lease| command(&["lease", "timetolive", &lease, "--keys"]).concat());
    let (unused, other): (Vec<_>, Vec<_>) = shown.partition(|shown| is_unused_lease_of_a_memo(shown));
    leftovers.insert("leases".to_owned(), other.len() as u64);
    leftovers.insert(UNUSED_LEASES.to_owned(), unused.len() as u64);
    leftovers
}

/// Removes from the leftovers the unused leases of values that these faults explain. Each kill, and each loss of
/// answers, may leave one.
pub fn excuse_unused_leases(leftovers: &mut BTreeMap<String, u64>, faults: &BTreeMap<&'static str, u64>) {
    let lose_answers = faults.iter().filter(|(kind, _)| **kind != alone::COMPACTED);
    let excused: u64 = lose_answers.map(|(_, count)| count).sum();
    if let Some(unused) = leftovers.get_mut(UNUSED_LEASES) {
        *unused = unused.saturating_sub(excused);
    }
}

/// Whether a lease, as `etcdctl` shows it, is one of a leader's value and has no key. The page of the engine says that
/// such a lease stays until its end if a client is killed between the request for it and the write of the value, or if
/// the answer to the request is lost.
fn is_unused_lease_of_a_memo(shown: &str) -> bool {
    let granted = shown.split("TTL(").nth(1).and_then(|rest| rest.split('s').next());
    let is_long =
        granted.and_then(|seconds| seconds.parse().ok()).is_some_and(|seconds: u64| seconds > LONG_LEASE);
    is_long && shown.contains("attached keys([])")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_lease_without_a_key_may_stay() {
        let shown = |ttl: u64, keys: &str| {
            format!(
                "lease 694da218b516762d granted with TTL({ttl}s), remaining({ttl}s), attached keys([{keys}])"
            )
        };
        assert!(is_unused_lease_of_a_memo(&shown(34_560_616, "")));
        assert!(!is_unused_lease_of_a_memo(&shown(34_560_616, "leasehold//locks/memo/e0")));
        assert!(!is_unused_lease_of_a_memo(&shown(2, "")) && !is_unused_lease_of_a_memo(""));
    }

    #[test]
    fn each_fault_that_loses_answers_excuses_one_unused_lease_of_a_value() {
        let left = |unused, faults: &[(&'static str, u64)]| {
            let mut leftovers =
                BTreeMap::from([("leases".to_owned(), 1), (UNUSED_LEASES.to_owned(), unused)]);
            excuse_unused_leases(&mut leftovers, &faults.iter().copied().collect());
            assert_eq!(leftovers["leases"], 1, "no other lease is excused");
            leftovers[UNUSED_LEASES]
        };
        assert_eq!(left(1, &[]), 1);
        assert_eq!(left(1, &[(alone::COMPACTED, 5)]), 1);
        assert_eq!(left(3, &[("kill", 1), ("reset", 2)]), 0);
        assert_eq!(left(5, &[("kill", 1), ("reset", 2)]), 2);
    }
}
