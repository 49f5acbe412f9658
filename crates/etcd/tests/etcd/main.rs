//! The etcd engine on real servers.

#![expect(clippy::unwrap_used, reason = "tests")]

mod breaking;
mod conformance;
mod fence;
mod ghosts;
mod go;
mod interop;
mod leases;
mod rig;
