//! Tests of the Redis engine on real servers.

#![expect(clippy::disallowed_methods, reason = "tests wait for real servers in real time")]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod clocks;
mod cluster;
mod cluster_addresses;
mod cluster_failover;
mod cluster_groups;
mod cluster_migrating;
mod cluster_options;
mod cluster_rig;
mod cluster_slots;
mod conformance;
mod counter;
mod diagnoses;
mod diagnoses_of_several;
#[cfg(feature = "tls")]
mod encrypted;
mod fake_server;
mod fast_path;
mod fast_path_effects;
mod fence;
mod foreign;
mod foreign_types;
mod huge;
mod memos;
mod neighbours;
mod oracle;
mod outages;
mod promoted;
mod proxied;
mod readers;
mod redisson;
mod redisson_conformance;
mod redisson_foreign;
mod redisson_readers;
mod redisson_rig;
mod redlock;
mod redlock_faults;
mod redlock_oracle;
mod redlock_refusals;
mod redlock_rig;
mod refusals;
mod relied_holds;
mod replaced;
mod replicated;
mod rig;
mod sentinel;
mod sentinel_failovers;
mod sentinel_rig;
mod sets;
mod sockets;
mod stale_deadlines;
mod stops;
mod tampering;
mod wakes;
