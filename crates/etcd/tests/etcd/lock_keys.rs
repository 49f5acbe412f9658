//! `layout=key`: the lock of a name is one key, which other programs write too.

use std::time::Duration;

use leasehold_core::{
    Answer, Broken, Claim, Engine, Fault, Guard, How, Inspect, Locks, Loss, Mode, Notification, Released,
    Watched, notices,
};
use leasehold_testkit::scenarios::break_is_reported_at_once;

use crate::rig::{PATIENCE, Rig, SMALL_DATABASE, acquire, release_of};

/// A time limit for a wait that must end without a grant.
const SOON: Duration = Duration::from_millis(300);

fn expect_loss(rig: &Rig, guard: &Guard, when: &str) {
    let lost = rig.run(async { tokio::time::timeout(PATIENCE, guard.lost()).await });
    assert_eq!(lost.ok(), Some(Loss::Gone), "{when}");
    assert!(!guard.check(), "{when}");
}

#[test]
fn waiters_are_told_that_a_key_has_no_lease_and_break_ends_it() {
    let rig = Rig::with_lock_keys("");
    let locks = rig.locks();
    rig.server.command(&["put", "/stuck", "locked"]);
    let request = locks.mutex("/stuck").blocking();
    for error in [request.try_acquire().unwrap_err(), request.acquire_within(SOON).unwrap_err()] {
        assert!(error.is_misconfigured() && error.to_string().contains("has no lease"), "{error}");
    }
    let holder = rig.show("/stuck").holders.remove(0);
    assert!(holder.foreign && holder.remaining.is_none(), "no expiry: {holder:?}");
    assert_eq!(rig.keys(), ["/stuck"], "the failed attempts leave nothing");

    let waiting = std::thread::spawn(move || request.acquire_within(PATIENCE));
    rig.until("it is queued", || rig.show("/stuck").waiters.len() == 1);
    let token = holder.token.unwrap();
    let error = rig.run(locks.break_hold("/stuck", token, false)).unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("--force"), "{error}");
    assert_eq!(rig.run(locks.break_hold("/stuck", token, true)).unwrap(), Broken::Done);
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
}

/// The claim behind the head of the queue does not wait for its next poll, nor for the end of the next hold.
#[test]
fn a_claim_behind_the_head_is_told_that_a_key_without_a_lease_is_gone() {
    let rig = Rig::with_lock_keys("");
    let (first_engine, engine) = (rig.engine(), rig.engine());
    rig.server.command(&["put", "/a", "theirs"]);
    let day = Duration::from_secs(24 * 3600);
    let (head, second) = (Claim { ttl: day, claim_time: day, ..rig.claim("/a") }, rig.claim("/a"));
    assert!(matches!(rig.run(first_engine.claim(&head, How::Create)), Ok(Answer::Waiting(_))));
    let obstacle = |how| match rig.run(engine.claim(&second, how)) {
        Ok(Answer::Waiting(hint)) => hint.obstacle,
        other => panic!("it waits: {other:?}"),
    };
    assert!(obstacle(How::Create).is_some());
    rig.server.command(&["del", "/a"]);
    let asked =
        async {
            while !engine.notifications().await.iter().any(
                |notification| matches!(notification, Notification::Recheck { id, .. } if *id == second.id),
            ) {}
        };
    rig.run(async { tokio::time::timeout(PATIENCE, asked).await }).expect("it is to ask again");
    assert_eq!(obstacle(How::Ask), None);
}

/// The watch of a prefix does not see the lock key, which the grant after a release creates.
#[test]
fn a_view_of_a_prefix_is_told_a_second_time_of_each_change() {
    let rig = Rig::with_lock_keys("");
    let (engine, watched) = (rig.engine(), Watched::Prefix(String::new()));
    let (sender, mut told) = notices();
    let telling = rig.runtime.spawn(async move { engine.tell_changes(&watched, &sender).await });
    rig.until("the watch has begun", || told.are_pushed());
    told.take();
    rig.server.command(&["put", "leasehold//key/a/queue/1", ""]);
    for when in ["at once", "a moment later"] {
        rig.run(async { tokio::time::timeout(PATIENCE, told.changed()).await }).expect(when);
    }
    telling.abort();
}

/// The next renewal is hours away.
#[test]
fn a_lock_key_that_another_program_deletes_or_overwrites_is_reported_as_a_loss() {
    let rig = Rig::with_lock_keys("");
    let locks = rig.locks();
    let day = Duration::from_secs(24 * 3600);
    let hold = |name: &str| locks.mutex(name).ttl(day).blocking().acquire_within(PATIENCE).unwrap();
    let (deleted, overwritten) = (hold("/deleted"), hold("/overwritten"));
    rig.server.command(&["del", "/deleted"]);
    expect_loss(&rig, &deleted, "another program deleted the key");
    rig.server.command(&["put", "/overwritten", "theirs"]);
    expect_loss(&rig, &overwritten, "another program wrote the key");
    // The other program may rely on what it wrote.
    assert!(overwritten.release_blocking().is_err());
    assert_eq!(rig.server.command(&["get", "/overwritten", "--print-value-only"]), ["theirs"]);
    assert!(locks.mutex("/overwritten").blocking().try_acquire().is_err());
    assert!(deleted.release_blocking().is_err());
    acquire(&locks, "/deleted").release_blocking().unwrap();
    assert_eq!(rig.keys(), ["/overwritten"]);
}

/// A renewal reads the key too, in case the report of the write was lost.
#[test]
fn a_renewal_detects_that_another_program_wrote_the_lock_key() {
    expect_loss_at_renewal(|rig| drop(rig.server.command(&["put", "/a", "theirs", "--ignore-lease"])));
}

/// The write keeps the value, and the key has no lease then.
#[test]
fn a_renewal_detects_that_the_lock_key_left_its_lease() {
    expect_loss_at_renewal(|rig| drop(rig.server.command(&["put", "/a", "--ignore-value"])));
}

fn expect_loss_at_renewal(write: impl Fn(&Rig)) {
    let rig = Rig::with_lock_keys("");
    let (engine, claim) = (rig.engine(), rig.claim("/a"));
    let Ok(Answer::Held(grant)) = rig.run(engine.claim(&claim, How::Create)) else { panic!("it is free") };
    let hold = leasehold_core::Hold {
        id: claim.id,
        name: claim.name.clone(),
        mode: claim.mode,
        token: grant.token,
        ttl: claim.ttl,
    };
    let renewed = |rig: &Rig| rig.run(engine.renew(std::slice::from_ref(&hold))).remove(0);
    assert!(matches!(renewed(&rig), leasehold_core::Renewed::Extended { .. }));
    write(&rig);
    assert!(matches!(renewed(&rig), leasehold_core::Renewed::Lost(Loss::Gone)));
    assert!(matches!(rig.run(engine.claim(&claim, How::Ask)), Ok(Answer::Gone)));
    // The next waiter of ours waits for the other program.
    let next = rig.claim("/a");
    assert!(matches!(rig.run(engine.claim(&next, How::Create)), Ok(Answer::Waiting(_))));
}

/// A claim that asks sends the transaction that creates the lock key if it is absent.
#[test]
fn the_head_of_the_queue_does_not_write_a_lock_key_that_exists() {
    let rig = Rig::with_lock_keys("");
    let (engine, claim) = (rig.engine(), rig.claim("/a"));
    rig.server.command(&["put", "/a", "theirs"]);
    for how in [How::Create, How::Ask, How::Ask] {
        assert!(matches!(rig.run(engine.claim(&claim, how)), Ok(Answer::Waiting(_))));
    }
    assert_eq!(rig.server.command(&["get", "/a", "--print-value-only"]), ["theirs"]);
    // The report of the deletion and the ask may both create the key: one grant.
    rig.server.command(&["del", "/a"]);
    rig.until("it is granted", || matches!(rig.run(engine.claim(&claim, How::Ask)), Ok(Answer::Held(_))));
    assert!(matches!(rig.run(engine.release(&release_of(&claim)))[..], [Released::Freed]));
    assert_eq!(rig.keys(), [""; 0]);
}

/// The client of the head of the queue is cut off, so that it cannot create the lock key.
#[test]
fn a_claim_behind_the_head_of_the_queue_does_not_take_an_absent_lock_key() {
    let rig = Rig::with_lock_keys("");
    let (proxy, cut_off) = rig.proxied();
    let other = rig.engine();
    rig.server.command(&["put", "/a", "theirs"]);
    let (head, second) = (rig.claim("/a"), rig.claim("/a"));
    assert!(matches!(rig.run(cut_off.claim(&head, How::Create)), Ok(Answer::Waiting(_))));
    assert!(matches!(rig.run(other.claim(&second, How::Create)), Ok(Answer::Waiting(_))));
    proxy.hold_requests();
    rig.server.command(&["del", "/a"]);
    for _ in 0..5 {
        assert!(matches!(rig.run(other.claim(&second, How::Ask)), Ok(Answer::Waiting(_))));
        let newcomer = Claim { may_queue: false, ..rig.claim("/a") };
        assert!(matches!(rig.run(other.claim(&newcomer, How::Create)), Ok(Answer::Taken(_))));
    }
    let waiters: Vec<_> = rig.show("/a").waiters.into_iter().map(|waiter| waiter.id).collect();
    assert_eq!(waiters, [head.id.to_string(), second.id.to_string()]);
}

/// R9: the request that would create the lock key arrives after the release of its claim. Another claim waits, but its
/// client is cut off.
#[test]
fn a_late_request_creates_no_lock_key_after_the_release() {
    let rig = Rig::with_lock_keys("");
    let ((proxy, engine), (other_proxy, other_engine)) = (rig.proxied(), rig.proxied());
    let (claim, other) = (rig.claim("/a"), rig.claim("/a"));
    rig.server.command(&["put", "/a", "theirs"]);
    assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Waiting(_))));
    let queue_key = rig.keys().into_iter().find(|key| key.contains("/queue/")).unwrap();
    assert!(matches!(rig.run(other_engine.claim(&other, How::Create)), Ok(Answer::Waiting(_))));
    other_proxy.hold_requests();
    proxy.hold_requests();
    rig.server.command(&["del", "/a"]);
    let asking = {
        let (engine, claim) = (std::sync::Arc::clone(&engine), claim.clone());
        rig.runtime.spawn(async move { engine.claim(&claim, How::Ask).await })
    };
    rig.until("a request is held back", || proxy.holds_a_request());
    // As the release of the claim does.
    rig.server.command(&["del", &queue_key]);
    proxy.release_held();
    assert!(matches!(rig.run(asking).unwrap(), Ok(Answer::Gone)));
    assert!(!rig.keys().contains(&"/a".to_owned()), "the late request created no lock key");
    assert!(matches!(rig.run(engine.release(&release_of(&claim)))[..], [Released::NotThere]));
}

/// R9: the answer to the request that created the lock key is lost, and its claim is released.
#[test]
fn a_release_deletes_a_lock_key_of_which_its_client_does_not_know() {
    let rig = Rig::with_lock_keys("");
    let (proxy, engine) = rig.proxied();
    let claim = rig.claim("/a");
    rig.server.command(&["put", "/a", "theirs"]);
    assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Waiting(_))));
    proxy.hold_answers();
    rig.server.command(&["del", "/a"]);
    // The report of the deletion is an answer too: the client asks without it.
    let asking = {
        let (engine, claim) = (std::sync::Arc::clone(&engine), claim.clone());
        rig.runtime.spawn(async move { engine.claim(&claim, How::Ask).await })
    };
    rig.until("the lock key is created", || rig.keys().contains(&"/a".to_owned()));
    asking.abort();
    proxy.reset();
    let before = rig.revision();
    rig.until("the claim is released", || {
        !matches!(rig.run(engine.release(&release_of(&claim)))[..], [Released::Unknown(_)])
    });
    assert_eq!(rig.keys(), [""; 0]);
    // As long as the queue key exists, a late request of the claim can create the lock key again.
    assert_eq!(rig.keys_at(before + 1), ["/a"], "the queue key was deleted first");
}

#[test]
fn modes_and_names_that_cannot_be_lock_keys_are_refused() {
    let rig = Rig::with_lock_keys("");
    let (locks, engine) = (rig.locks(), rig.engine());
    assert_eq!(locks.profile().modes, leasehold_core::Modes::Exclusive);
    for error in [
        locks.rw("/a").read().blocking().acquire().unwrap_err(),
        locks.semaphore("/a", 2).blocking().acquire().unwrap_err(),
    ] {
        assert!(error.is_misconfigured() && error.to_string().contains("only exclusive"), "{error}");
    }
    let error = locks.mutex("leasehold//lease/1").blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("begin with leasehold/"), "{error}");
    let claim = Claim { mode: Mode::Shared, ..rig.claim("/a") };
    assert_eq!(rig.run(engine.claim(&claim, How::Create)).unwrap_err().fault, Fault::Misconfigured);
    assert_eq!(rig.keys(), [""; 0]);
}

#[test]
fn a_broken_holder_is_notified_at_once_and_both_its_keys_end() {
    let rig = Rig::with_lock_keys("");
    let (locks, operator) = (rig.locks(), rig.locks());
    let guard = break_is_reported_at_once(&locks, &operator, &rig.runtime);
    assert!(operator.mutex("a").blocking().try_acquire().unwrap_err().is_taken(), "it is not released");
    assert!(guard.release_blocking().is_err());
    let next = acquire(&operator, "a");
    assert_eq!(rig.run(operator.break_hold("a", next.token().number, true)).unwrap(), Broken::Done);
    let left: Vec<_> = rig.keys().into_iter().filter(|key| key == "a" || key.contains("/a/")).collect();
    assert_eq!(left, [""; 0], "a forced break deletes the lock key and the queue key");
}

/// Other programs see the key of a minimum hold, and the next waiter of ours gets the name after it.
#[test]
fn a_minimum_hold_keeps_the_lock_key_after_its_client_has_exited() {
    let rig = Rig::with_lock_keys("");
    let (locks, next) = (rig.locks(), rig.locks());
    acquire(&locks, "/a").release_at_least_blocking(Duration::from_secs(3600)).unwrap();
    assert_eq!(locks.close_blocking(PATIENCE), 0);
    assert_eq!(rig.keys(), ["/a"]);
    assert!(next.mutex("/a").blocking().try_acquire().unwrap_err().is_taken());
    let holder = rig.show("/a").holders.remove(0);
    assert!(!holder.foreign, "{holder:?}");
    assert_eq!(rig.run(next.break_hold("/a", holder.token.unwrap(), false)).unwrap(), Broken::Done);
    let (locks, min_hold) = (rig.locks(), Duration::from_millis(200));
    acquire(&locks, "/a").release_at_least_blocking(min_hold).unwrap();
    assert_eq!(locks.close_blocking(PATIENCE), 0);
    acquire(&next, "/a").release_blocking().unwrap();
}

#[test]
fn only_names_that_leasehold_holds_or_waits_for_are_listed() {
    let rig = Rig::with_lock_keys("");
    let (locks, engine) = (rig.locks(), rig.engine());
    let guard = acquire(&locks, "/lock/ours");
    for other in ["/lock/theirs", "/lock/waited for", "/config"] {
        rig.server.command(&["put", other, "theirs"]);
    }
    let waiter = rig.claim("/lock/waited for");
    assert!(matches!(rig.run(engine.claim(&waiter, How::Create)), Ok(Answer::Waiting(_))));
    let views = rig.run(locks.list("/lock/")).unwrap();
    let listed: Vec<_> = views.iter().map(|view| (view.name.as_str(), view.waiters.len())).collect();
    assert_eq!(listed, [("/lock/ours", 0), ("/lock/waited for", 1)]);
    assert!(views.iter().all(|view| view.holders.len() == 1), "{views:?}");
    assert_eq!(rig.run(locks.list("/x")).unwrap().len(), 0);
    guard.release_blocking().unwrap();
}

/// The condition that `etcd_compare` returns is the one that a program in another language can use.
#[test]
fn a_hold_is_proved_by_the_create_revision_of_the_lock_key() {
    let rig = Rig::with_lock_keys("/lock/");
    let engine = rig.engine();
    let locks = Locks::builder(std::sync::Arc::clone(&engine) as _).build();
    let guard = acquire(&locks, "a");
    let held_by = engine.held_by(guard.id()).unwrap();
    assert_eq!(held_by.key, b"/lock/a");
    assert_eq!(guard.token().number, crate::rig::first_token(held_by.create_revision as u64));
}

/// A grant is a write, so a full database grants nothing. A wait that ends meanwhile has the reason.
#[test]
fn with_a_full_database_a_hold_is_released_and_a_waiter_is_told_the_reason() {
    let rig = Rig::with_lock_keys_on("", &[SMALL_DATABASE]);
    let (holder, waiter) = (rig.locks(), rig.locks());
    let guard = acquire(&holder, "/a");
    let request = waiter.mutex("/a").blocking();
    let claim = rig.claim("/a");
    let engine = rig.engine();
    assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Waiting(_))));
    rig.fill();
    guard.release_blocking().unwrap();
    assert_eq!(rig.run(engine.claim(&claim, How::Ask)).unwrap_err().fault, Fault::Refused);
    assert!(matches!(rig.run(engine.release(&release_of(&claim)))[..], [Released::Freed]));
    let error = request.acquire_within(SOON).unwrap_err();
    assert!(error.to_string().contains("database is full"), "{error}");
    rig.until("nothing is left", || rig.keys().iter().all(|key| key.starts_with("fill")));
}
