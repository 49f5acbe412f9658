//! The etcd engine on real servers.

#![expect(clippy::disallowed_methods, reason = "tests wait for real servers in real time")]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod breaking;
mod by_hand;
mod conformance;
mod contended;
mod diagnoses;
mod elections;
mod fake_server;
mod fence;
mod go;
mod hand_over;
mod interop;
mod large;
mod late_requests;
mod leases;
mod lock_key_answers;
mod lock_keys;
mod memo_leases;
mod memos;
mod min_hold;
mod oracle;
mod outages;
mod rig;
mod rights;
mod sets;
mod watches;
