//! The ids of the diagnostics of PostgreSQL. Each has a section in `docs/doctor.md`.

pub(crate) const ID_AUTOVACUUM: &str = "postgres-autovacuum";
pub(crate) const ID_CLOCK: &str = "postgres-clock";
pub(crate) const ID_CONNECTIONS: &str = "postgres-connections";
pub(crate) const ID_IDLE_SESSIONS: &str = "postgres-idle-sessions";
pub(crate) const ID_LISTEN_URL: &str = "postgres-listen-url";
pub(crate) const ID_LOCK_ROOM: &str = "postgres-lock-room";
pub(crate) const ID_MEMOS: &str = "postgres-memos";
pub(crate) const ID_POOLER: &str = "postgres-pooler";
pub(crate) const ID_PRIMARIES: &str = "postgres-primaries";
pub(crate) const ID_REPLICAS: &str = "postgres-replicas";
pub(crate) const ID_RIGHTS: &str = "postgres-rights";
pub(crate) const ID_ROLE: &str = "postgres-role";
pub(crate) const ID_SERVER: &str = "postgres-server";
pub(crate) const ID_TABLE_LOCKS: &str = "postgres-table-locks";
pub(crate) const ID_TABLES: &str = "postgres-tables";
pub(crate) const ID_TLS: &str = "postgres-tls";
pub(crate) const ID_TRANSACTIONS: &str = "postgres-transactions";
pub(crate) const ID_VERSION: &str = "postgres-version";
