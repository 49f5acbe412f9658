//! The Redis engine against real servers.

#![expect(clippy::disallowed_methods, reason = "tests wait for real servers in real time")]

mod clocks;
mod conformance;
#[cfg(feature = "tls")]
mod encrypted;
mod foreign;
mod oracle;
mod outages;
mod proxied;
mod refusals;
mod rig;
mod sockets;
