//! The Redis engine against real servers.

#![expect(clippy::disallowed_methods, reason = "tests wait for real servers in real time")]

mod conformance;
mod oracle;
mod rig;
