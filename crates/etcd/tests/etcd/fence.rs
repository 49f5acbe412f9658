//! A fence refuses the writes of an overtaken holder.

use std::{
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

use leasehold_etcd::{Fence, Guarded, HeldBy};

use crate::rig::{Rig, acquire, first_token};

fn value(rig: &Rig, key: &str) -> String {
    rig.server.command(&["get", key, "--print-value-only"]).join("")
}

#[test]
fn a_stale_holder_cannot_write_once_the_next_has_sealed() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let fence = Fence::new(&rig.engine(), "stock");
    let stale = locks.mutex("a").ttl(Duration::from_secs(2)).renew(false).blocking().acquire().unwrap();
    let write = |token: u64, text: &str| {
        rig.run(fence.write(token, &[(b"stock".to_vec(), text.as_bytes().to_vec())])).unwrap()
    };
    assert!(matches!(write(stale.token().number, "10"), Guarded::Done(_)));
    let next = acquire(&other, "a");
    // F79: between the grant and the seal the stale holder may still write. After the seal, what was read does not
    // change.
    assert!(matches!(write(stale.token().number, "9"), Guarded::Done(_)));
    assert!(matches!(rig.run(fence.write(next.token().number, &[])), Ok(Guarded::Done(_))));
    assert_eq!(write(stale.token().number, "8"), Guarded::Overtaken(next.token().number));
    assert_eq!(value(&rig, "stock"), "9");
    assert!(matches!(write(next.token().number, "7"), Guarded::Done(_)));
    assert_eq!(value(&rig, "stock"), "7");
    let other_fence = Fence::new(&rig.engine(), "other");
    assert!(matches!(rig.run(other_fence.write(1, &[])), Ok(Guarded::Done(_))), "a fence of its own");
}

#[test]
fn a_transaction_that_compares_the_hold_fails_after_its_release() {
    let rig = Rig::new();
    let engine = rig.engine();
    let locks = leasehold_core::Locks::builder(engine.clone()).build();
    let guard = acquire(&locks, "a");
    let id = guard.id();
    let HeldBy { key, create_revision } = engine.held_by(id).unwrap();
    assert_eq!(first_token(create_revision as u64), guard.token().number);
    let key = String::from_utf8(key).unwrap();
    let txn = |text: &str| {
        let port = rig.server.port().to_string();
        let mut child = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &format!("127.0.0.1:{port}"), "txn"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = format!("create(\"{key}\") = \"{create_revision}\"\n\nput data {text}\n\n\n");
        child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    assert!(txn("first").starts_with("SUCCESS"));
    guard.release_blocking().unwrap();
    assert_eq!(engine.held_by(id), None);
    assert!(txn("second").starts_with("FAILURE"));
    assert_eq!(value(&rig, "data"), "first");
}
