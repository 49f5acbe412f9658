//! Locks of sessions (`hold=session`) on PostgreSQL, MariaDB and MySQL.
//!
//! A lock is free as soon as the server ends its session. So the pages of these engines promise exclusion as long as
//! the server ends a session only after its process has ended, or after a restart: then nothing is granted for the lock
//! delay, which is longer than any hold. A process whose session was ended in another way (an operator, a proxy that
//! closes the connection) may rely on its hold until it is told. Two kinds of rounds check this:
//!
//! - Odd seeds require exclusion. Processes are stopped and killed, the network is silent or late, servers are stopped
//!   and restarted, with the lock delay `DELAY`. The label of this delay is best effort, because the engine does not
//!   know that no client of a round asks for a ttl of more than a second: such holds are as short against the delay as
//!   holds of 15 s are against the default delay.
//! - Even seeds require no exclusion. Operators end sessions, connections are cut, and servers restart without a lock
//!   delay. A hold of an ended session is invalid within its ttl, and the fence holds.

mod mysql;
mod postgres;

use std::time::Duration;

pub use mysql::Sessions as MysqlSessions;
pub use postgres::Sessions as PostgresSessions;

use crate::world::Promise;

/// The name of the engine on PostgreSQL.
pub const POSTGRES: &str = "postgres-session";
/// The name of the engine on MariaDB.
pub const MARIADB: &str = "mariadb-session";
/// The name of the engine on MySQL.
pub const MYSQL: &str = "mysql-session";

/// The lock delay of rounds that require exclusion: longer than the ttl of their holds.
pub(crate) const DELAY: Duration = Duration::from_secs(2);

/// The faults by which all sessions end, and all holds with them.
pub(crate) const LOST_BY: &[&str] = &[RESTART, ENDED];
pub(crate) const RESTART: &str = "server restarts";
pub(crate) const ENDED: &str = "sessions ended";

/// The promise of the round with this seed.
#[must_use]
pub const fn promise_of(seed: u64) -> Promise {
    if seed.is_multiple_of(2) { Promise::Fence } else { Promise::Exclusion }
}

/// The options of the URL for a round with this promise.
fn options(promise: Promise) -> String {
    format!("hold=session&delay={}s", delay(promise).as_secs())
}

/// The text by which the guarantee reports the lock delay.
fn finding(promise: Promise) -> String {
    format!("delay is {:?}", delay(promise))
}

fn delay(promise: Promise) -> Duration {
    if promise == Promise::Exclusion { DELAY } else { Duration::ZERO }
}
