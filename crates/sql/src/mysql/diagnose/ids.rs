//! The ids of the diagnostics of MySQL and MariaDB. Each has a section in `docs/doctor.md`.

pub(crate) const ID_CLOCK: &str = "mysql-clock";
pub(crate) const ID_CONNECTIONS: &str = "mysql-connections";
pub(crate) const ID_GALERA: &str = "mysql-galera";
pub(crate) const ID_PROXY: &str = "mysql-proxy";
pub(crate) const ID_REPLICAS: &str = "mysql-replicas";
pub(crate) const ID_RIGHTS: &str = "mysql-rights";
pub(crate) const ID_ROLE: &str = "mysql-role";
pub(crate) const ID_TABLE_LOCKS: &str = "mysql-table-locks";
pub(crate) const ID_TABLES: &str = "mysql-tables";
pub(crate) const ID_TLS: &str = "mysql-tls";
pub(crate) const ID_TRANSACTIONS: &str = "mysql-transactions";
pub(crate) const ID_VERSION: &str = "mysql-version";
