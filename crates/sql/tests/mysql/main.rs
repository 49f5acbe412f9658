//! The MySQL engine against real servers: MariaDB, or the MySQL that `LEASEHOLD_TEST_SYSTEM` names. Tests that differ
//! between the two ask [`rig::is_mysql`].

#![cfg(feature = "mysql")]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod altered;
mod clocks;
mod conformance;
mod crowd;
mod diagnose;
#[cfg(feature = "tls")]
mod encrypted;
mod fake_server;
#[path = "../few_connections/mod.rs"]
mod few_connections;
mod first_second;
#[macro_use]
#[path = "../foreign/mod.rs"]
mod foreign;
mod foreign_servers;
mod foreign_tables;
mod guarantee;
#[path = "../harness/mod.rs"]
mod harness;
mod hostile;
mod lineage;
mod looks;
mod max_connections;
mod memos;
mod names;
mod oracle;
mod outages;
#[path = "../page/mod.rs"]
mod page;
mod password;
mod prepared;
mod rig;
mod rights;
mod room;
mod sessions;
mod sets;
mod slots;
mod unknown;
#[path = "../until/mod.rs"]
mod until;
