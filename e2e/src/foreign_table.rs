//! Tables of other programs (`layout=`): rows that lapse, as ShedLock has them, on PostgreSQL, and rows without a time
//! and without an owner (`layout=insert`) on MariaDB. The label without a finding is lease-bounded or exact, so every
//! round requires exclusion, whatever happens to servers, sessions and clients.

mod insert;
mod shedlock;

pub use insert::Inserted;
pub use shedlock::Shedlock;

/// The name of the engine on the table of ShedLock.
pub const SHEDLOCK: &str = "postgres-shedlock";
/// The name of the engine on inserted rows.
pub const INSERT: &str = "mariadb-insert";
