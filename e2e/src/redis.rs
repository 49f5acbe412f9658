//! Redis: one server, a group with Sentinels, a cluster, or independent masters.

mod alone;
mod cluster;
mod redlock;
mod sentinel;

pub(crate) use alone::RESTART;
pub use alone::{REDISSON, Redis};
pub use cluster::{CLUSTER, Cluster};
pub use redlock::{Nodes, REDLOCK, VOTES_LOST_BY};
pub use sentinel::{Group, SENTINEL};

use std::{collections::BTreeMap, thread::sleep, time::Duration};

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::{RedisServer, redis_command};

use crate::world::Promise;

/// The longest time in milliseconds for which a client of several servers is stopped: longer than the clients' leases
/// of two seconds.
const MAX_STOP: u64 = 3500;
/// The longest time in milliseconds for which a proxy holds messages.
const MAX_HOLD_BACK: u64 = 2500;

/// The faults by which the server loses all earlier holds.
pub(crate) const FORGETTING: &[&str] = &["all flushed", "restart without data"];

/// How many times a command is sent to a server that is still loading its data.
const MAX_TRIES: usize = 1000;
/// The pause between two commands to a server that is still loading its data.
const RETRY: Duration = Duration::from_millis(5);

/// The promise of the round with this seed, on one server. Of four consecutive seeds, two have a configuration that
/// promises no exclusion.
#[must_use]
pub const fn promise_of(seed: u64) -> Promise {
    match seed % 4 {
        2 => Promise::Doubt,
        3 => Promise::Fence,
        _ => Promise::Exclusion,
    }
}

/// The promise of the round with this seed, on Sentinels or a cluster. In rounds with even seeds, faults strike
/// masters. Such a round promises no exclusion, because the replica that takes over may lack acknowledged writes. Other
/// rounds promise exclusion, because their faults end no hold.
#[must_use]
pub const fn promise_of_many(seed: u64) -> Promise {
    if seed.is_multiple_of(2) { Promise::Fence } else { Promise::Exclusion }
}

/// Sends a command to a server, and repeats the command while the server is still loading its data.
fn send_when_loaded(server: &RedisServer, command: &[&str]) {
    for _ in 0..MAX_TRIES {
        if redis_command(server.port(), command).status.success() {
            return;
        }
        sleep(RETRY);
    }
    panic!("the server does not accept {command:?}");
}

/// The guarantee of several servers is always best effort.
fn is_best_effort(guarantee: &Guarantee) -> bool {
    guarantee.level == Level::BestEffort
}

/// An address map from the ports of the servers to the ports of their proxies.
fn address_map(ports: &[u16], proxies: &[u16]) -> String {
    let pairs = ports.iter().zip(proxies).map(|(port, proxy)| format!("127.0.0.1:{port}=127.0.0.1:{proxy}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// The keys that must not remain on a server. `command` sends a command to the server.
fn keys_left(command: impl Fn(&[&str]) -> Vec<String>) -> BTreeMap<String, u64> {
    let keys = command(&["KEYS", "*"]).into_iter().filter(|key| !key.is_empty());
    keys.filter(|key| !may_remain(key, &command)).map(|key| (format!("key {key}"), 1)).collect()
}

/// How long the keys of a queue may remain, in milliseconds: the queue entries of killed clients stay until they
/// expire.
const QUEUE_LIFE: i64 = 70_000;
/// How long the keys of shared holds may remain, in milliseconds: the server remembers these holds for an hour after
/// the end of their leases.
const HOLDS_LIFE: i64 = 3_601_000;

/// Whether a key is allowed to remain for a while after all clients have ended. Such keys are the newest token,
/// tombstones, queue entries of killed clients, and the record of an unclean end. If a killed client had a hold, all
/// keys of the hold except the lock key stay until the name is claimed again.
fn may_remain(key: &str, command: impl Fn(&[&str]) -> Vec<String>) -> bool {
    const REMEMBERS_HOLDS: &str = "local c = redis.call('GET', KEYS[1]) or '1 '
        return (c:sub(1, 2) == '1 ' or cmsgpack.unpack(c).mode or cmsgpack.unpack(c).ended) and 1 or 0";
    let expires_within = |longest| {
        let left = command(&["PTTL", key]).join("").parse();
        left.is_ok_and(|left: i64| (1..=longest).contains(&left))
    };
    let kind = key.strip_prefix("leasehold:{").and_then(|rest| rest.split_once('}'));
    // Redisson's layout adds a letter before the kind.
    match kind.and_then(|(_, kind)| kind.strip_prefix('r').unwrap_or(kind).chars().next()) {
        Some('c') => {
            expires_within(HOLDS_LIFE) && command(&["EVAL", REMEMBERS_HOLDS, "1", key]).join("") == "1"
        }
        Some('q' | 'z') => expires_within(QUEUE_LIFE),
        Some('e' | 'h') => expires_within(HOLDS_LIFE),
        Some(kind) => matches!(kind, 'd' | 's' | 't'),
        None => false,
    }
}
