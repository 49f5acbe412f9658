//! The SQLite engine on real files.

#![cfg(feature = "sqlite")]
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests")]

mod altered;
mod busy;
mod client;
mod conformance;
#[path = "../harness/mod.rs"]
mod harness;
mod helper;
mod hostile;
mod memos;
mod names;
mod oracle;
#[path = "../page/mod.rs"]
mod page;
mod path;
mod prefixed;
mod processes;
mod quiet;
mod replaced;
mod rig;
mod room;
mod sets;
mod tables;
#[path = "../until/mod.rs"]
mod until;
