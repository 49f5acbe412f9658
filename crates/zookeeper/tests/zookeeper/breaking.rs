//! Breaking holds, and checks that bind other changes to a hold.

use std::time::Duration;

use leasehold_core::{Answer, Broken, Engine, HAND_OVER_TOKENS, How, Locks};
use leasehold_testkit::scenarios::break_is_reported_at_once;

use crate::{
    peers::Program,
    rig::{PATIENCE, Rig, acquire},
};

/// The next renewal of the holder is far away; the holder watches its node.
#[test]
fn a_holder_is_notified_at_once_of_a_break() {
    let rig = Rig::new();
    let (locks, operator) = (rig.locks(), rig.locks());
    let guard = break_is_reported_at_once(&locks, &operator, &rig.runtime);
    assert!(guard.release_blocking().is_err());
    acquire(&operator, "a").release_blocking().unwrap();
}

#[test]
fn a_hold_of_several_permits_is_broken_as_one() {
    let rig = Rig::new();
    let (locks, operator) = (rig.locks(), rig.locks());
    for force in [false, true] {
        // A hold that is broken without force may last until the end of its ttl.
        let ttl = Duration::from_secs(if force { 30 } else { 6 });
        let guard = locks.semaphore("p", 3).permits(2).ttl(ttl).blocking().acquire().unwrap();
        let token = guard.token().number;
        assert_eq!(
            rig.run(operator.break_hold("p", token + u64::from(HAND_OVER_TOKENS), force)).unwrap(),
            Broken::NotHeld
        );
        assert_eq!(rig.run(operator.break_hold("p", token, force)).unwrap(), Broken::Done);
        rig.run(async { tokio::time::timeout(PATIENCE, guard.lost()).await }).unwrap();
        operator.semaphore("p", 3).permits(3).blocking().acquire().unwrap().release_blocking().unwrap();
    }
}

#[test]
fn a_foreign_hold_is_broken_by_force_only() {
    let rig = Rig::new();
    let locks = rig.locks();
    let mut curator = Program::curator(&format!("127.0.0.1:{}", rig.server.port()), 30_000);
    curator.send("lock t /locks/a");
    curator.expect_locked("t");
    let token = rig.show("a").holders[0].token.unwrap();
    let error = rig.run(locks.break_hold("a", token, false)).unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("--force"), "{error}");
    assert_eq!(rig.run(locks.break_hold("a", token, true)).unwrap(), Broken::Done);
    acquire(&locks, "a").release_blocking().unwrap();
    curator.quit();
}

/// The user's own client, which knows nothing of locks, changes data under the lock.
#[test]
fn a_multi_with_the_check_of_a_hold_needs_the_hold() {
    let rig = Rig::new();
    let engine = rig.engine();
    let claim = rig.claim("a");
    rig.server.command(&["create", "/stock", "100"]);
    rig.run(async {
        assert!(engine.held_by(claim.id).is_none());
        assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Held(_))));
    });
    let check = engine.held_by(claim.id).unwrap();
    let mut kazoo = Program::kazoo(&format!("127.0.0.1:{}", rig.server.port()), 30_000);
    let change = |value| format!("change /stock {value} {} {}", check.path, check.version);
    assert_eq!(kazoo.ask(&change(99)), "changed");
    // The hold is broken, although its holder has not released it yet.
    let operator: Locks = rig.locks();
    let token = rig.show("a").holders[0].token.unwrap();
    rig.run(operator.break_hold("a", token, false)).unwrap();
    assert_eq!(kazoo.ask(&change(98)), "refused BadVersionError");
    rig.run(async { engine.release(&crate::rig::release_of(&claim)).await });
    assert_eq!(kazoo.ask(&change(97)), "refused NoNodeError");
    assert_eq!(kazoo.ask("read-data /stock"), "data 99");
    kazoo.quit();
}
