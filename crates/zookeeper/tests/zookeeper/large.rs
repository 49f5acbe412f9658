//! Other programs may write data of any size into their nodes.

use crate::{
    raw_client::{Kind, LONG_SESSION_MILLIS, RawClient},
    rig::{Rig, acquire},
};

/// More bytes than an answer may have.
const HUGE_BYTES: usize = 65 << 20;

#[test]
fn a_node_longer_than_any_answer_counts_as_a_claim() {
    let rig = Rig::with(&["-Djute.maxbuffer=100000000", "-Xmx800m"]);
    let locks = rig.locks();
    let (_first_name, _last_name) = (acquire(&locks, "aaa"), acquire(&locks, "zzz"));
    rig.server.command(&["create", "/locks/big"]);
    // The server's own command line cannot send so much data.
    let mut client = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    for (number, length) in [(0, HUGE_BYTES), (1, 1000)] {
        let path =
            format!("/locks/big/_c_00000000-0000-0000-0000-00000000000{number}-lock-000000000{number}");
        client.create(&path, &vec![b'x'; length], Kind::Ephemeral);
    }
    let views = rig.run(locks.list("")).unwrap();
    let names: Vec<_> = views.iter().map(|view| (view.name.as_str(), view.holders[0].foreign)).collect();
    assert_eq!(names, [("aaa", false), ("big", true), ("zzz", false)]);
    let shown = rig.run(locks.show("big")).unwrap();
    assert_eq!(shown.waiters[0].owner, "x".repeat(128) + "…");
    assert!(locks.mutex("big").blocking().try_acquire().unwrap_err().is_taken());
}
