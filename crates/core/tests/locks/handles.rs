//! Holds that outlast their guards, on paused time.

use std::time::Duration;

use leasehold_core::{Handle, Loss, Previous};
use leasehold_testkit::decorators::{Fault, Verb};
use tokio::time;

use crate::{
    altered::Altered,
    cleanup::{new_client, new_store, paused_runtime},
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_hold_that_is_left_is_neither_renewed_nor_released() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, _, counting) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(9 * SECOND).acquire().await.unwrap();
        let remaining = guard.remaining().unwrap();
        let handle = guard.into_handle().unwrap();
        time::sleep(remaining - SECOND).await;
        assert_eq!((counting.count(Verb::Renew).calls, counting.count(Verb::Release).calls), (0, 0));
        assert!(locks.mutex("x").try_acquire().await.unwrap_err().is_taken());
        time::sleep(2 * SECOND).await;
        assert!(locks.resume(&handle).await.unwrap_err().is_lost());
        let next = locks.mutex("x").try_acquire().await.unwrap();
        assert_eq!(next.previous(), Previous::Lapsed);
        assert!(next.token() > handle.token());
    });
}

#[test]
fn a_resumed_hold_is_renewed_until_its_guard_ends() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let (other, _, counting) = new_client(&store, &env);
        let handle = locks.mutex("x").ttl(9 * SECOND).acquire().await.unwrap().into_handle().unwrap();
        assert_eq!(locks.close(SECOND).await, 0, "nothing of it is left in the process");
        let guard = other.resume(&handle.with_ttl(30 * SECOND)).await.unwrap();
        assert!(guard.remaining().unwrap() > 20 * SECOND);
        let lost = guard.lost();
        assert!(time::timeout(100 * SECOND, lost).await.is_err(), "it is renewed");
        assert!(guard.check() && counting.count(Verb::Renew).calls > 3);
        guard.release().await.unwrap();
        let next = other.mutex("x").try_acquire().await.unwrap();
        assert_eq!(next.previous(), Previous::Clean);
    });
}

/// Its release and that of the first guard would be the release of one hold.
#[test]
fn a_hold_that_a_guard_has_is_not_resumed() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let guard = locks.mutex("x").acquire().await.unwrap();
        assert!(locks.resume(&guard.handle()).await.unwrap_err().is_invalid());
        assert!(guard.check());
        guard.release().await.unwrap();
    });
}

/// A hand-over keeps the claim and the token by which the engine recognises the hold.
#[test]
fn a_handle_does_not_name_the_hold_of_the_next_guard() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let (other, ..) = new_client(&store, &env);
        let guard = locks.mutex("x").acquire().await.unwrap();
        let mut waiting = Box::pin(locks.mutex("x").acquire());
        assert!(time::timeout(SECOND / 1000, &mut waiting).await.is_err());
        let handle = guard.handle();
        guard.release().await.unwrap();
        let next = waiting.await.unwrap();
        assert_ne!(next.id(), handle.id());
        assert!(other.release_handle(&handle).await.unwrap_err().is_lost());
        next.confirm().await.unwrap();

        let reader = locks.rw("y").read().acquire().await.unwrap();
        let handle = reader.handle();
        let joined = locks.rw("y").read().acquire().await.unwrap();
        other.release_handle(&handle).await.unwrap();
        joined.confirm().await.unwrap();
        assert!(reader.confirm().await.unwrap_err().is_lost());
    });
}

#[test]
fn a_lost_release_by_handle_is_sent_again() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let (other, faulty, _) = new_client(&store, &env);
        let handle = locks.mutex("x").acquire().await.unwrap().into_handle().unwrap();
        faulty.next(Verb::Release, Fault::RequestLost);
        other.release_handle(&handle).await.unwrap();
        assert_eq!(faulty.pending(), 0);
        assert!(locks.mutex("x").try_acquire().await.is_ok());
    });
}

#[test]
fn a_request_of_the_process_waits_on_the_engine_for_the_hold_that_was_left() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let (other, ..) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(60 * SECOND).acquire().await.unwrap();
        let mut waiting = Box::pin(locks.mutex("x").ttl(60 * SECOND).acquire());
        assert!(time::timeout(SECOND / 1000, &mut waiting).await.is_err());
        let handle = guard.into_handle().unwrap();
        assert!(time::timeout(SECOND, &mut waiting).await.is_err(), "the hold is not handed over");
        other.resume(&handle).await.unwrap().release().await.unwrap();
        let granted = time::timeout(10 * SECOND, waiting).await.unwrap().unwrap();
        assert!(granted.token() > handle.token());
    });
}

#[test]
fn a_guard_that_shares_its_hold_has_no_handle_to_leave() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let owner = leasehold_core::Owner::new("importer");
        let outer = owner.enter(locks.mutex("x")).await.unwrap();
        let inner = owner.enter(locks.mutex("x")).await.unwrap();
        assert!(inner.into_handle().unwrap_err().is_invalid());
        assert!(outer.check() && outer.entries() == 1, "the other guard keeps the hold");
        outer.into_handle().unwrap();
    });
}

#[test]
fn a_lost_hold_has_no_handle_to_leave() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(SECOND).renew(false).acquire().await.unwrap();
        assert_eq!(guard.lost().await, Loss::Lapsed);
        assert!(guard.into_handle().unwrap_err().is_lost());
    });
}

#[test]
fn wrong_handles_are_refused_before_anything_is_sent() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, _, counting) = new_client(&store, &env);
        let handle = locks.mutex("x").acquire().await.unwrap().into_handle().unwrap();
        let elsewhere: Handle = in_other_engine(&handle);
        for wrong in
            [handle.clone().with_ttl(Duration::ZERO), handle.clone().with_ttl(Duration::MAX / 4), elsewhere]
        {
            assert!(locks.resume(&wrong).await.unwrap_err().is_invalid(), "{wrong:?}");
        }
        let no_handles = Altered::new(&store, |profile| profile.no_handles = Some("it is a test"));
        let refusing = leasehold_core::Locks::builder(std::sync::Arc::new(no_handles)).env(env).build();
        let error = refusing.resume(&handle).await.unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("it is a test"), "{error}");
        assert_eq!(counting.count(Verb::Renew).calls, 0);
        locks.resume(&handle).await.unwrap().release().await.unwrap();
    });
}

/// The same handle, of an engine that does not exist.
fn in_other_engine(handle: &Handle) -> Handle {
    // The test computes the sum of the changed fields as the handle does.
    let text = handle.to_string().replacen(".memory.", ".another.", 1);
    let fields = format!("{}\n", text[13..].replace('.', "\n"));
    let sum =
        fields.bytes().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{}{sum:08x}{}", &text[..4], &text[12..]).parse().unwrap()
}
