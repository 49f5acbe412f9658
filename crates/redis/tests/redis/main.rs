//! The Redis engine against real servers.

mod conformance;
mod rig;
