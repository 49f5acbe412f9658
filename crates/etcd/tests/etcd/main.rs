//! The etcd engine on real servers.

#![expect(clippy::unwrap_used, reason = "tests")]

mod conformance;
mod rig;
