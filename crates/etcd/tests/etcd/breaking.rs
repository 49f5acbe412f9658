//! Holds that an operator breaks.

use std::time::Duration;

use leasehold_core::{Broken, Guard, HAND_OVER_TOKENS, Locks, Loss};
use leasehold_testkit::scenarios::break_is_reported_at_once;

use crate::{
    go::Program,
    rig::{PATIENCE, Rig, acquire, first_token},
};

/// A holder whose next renewal is far away is notified at once, by the epoch key of its lease.
#[test]
fn a_holder_is_notified_at_once_of_a_break() {
    let rig = Rig::new();
    let (locks, operator) = (rig.locks(), rig.locks());
    let guard = break_is_reported_at_once(&locks, &operator, &rig.runtime);
    assert!(
        operator.mutex("a").blocking().try_acquire().unwrap_err().is_taken(),
        "its holder has not released it"
    );
    assert!(guard.release_blocking().is_err());
    acquire(&operator, "a").release_blocking().unwrap();
}

#[test]
fn a_foreign_hold_is_broken_at_once_only_with_force() {
    let rig = Rig::new();
    let locks = rig.locks();
    let mut go = Program::start(rig.server.port(), 3);
    go.send("lock /locks/a");
    let token = first_token(go.read_locked().1);
    let of_next_revision = token + u64::from(HAND_OVER_TOKENS);
    assert_eq!(rig.run(locks.break_hold("a", of_next_revision, true)).unwrap(), Broken::NotHeld);
    assert_eq!(rig.run(locks.break_hold("a", token, false)).unwrap(), Broken::Done);
    assert!(locks.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    // The program that holds keeps its lease alive; its broken hold ends all the same.
    acquire(&locks, "a").release_blocking().unwrap();
    assert_eq!(go.ask("owner /locks/a"), "owner false");
    assert_eq!(go.ask("unlock /locks/a"), "unlocked");
    go.send("lock /locks/a");
    let token = first_token(go.read_locked().1);
    assert_eq!(rig.run(locks.break_hold("a", token, true)).unwrap(), Broken::Done);
    acquire(&locks, "a").release_blocking().unwrap();
    go.quit();
}

#[test]
fn a_key_without_a_lease_is_broken_only_with_force() {
    let rig = Rig::new();
    let locks = rig.locks();
    rig.server.command(&["put", "/locks/a/stuck", ""]);
    let token = rig.show("a").holders[0].token.unwrap();
    let error = rig.run(locks.break_hold("a", token, false)).unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("--force"), "{error}");
    assert_eq!(rig.run(locks.break_hold("a", token, true)).unwrap(), Broken::Done);
    acquire(&locks, "a").release_blocking().unwrap();
}

/// R13: the next renewal is hours away, and the name is free meanwhile.
#[test]
fn a_deleted_key_is_reported_as_a_loss_at_once() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let locks = Locks::builder(engine).build();
    let day = Duration::from_secs(24 * 3600);
    let hold = |name: &str| locks.mutex(name).ttl(day).blocking().acquire_within(PATIENCE).unwrap();
    let delete = |name: &str| drop(rig.server.command(&["del", &format!("/locks/{name}/"), "--prefix"]));
    let expect_loss = |guard: &Guard, when: &str| {
        let lost = rig.run(async { tokio::time::timeout(PATIENCE, guard.lost()).await });
        assert_eq!(lost.ok(), Some(Loss::Gone), "{when}");
        assert!(!guard.check(), "{when}");
    };
    let (early, late, after) = (hold("early"), hold("late"), hold("after"));
    delete("early");
    expect_loss(&early, "deleted before or while the watch of its key starts");
    delete("late");
    expect_loss(&late, "deleted while its key is watched");
    let connections_before = proxy.connections();
    proxy.reset();
    rig.until("the client reconnects", || proxy.connections() > connections_before);
    delete("after");
    expect_loss(&after, "deleted after a reconnect");
}
