//! Tests of the ZooKeeper engine on real servers.

#![expect(clippy::disallowed_methods, reason = "tests wait for real servers in real time")]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod breaking;
mod conformance;
mod diagnose;
mod fake_server;
mod hand_over;
mod interop;
mod large;
mod latch;
mod late_requests;
mod memo_ends;
mod memo_rights;
mod memos;
mod names;
mod neighbours;
mod oracle;
mod outages;
mod peers;
mod plain;
mod plain_faults;
mod plain_names_again;
mod raw_client;
mod relay;
mod rig;
mod rights;
mod sessions;
mod sets;
mod tries;
