//! Holds in rows of other programs (`hold=row`), on real servers, beside the statements of those programs.

#![cfg(all(feature = "postgres", feature = "mysql"))]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

#[macro_use]
mod suite;
mod mysql;
mod postgres;
mod rig;
#[path = "../until/mod.rs"]
mod until;
