//! The PostgreSQL engine against real servers.

#![cfg(all(feature = "postgres", feature = "tls"))]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod altered;
mod clocks;
mod conformance;
mod crowd;
mod diagnose;
mod encrypted;
mod failover;
mod fake_server;
#[path = "../few_connections/mod.rs"]
mod few_connections;
#[macro_use]
#[path = "../foreign/mod.rs"]
mod foreign;
mod foreign_tables;
#[path = "../harness/mod.rs"]
mod harness;
mod hostile;
mod hostile_holds;
mod hosts;
mod looks;
mod many;
mod max_connections;
mod memos;
mod names;
mod oracle;
mod outages;
#[path = "../page/mod.rs"]
mod page;
mod password;
mod pooler;
mod rig;
mod rights;
mod room;
mod session;
mod sets;
mod slots;
mod statements;
#[path = "../until/mod.rs"]
mod until;
mod warm;
