//! Redis: one server, a group with Sentinels, a cluster, or independent masters.

mod alone;
mod cluster;
mod redlock;
mod sentinel;

pub(crate) use alone::RESTART;
pub use alone::{REDISSON, Redis};
pub use cluster::{CLUSTER, Cluster};
pub use redlock::{Nodes, REDLOCK};
pub use sentinel::{Group, SENTINEL};

use std::{collections::BTreeMap, thread::sleep, time::Duration};

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::{RedisServer, redis_command};

use crate::world::Promise;

/// For how long clients are stopped, and what they say is held, in milliseconds, where several servers stand together: leases have
/// two seconds.
const STOPPED: u64 = 3500;
const HELD: u64 = 2500;

/// How often a server that is loading is told something, and how soon again.
const MAX_TRIES: usize = 1000;
const RETRY: Duration = Duration::from_millis(5);

/// Where masters have trouble, no exclusion is promised: a replica takes their place that may lack what they acknowledged. That of
/// others harms no hold.
#[must_use]
pub const fn promise_of_many(seed: u64) -> Promise {
    if seed.is_multiple_of(2) { Promise::Fence } else { Promise::Exclusion }
}

/// Tells a server that may still be loading what it kept.
fn send(server: &RedisServer, command: &[&str]) {
    for _ in 0..MAX_TRIES {
        if redis_command(server.port(), command).status.success() {
            return;
        }
        sleep(RETRY);
    }
    panic!("the server does not hear {command:?}");
}

/// Whatever happens, several servers are best effort.
fn is_best_effort(guarantee: &Guarantee) -> bool {
    guarantee.level == Level::BestEffort
}

/// What leads clients that are told these addresses to others: the servers' ports, and what stands before each.
fn map(ports: &[u16], proxies: &[u16]) -> String {
    let pairs =
        ports.iter().zip(proxies).map(|(port, proxies)| format!("127.0.0.1:{port}=127.0.0.1:{proxies}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// The keys that must not be left on a server that says these.
fn keys_left(command: impl Fn(&[&str]) -> Vec<String>) -> BTreeMap<String, u64> {
    let keys = command(&["KEYS", "*"]).into_iter().filter(|key| !key.is_empty());
    keys.filter(|key| !may_remain(key, &command)).map(|key| (format!("key {key}"), 1)).collect()
}

/// How long the keys of a line may outlive it, in milliseconds: killed clients leave places that nobody clears away at rest.
const QUEUE_LIFE: i64 = 70_000;
/// The same for shared holds, and for entries, which stand beside theirs: they are remembered for an hour after their lease.
const HOLDS_LIFE: i64 = 3_601_000;

/// Keys that stay for a while at rest: the newest token, tombstones, places of killed clients, and what is remembered of an
/// unclean end: of holds of killed clients, which nobody prunes before the name is wanted again, all but the lock itself.
fn may_remain(key: &str, command: impl Fn(&[&str]) -> Vec<String>) -> bool {
    const REMEMBERS: &str = "local c = redis.call('GET', KEYS[1]) or '1 '
        return (c:sub(1, 2) == '1 ' or cmsgpack.unpack(c).mode or cmsgpack.unpack(c).ended) and 1 or 0";
    let expires_within = |most| {
        let left = command(&["PTTL", key]).join("").parse();
        left.is_ok_and(|left: i64| (1..=most).contains(&left))
    };
    let kind = key.strip_prefix("leasehold:{").and_then(|rest| rest.split_once('}'));
    // With Redisson's locks a letter stands before.
    match kind.and_then(|(_, kind)| kind.strip_prefix('r').unwrap_or(kind).chars().next()) {
        Some('c') => expires_within(HOLDS_LIFE) && command(&["EVAL", REMEMBERS, "1", key]).join("") == "1",
        Some('q' | 'z') => expires_within(QUEUE_LIFE),
        Some('e' | 'h') => expires_within(HOLDS_LIFE),
        Some(kind) => matches!(kind, 'd' | 's' | 't'),
        None => false,
    }
}
