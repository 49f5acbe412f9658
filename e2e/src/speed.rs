//! How quick an engine is: how long its shortest leases are, and how exactly it ends and tells them.

use std::time::Duration;

use leasehold_core::lock_state::{MAX_ENTRY_LIFE, MIN_ENTRY_LIFE};

use crate::{redis, round::PEER_OF_THREE, task::TTL, zookeeper};

/// How quick an engine is.
#[derive(Clone, Copy, Debug)]
pub struct EngineSpeed {
    /// The leases of a round: so short that faults end them.
    pub ttl: Duration,
    /// For how long after the last fault its traces may be seen: a lease, and twice the slowest pace of asking.
    pub traces: Duration,
    /// How coarse the server tells when a lease ends.
    pub precision: Duration,
    /// How much longer than its time something may stand on the server.
    pub overdue: Duration,
    /// For how long a server that is cut off from the others may tell an administrator what was.
    pub stale: Duration,
    /// How long a free lock may stand beside a live waiter: I7.
    pub wake: Duration,
    /// How long a place in line lasts at least after its claim last spoke.
    pub place: Duration,
    /// How much longer where nothing rings, as when a name is not kept any more.
    pub poll: Duration,
    /// Faults after each of which every process believes in none of its holds for a moment, until they were renewed.
    pub doubted_after: &'static [&'static str],
}

/// One that counts in milliseconds.
const FINE: EngineSpeed = EngineSpeed {
    ttl: TTL,
    traces: Duration::from_secs(3),
    precision: Duration::from_millis(2),
    overdue: Duration::ZERO,
    stale: Duration::ZERO,
    wake: WAKE,
    place: MIN_ENTRY_LIFE,
    poll: Duration::ZERO,
    doubted_after: &[],
};

/// What I7 says.
const WAKE: Duration = Duration::from_millis(250);

/// Nobody can tell by its connection whether a Redis that was started anew has what it acknowledged.
const REDIS: EngineSpeed = EngineSpeed { doubted_after: &[redis::ANEW], ..FINE };

/// Whoever waits for a row looks once a second whether what it waits for is over.
const SQL: EngineSpeed = EngineSpeed { poll: Duration::from_secs(1), ..FINE };

/// Who is notified on PostgreSQL speaks for its place twice a minute.
const POSTGRES: EngineSpeed = EngineSpeed { place: MAX_ENTRY_LIFE, ..SQL };

/// Besides, those who write to one file stand in no line: while others have their turns, a process hears of nothing.
const SQLITE: EngineSpeed = EngineSpeed { wake: Duration::from_secs(1), ..SQL };

/// etcd counts whole seconds, of which it tells only those that are complete. It looks twice a second for leases that are over,
/// and what is kept for less than its shortest lease stands for as long as that if nobody is left to end it. A server that is
/// started gives every lease its whole time again.
const ETCD: EngineSpeed = EngineSpeed {
    ttl: Duration::from_secs(2),
    traces: Duration::from_secs(8),
    precision: Duration::from_secs(1),
    overdue: Duration::from_secs(3),
    stale: Duration::ZERO,
    wake: WAKE,
    place: MIN_ENTRY_LIFE,
    poll: Duration::ZERO,
    doubted_after: &[],
};

/// A ZooKeeper ends sessions in steps of its tick, half a second here, and gives each its whole time again when it is started or has
/// a new leader, which takes some seconds to be found. How long a session has left it does not tell.
const ZOOKEEPER: EngineSpeed = EngineSpeed {
    ttl: Duration::from_secs(2),
    traces: Duration::from_secs(12),
    precision: Duration::from_secs(1),
    overdue: Duration::from_secs(8),
    stale: Duration::ZERO,
    wake: WAKE,
    place: MIN_ENTRY_LIFE,
    poll: Duration::ZERO,
    doubted_after: &[],
};

/// The same of three servers: one that is cut off answers looks by itself until it notices, after `syncLimit` ticks: ten of half a second.
const ENSEMBLE: EngineSpeed = EngineSpeed { stale: Duration::from_secs(6), ..ZOOKEEPER };

/// Another server of Redis takes the place of one that is lost some seconds later; until then nobody can be granted what it had, and
/// one that was cut off tells what had been.
const GROUP: EngineSpeed = EngineSpeed {
    ttl: Duration::from_secs(2),
    traces: Duration::from_secs(12),
    overdue: Duration::from_secs(8),
    stale: Duration::from_secs(12),
    ..FINE
};

impl EngineSpeed {
    /// Of the engine of this name.
    #[must_use]
    pub fn of(engine: &str) -> Self {
        if engine == "redis" || engine == redis::REDISSON {
            REDIS
        } else if engine.starts_with("etcd") {
            ETCD
        } else if engine == zookeeper::ENSEMBLE {
            ENSEMBLE
        } else if engine.starts_with("zookeeper") {
            ZOOKEEPER
        } else if [redis::SENTINEL, redis::CLUSTER, redis::REDLOCK].contains(&engine)
            || engine.starts_with(PEER_OF_THREE)
        {
            GROUP
        } else if engine == "sqlite" {
            SQLITE
        } else if engine == "postgres" {
            POSTGRES
        } else if engine == "mariadb" || engine == "mysql" {
            SQL
        } else {
            FINE
        }
    }
}
