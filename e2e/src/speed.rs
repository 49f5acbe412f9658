//! The time scale of an engine: the ttl of its leases, and how precisely it ends leases and reports their ends.

use std::time::Duration;

use leasehold_core::lock_state::{MAX_ENTRY_LIFE, MIN_ENTRY_LIFE};

use crate::{foreign_table, redis, round::PEER_OF_THREE, row, session, task::TTL, zookeeper};

/// The time scale of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineSpeed {
    /// The ttl of the clients' leases in a round. It is so short that the longest faults last longer.
    pub ttl: Duration,
    /// For how long the effects of faults may last after the faults: for one lease and two of the slowest poll
    /// intervals.
    pub recovery_time: Duration,
    /// The precision with which the server reports the end of a lease.
    pub precision: Duration,
    /// How much longer than its ttl a record can stay on the server.
    pub overdue: Duration,
    /// How much longer than asked for the result of work that is done one time may be kept.
    pub kept_longer: Duration,
    /// For how long a server that is cut off from the others may report old state to an admin client.
    pub stale: Duration,
    /// I7: how long a lock may be free while the claim of a live process waits.
    pub wake: Duration,
    /// How long a queue entry lasts, at least, after the last request of its claim.
    pub entry_life: Duration,
    /// How much longer than `wake` a waiter may wait after an event that sends no notification, such as the end of a
    /// minimum hold time.
    pub poll: Duration,
    /// The faults after which all holds of every process are in doubt until they are renewed.
    pub doubted_after: &'static [&'static str],
    /// The faults by which the server ends all holds.
    pub lost_by: &'static [&'static str],
    /// How long the server grants nothing after it started, although nobody holds the name.
    pub lock_delay: Duration,
    /// Whether the server ends the holds of a killed process at once.
    pub ends_with_process: bool,
    /// Whether a look at a lock by the admin client can make a try fail.
    pub looks_lock: bool,
    /// The faults by which one of several nodes loses locks, so that the nodes may not find a hold that is still valid.
    pub votes_lost_by: &'static [&'static str],
}

/// An engine with a precision of milliseconds.
const FINE: EngineSpeed = EngineSpeed {
    ttl: TTL,
    recovery_time: Duration::from_secs(3),
    precision: Duration::from_millis(2),
    overdue: Duration::ZERO,
    kept_longer: Duration::ZERO,
    stale: Duration::ZERO,
    wake: WAKE,
    entry_life: MIN_ENTRY_LIFE,
    poll: Duration::ZERO,
    doubted_after: &[],
    lost_by: &[],
    lock_delay: Duration::ZERO,
    ends_with_process: false,
    looks_lock: false,
    votes_lost_by: &[],
};

/// The slowest poll of a waiter without notifications.
const SLOWEST_POLL: Duration = Duration::from_secs(1);

/// The usual limit of I7: how long a lock may be free while the claim of a live process waits.
const WAKE: Duration = Duration::from_millis(250);

/// One Redis server. A client does not learn from its connection whether a restarted server still has the data that the
/// server acknowledged.
const REDIS: EngineSpeed =
    EngineSpeed { doubted_after: &[redis::RESTART], lost_by: redis::FORGETTING, ..FINE };

/// SQL servers. A claim that waits until a row is unlocked checks once a second whether the row still exists.
const SQL: EngineSpeed = EngineSpeed { poll: Duration::from_secs(1), ..FINE };

/// PostgreSQL. In addition to [`SQL`], a client that gets notifications refreshes its queue entry only twice a minute.
const POSTGRES: EngineSpeed = EngineSpeed { entry_life: MAX_ENTRY_LIFE, ..SQL };

/// SQLite. In addition to [`SQL`], processes that write to one database file have no queue: a waiter may find no moment
/// for a poll while other processes write.
const SQLITE: EngineSpeed = EngineSpeed { wake: Duration::from_secs(1), ..SQL };

/// Locks of sessions. One of the processes that wait for a name tries at intervals of up to a quarter of a second.
/// After a start of the server nothing is granted for the lock delay. MySQL and MariaDB report in whole seconds since
/// when they run, which can add a second.
const SESSION: EngineSpeed = EngineSpeed {
    recovery_time: Duration::from_secs(6),
    wake: WAKE.saturating_add(Duration::from_millis(250)),
    lost_by: session::LOST_BY,
    lock_delay: session::DELAY.saturating_add(Duration::from_secs(1)),
    ends_with_process: true,
    ..FINE
};

/// Rows of another program. Nothing notifies a waiter, and MariaDB grants nothing in its first two seconds.
const ROW: EngineSpeed = EngineSpeed {
    recovery_time: Duration::from_secs(5),
    wake: SLOWEST_POLL.saturating_add(WAKE),
    lost_by: session::LOST_BY,
    ends_with_process: true,
    looks_lock: true,
    ..FINE
};

/// Tables of other programs. Nothing notifies a waiter, and MariaDB grants nothing in its first two seconds.
const FOREIGN_TABLE: EngineSpeed =
    EngineSpeed { recovery_time: Duration::from_secs(5), wake: SLOWEST_POLL.saturating_add(WAKE), ..FINE };

/// etcd counts leases in full seconds and reports only complete seconds. It looks for expired leases twice a second. If
/// a minimum hold time is shorter than the shortest lease, and no client is left to end the hold, the name stays taken
/// for the length of the shortest lease. A restarted server gives every lease its full ttl again. Results share leases,
/// so they may be kept up to a minute longer.
const ETCD: EngineSpeed = EngineSpeed {
    ttl: Duration::from_secs(2),
    recovery_time: Duration::from_secs(8),
    precision: Duration::from_secs(1),
    overdue: Duration::from_secs(3),
    kept_longer: Duration::from_secs(60),
    stale: Duration::ZERO,
    wake: WAKE,
    entry_life: MIN_ENTRY_LIFE,
    poll: Duration::ZERO,
    doubted_after: &[],
    lost_by: &[],
    lock_delay: Duration::ZERO,
    ends_with_process: false,
    looks_lock: false,
    votes_lost_by: &[],
};

/// ZooKeeper ends sessions in steps of its tick, which is half a second in these rounds. After a start or an election,
/// which takes some seconds, it gives each session its full timeout again. It does not report the remaining time of a
/// session.
const ZOOKEEPER: EngineSpeed = EngineSpeed {
    ttl: Duration::from_secs(2),
    recovery_time: Duration::from_secs(12),
    precision: Duration::from_secs(1),
    overdue: Duration::from_secs(8),
    kept_longer: Duration::ZERO,
    stale: Duration::ZERO,
    wake: WAKE,
    entry_life: MIN_ENTRY_LIFE,
    poll: Duration::ZERO,
    doubted_after: &[],
    lost_by: &[],
    lock_delay: Duration::ZERO,
    ends_with_process: false,
    looks_lock: false,
    votes_lost_by: &[],
};

/// A ZooKeeper ensemble of three servers. A server that is cut off from the others answers reads until it notices that
/// it is cut off, after `syncLimit` ticks: ten ticks of half a second.
const ENSEMBLE: EngineSpeed = EngineSpeed { stale: Duration::from_secs(6), ..ZOOKEEPER };

/// A Redis replica takes over from a lost master some seconds later. Until then no lock of the lost master can be
/// granted, and a master that was cut off reports old state.
const GROUP: EngineSpeed = EngineSpeed {
    ttl: Duration::from_secs(2),
    recovery_time: Duration::from_secs(12),
    overdue: Duration::from_secs(8),
    stale: Duration::from_secs(12),
    ..FINE
};

/// A Redlock has the time scale of [`GROUP`]. In addition, a hold may depend on the votes of exactly two of three
/// nodes. If one of these two loses its locks, the hold is lost:
/// its next renewal finds no majority.
const REDLOCK: EngineSpeed = EngineSpeed { votes_lost_by: redis::VOTES_LOST_BY, ..GROUP };

impl EngineSpeed {
    /// The time scale of the engine of this name.
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
        } else if engine == redis::REDLOCK {
            REDLOCK
        } else if [redis::SENTINEL, redis::CLUSTER].contains(&engine) || engine.starts_with(PEER_OF_THREE) {
            GROUP
        } else if engine == "sqlite" {
            SQLITE
        } else if [session::POSTGRES, session::MARIADB, session::MYSQL].contains(&engine) {
            SESSION
        } else if [row::POSTGRES, row::MARIADB].contains(&engine) {
            ROW
        } else if [foreign_table::SHEDLOCK, foreign_table::INSERT].contains(&engine) {
            FOREIGN_TABLE
        } else if engine == "postgres" {
            POSTGRES
        } else if engine == "mariadb" || engine == "mysql" {
            SQL
        } else {
            FINE
        }
    }
}
