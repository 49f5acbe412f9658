//! Tests that several engines share beside the suite. Each engine adds its own setup and its own checks.

use std::time::Duration;

use leasehold_core::{Answer, Broken, Claim, Engine, Guard, How, Locks, Loss, Notification};
use tokio::{runtime::Runtime, time::timeout};

use crate::{
    claims::release_of,
    rig::{PATIENCE, acquire},
};

/// A claim of `other` waits behind two claims of `engine`: the holder and a waiter. This waiter gives up. The claim of
/// `other` must be notified; when it asks, it must not be granted (invariant I1: exclusion).
///
/// # Panics
/// If the claim of `other` is not notified, or is granted.
pub async fn waiter_ahead_gives_up(
    engine: &dyn Engine,
    other: &dyn Engine,
    (held, leaves, stays): (&Claim, &Claim, &Claim),
) {
    assert!(matches!(engine.claim(held, How::Create).await, Ok(Answer::Held(_))));
    assert!(matches!(engine.claim(leaves, How::Create).await, Ok(Answer::Waiting(_))));
    assert!(matches!(other.claim(stays, How::Create).await, Ok(Answer::Waiting(_))));
    engine.release(&release_of(leaves)).await;
    let notification = timeout(PATIENCE, other.notifications()).await.expect("the waiter is notified");
    assert!(
        matches!(&notification[..], [Notification::Recheck { id, .. }] if *id == stays.id),
        "{notification:?}"
    );
    assert!(matches!(other.claim(stays, How::Ask).await, Ok(Answer::Waiting(_))));
}

/// An operator breaks a hold of `a` whose next renewal is due in twenty minutes. The holder must be notified at once,
/// and another hold on the same lease or session must stay. Returns the guard of the broken hold.
///
/// # Panics
/// If the holder is not notified, or the other hold does not stay.
pub fn break_is_reported_at_once(locks: &Locks, operator: &Locks, runtime: &Runtime) -> Guard {
    let acquired = locks.mutex("a").ttl(Duration::from_secs(3600)).blocking().acquire();
    let guard = acquired.expect("the name is free");
    let other = acquire(locks, "b");
    let token = guard.token().number;
    let broken = runtime.block_on(operator.break_hold("a", token, false));
    assert_eq!(broken.expect("it is held"), Broken::Done);
    let lost = runtime.block_on(async { timeout(PATIENCE, guard.lost()).await });
    assert_eq!(lost.expect("the loss is reported"), Loss::Broken);
    assert!(other.check(), "another hold on the same lease stays");
    guard
}
