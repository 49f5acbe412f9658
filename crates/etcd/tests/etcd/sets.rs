//! Several names in one transaction: one request, all keys or none, and the claims of other programs.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use leasehold_core::{All, AllAnswer, Answer, Claim, Engine, Fault, How, Locks, Mode, Released};
use leasehold_testkit::server::etcd_metric;

use crate::{
    late_requests::{TRIES, applied_proposals, await_arrival, hold_back, make_lease},
    rig::{PATIENCE, Rig, SMALL_DATABASE, first_token, release_of},
};

/// The most names of one transaction.
const MAX_NAMES: usize = 40;

/// Names in the order in which they are locked.
fn name(number: usize) -> String {
    format!("n{number:03}")
}

fn set(locks: &Locks, count: usize) -> All {
    (0..count).map(name).fold(locks.all(), |all, name| all.mutex(name))
}

/// Claims that do not wait, of the first names, each in its mode.
fn tries(rig: &Rig, modes: &[Mode]) -> Vec<Claim> {
    let claim = |(number, &mode)| Claim { mode, may_queue: false, ..rig.claim(&name(number)) };
    modes.iter().enumerate().map(claim).collect()
}

/// How many requests the server has received that read or change keys or leases.
fn requests(rig: &Rig) -> f64 {
    let methods = ["Txn", "Range", "Put", "DeleteRange", "LeaseGrant", "LeaseRevoke"];
    let of = |method| {
        let series = format!("grpc_server_msg_received_total{{grpc_method=\"{method}\"");
        etcd_metric(rig.server.port(), &series).unwrap().unwrap_or(0.0)
    };
    methods.map(of).iter().sum()
}

/// Releases the claims until each answer is certain.
async fn release_all(engine: &dyn Engine, claims: &[Claim]) {
    for claim in claims {
        while matches!(engine.release(&release_of(claim)).await[..], [Released::Unknown(_)]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[test]
fn a_set_of_free_names_costs_one_request() {
    for rig in [Rig::new(), Rig::with_lock_keys(""), Rig::with_elections()] {
        let locks = rig.locks();
        // The client makes its lease.
        set(&locks, 2).blocking().try_acquire().unwrap().release_blocking().unwrap();
        let before = requests(&rig);
        let guards = set(&locks, MAX_NAMES).blocking().acquire().unwrap();
        assert_eq!(requests(&rig) - before, 1.0);
        assert!(guards.check());
        // With `layout=election` the revision itself is the token.
        let tokens = [first_token(rig.revision()), rig.revision()];
        assert!(guards.iter().all(|guard| tokens.contains(&guard.token().number)), "one step: {guards:?}");
        guards.release_blocking().unwrap();
        assert_eq!(rig.keys(), [""; 0]);
    }
}

#[test]
fn a_set_with_a_taken_name_costs_one_request_and_leaves_nothing() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    set(&locks, 2).blocking().try_acquire().unwrap().release_blocking().unwrap();
    let held = other.mutex(name(30)).blocking().acquire().unwrap();
    let (keys, before) = (rig.keys(), requests(&rig));
    let error = set(&locks, MAX_NAMES).blocking().try_acquire().unwrap_err();
    assert!(error.is_taken() && error.to_string().contains("n030"), "{error}");
    assert_eq!(requests(&rig) - before, 1.0, "nothing is left to release");
    assert_eq!(rig.keys(), keys);
    held.release_blocking().unwrap();
}

/// R11, I6: a lease has room for 4096 keys, and the claims of a set that is not granted give their room back.
#[test]
fn sets_that_are_not_granted_take_no_room_on_the_lease() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    set(&locks, 2).blocking().try_acquire().unwrap().release_blocking().unwrap();
    let held = other.mutex(name(MAX_NAMES - 1)).blocking().acquire().unwrap();
    let leases = rig.leases();
    for _ in 0..4096 / MAX_NAMES + 2 {
        assert!(set(&locks, MAX_NAMES).blocking().try_acquire().unwrap_err().is_taken());
    }
    let guards = set(&locks, MAX_NAMES - 1).blocking().try_acquire().unwrap();
    assert_eq!(rig.leases(), leases, "all claims were on one lease");
    guards.release_blocking().unwrap();
    held.release_blocking().unwrap();
}

#[test]
fn more_names_than_a_transaction_takes_are_claimed_in_order() {
    let rig = Rig::new();
    let locks = rig.locks();
    let guards = set(&locks, MAX_NAMES + 1).blocking().try_acquire().unwrap();
    assert_eq!(rig.keys().len(), MAX_NAMES + 1);
    guards.release_blocking().unwrap();
    // A server can be set to take fewer.
    let rig = Rig::with(&["--max-txn-ops=16"]);
    let locks = rig.locks();
    for count in [4, 20] {
        let guards = set(&locks, count).blocking().try_acquire().unwrap();
        let tokens: std::collections::BTreeSet<u64> =
            guards.iter().map(|guard| guard.token().number).collect();
        assert_eq!(tokens.len(), if count == 4 { 1 } else { count }, "one step, or one for each name");
        guards.release_blocking().unwrap();
    }
    assert_eq!(rig.keys(), [""; 0]);
}

/// A key of another program is ahead of a set, whatever its form, and no part of the set is left.
#[test]
fn a_key_of_another_program_keeps_a_set_out() {
    for (rig, foreign) in [
        (Rig::new(), "/locks/n001/694d7d1a"),
        // The key of clients without a queue.
        (Rig::new(), "/locks/n001"),
        (Rig::with_lock_keys("/locks/"), "/locks/n001"),
    ] {
        let engine = rig.engine();
        rig.server.command(&["put", foreign, "theirs"]);
        let modes: &[Mode] = if rig.has_lock_keys() {
            &[Mode::Exclusive; 3]
        } else {
            &[Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }]
        };
        for mode in modes {
            let claims = tries(&rig, &[Mode::Exclusive, *mode, Mode::Exclusive]);
            match rig.run(engine.claim_all(&claims)) {
                Ok(AllAnswer::Taken { index: 1, .. }) => {}
                // Programs with a queue lock a mutex.
                Ok(AllAnswer::Refused { index: 1, error }) if mode.limit().is_some() => {
                    assert_eq!(error.fault, Fault::Misconfigured);
                }
                other => panic!("{mode}: {other:?}"),
            }
            assert_eq!(rig.keys(), [foreign]);
        }
        rig.server.command(&["del", foreign]);
        let claims = tries(&rig, modes);
        assert!(matches!(rig.run(engine.claim_all(&claims)), Ok(AllAnswer::Held(_))));
        rig.run(release_all(&*engine, &claims));
        assert_eq!(rig.keys(), [""; 0]);
    }
}

/// A set takes permits beside those that other claims hold, as long as enough are free.
#[test]
fn a_set_takes_permits_beside_others() {
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    let two_of_four = Mode::Permits { count: 2, limit: 4 };
    let modes = [two_of_four, Mode::Exclusive, Mode::Shared];
    let beside = tries(&rig, &[two_of_four]);
    rig.run(async {
        let claims = tries(&rig, &modes);
        assert!(matches!(other.claim(&beside[0], How::Create).await, Ok(Answer::Held(_))));
        assert!(matches!(engine.claim_all(&claims).await, Ok(AllAnswer::Held(_))));
        let third = tries(&rig, &modes);
        let answer = engine.claim_all(&third).await;
        assert!(matches!(answer, Ok(AllAnswer::Taken { index: 0, .. })), "{answer:?}");
        release_all(&*engine, &claims).await;
        // A claim that waits is ahead of a set that needs fewer permits.
        let waiting =
            Claim { may_queue: true, mode: Mode::Permits { count: 3, limit: 4 }, ..rig.claim(&name(0)) };
        assert!(matches!(other.claim(&waiting, How::Create).await, Ok(Answer::Waiting(_))));
        let answer = engine.claim_all(&tries(&rig, &modes)).await;
        assert!(matches!(answer, Ok(AllAnswer::Taken { index: 0, .. })), "{answer:?}");
        release_all(&*other, &[beside[0].clone(), waiting]).await;
        assert!(matches!(engine.claim_all(&tries(&rig, &modes)).await, Ok(AllAnswer::Held(_))));
    });
}

/// I1: between the read of the free permits and the grant, other sets may be granted permits.
#[test]
fn sets_that_compete_for_permits_do_not_exceed_the_limit() {
    const LIMIT: u32 = 3;
    const CLIENTS: usize = 6;
    let rig = Rig::new();
    let held = AtomicU32::new(0);
    let granted = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (locks, held, granted) = (rig.locks(), &held, &granted);
            scope.spawn(move || {
                for _ in 0..40 {
                    let all = locks.all().mutex(format!("own-{client}")).permits("p", 1, LIMIT);
                    match all.blocking().try_acquire() {
                        Ok(guards) => {
                            granted.fetch_add(1, Ordering::SeqCst);
                            let others = held.fetch_add(1, Ordering::SeqCst);
                            assert!(others < LIMIT, "{others} hold beside this set");
                            std::thread::yield_now();
                            held.fetch_sub(1, Ordering::SeqCst);
                            guards.release_blocking().unwrap();
                        }
                        Err(error) => assert!(error.is_taken(), "{error}"),
                    }
                }
            });
        }
    });
    assert!(granted.into_inner() > 40);
    assert_eq!(rig.keys(), [""; 0]);
}

/// The first name that the user may not lock is named.
#[test]
fn an_error_names_the_name_that_the_user_may_not_lock() {
    let mut rig = Rig::new();
    rig.server.require_logins("correct-horse");
    rig.server.command(&["user", "add", "poor:hunter2"]);
    rig.server.command(&["role", "add", "poor"]);
    for prefix in ["/locks/n000", "/locks/n002", "leasehold/"] {
        rig.server.command(&["role", "grant-permission", "poor", "readwrite", "--prefix", prefix]);
    }
    rig.server.command(&["user", "grant-role", "poor", "poor"]);
    rig.config = rig.config.clone().login("poor", "hunter2");
    let locks = rig.locks();
    for error in [set(&locks, 3).blocking().try_acquire(), set(&locks, 3).blocking().acquire()] {
        let error = error.unwrap_err();
        assert!(error.is_denied() && error.to_string().contains("n001"), "{error}");
    }
    assert_eq!(rig.keys(), [""; 0]);
}

/// R9, R12: the request of a set arrives after its claims were released.
#[test]
fn a_late_set_creates_nothing_after_its_release() {
    let permits = Mode::Permits { count: 1, limit: 2 };
    let in_directories = [Mode::Exclusive, Mode::Shared, permits];
    for (rig, modes) in [
        (Rig::new(), &in_directories[..]),
        (Rig::with_lock_keys(""), &[Mode::Exclusive; 3]),
        (Rig::with_elections(), &[Mode::Exclusive; 3]),
    ] {
        let mut arrived = 0;
        for round in 0..TRIES {
            if arrived > 1 {
                break;
            }
            let (proxy, engine) = rig.proxied();
            rig.run(async {
                make_lease(&rig, &*engine).await;
                let claims = tries(&rig, modes);
                let mut sent = engine.claim_all(&claims);
                hold_back(&proxy, &mut sent).await;
                if round % 2 == 0 {
                    proxy.cut_clients();
                    assert_eq!(sent.await.unwrap_err().fault, Fault::Unknown);
                } else {
                    drop(sent);
                    proxy.cut_clients();
                }
                release_all(&*engine, &claims).await;
                let before = applied_proposals(&rig);
                proxy.release_held();
                arrived += usize::from(await_arrival(|| applied_proposals(&rig) > before));
                assert_eq!(rig.keys(), [""; 0]);
                let next = tries(&rig, modes);
                assert!(
                    matches!(engine.claim_all(&next).await, Ok(AllAnswer::Held(_))),
                    "the new epoch is read"
                );
                release_all(&*engine, &next).await;
            });
        }
        assert!(arrived > 1, "of {TRIES} sets {arrived} arrived: too few to say anything");
    }
}

/// R21, R12: the server has created the keys, and the answer is lost.
#[test]
fn a_set_whose_answer_was_lost_is_found_again_or_released() {
    let rig = Rig::new();
    let mixed = [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }];
    for (modes, sends_again) in [(mixed, true), (mixed, false), ([Mode::Shared; 3], true)] {
        let (proxy, engine) = rig.proxied();
        rig.run(async {
            make_lease(&rig, &*engine).await;
            let claims = tries(&rig, &modes);
            proxy.hold_answers();
            let mut sent = engine.claim_all(&claims);
            while rig.keys().len() < modes.len() {
                let answer = tokio::time::timeout(Duration::from_millis(20), &mut sent).await;
                assert!(answer.is_err(), "the answer is held back: {answer:?}");
            }
            let revision = rig.revision();
            proxy.drop_connections();
            assert_eq!(sent.await.unwrap_err().fault, Fault::Unknown);
            proxy.release_answers();
            if sends_again {
                let answer = tokio::time::timeout(PATIENCE, async {
                    loop {
                        match engine.claim_all(&claims).await {
                            Err(error) if error.fault != Fault::Refused => {
                                tokio::time::sleep(Duration::from_millis(20)).await;
                            }
                            answer => break answer,
                        }
                    }
                });
                let answer = answer.await.unwrap();
                let Ok(AllAnswer::Held(grants)) = answer else { panic!("{answer:?}") };
                assert!(grants.iter().all(|grant| grant.token.number == first_token(revision)), "{grants:?}");
            }
            release_all(&*engine, &claims).await;
        });
        assert_eq!(rig.keys(), [""; 0]);
    }
}

/// The server is killed while it has the request: whatever it did, nothing is left after the release.
#[test]
fn a_set_whose_server_was_killed_is_held_whole_or_not_at_all() {
    let mut rig = Rig::new();
    let engine = rig.engine();
    rig.run(make_lease(&rig, &*engine));
    for round in 0..6_u64 {
        let claims = tries(&rig, &[Mode::Exclusive; 3]);
        let sent = {
            let (engine, claims) = (std::sync::Arc::clone(&engine), claims.clone());
            rig.runtime.spawn(async move { engine.claim_all(&claims).await })
        };
        std::thread::sleep(Duration::from_millis(round));
        rig.server.kill();
        let answer = rig.run(sent).unwrap();
        rig.server.restart();
        assert!([0, 3].contains(&rig.keys().len()), "{:?} after {answer:?}", rig.keys());
        if matches!(answer, Ok(AllAnswer::Held(_))) {
            assert_eq!(rig.keys().len(), 3, "an answered grant is stored");
        }
        rig.run(release_all(&*engine, &claims));
        assert_eq!(rig.keys(), [""; 0], "after {answer:?}");
    }
}

/// The lease ends on the server before the set is sent: the set is granted on another lease.
#[test]
fn a_set_on_a_lease_that_ended_is_granted_on_another() {
    let rig = Rig::new();
    let engine = rig.engine();
    rig.run(make_lease(&rig, &*engine));
    let held = rig.claim("held");
    assert!(matches!(rig.run(engine.claim(&held, How::Create)), Ok(Answer::Held(_))));
    let lease = rig.server.command(&["lease", "list"]).pop().unwrap();
    rig.server.command(&["lease", "revoke", &lease]);
    let claims = tries(&rig, &[Mode::Exclusive, Mode::Shared]);
    let answer = rig.run(engine.claim_all(&claims));
    assert!(matches!(answer, Ok(AllAnswer::Held(_))), "{answer:?}");
    assert_eq!(rig.keys().len(), 2);
    rig.run(release_all(&*engine, &claims));
    assert_eq!(rig.keys(), [""; 0]);
}

/// R14.
#[test]
fn a_full_database_refuses_a_set_and_nothing_is_left() {
    let rig = Rig::with(&[SMALL_DATABASE]);
    let locks = rig.locks();
    set(&locks, 2).blocking().try_acquire().unwrap().release_blocking().unwrap();
    rig.fill();
    let error = set(&locks, 3).blocking().try_acquire().unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("full"), "{error}");
    let left: Vec<_> = rig.keys().into_iter().filter(|key| !key.starts_with("fill")).collect();
    assert_eq!(left, [""; 0]);
}

/// I13: a minimum hold is reported with its end, as for a single name.
#[test]
fn a_minimum_hold_keeps_a_set_out_until_its_end() {
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    let held = rig.claim(&name(1));
    rig.run(async {
        let answer = other.claim(&held, How::Create).await;
        let Ok(Answer::Held(grant)) = answer else { panic!("{answer:?}") };
        let min_hold = Some(Duration::from_secs(3600));
        let release =
            leasehold_core::Release { token: Some(grant.token), min_hold, ..release_of(&held)[0].clone() };
        assert!(matches!(other.release(&[release]).await[..], [Released::Freed]));
        let answer = engine.claim_all(&tries(&rig, &[Mode::Exclusive; 3])).await;
        let Ok(AllAnswer::Taken { index: 1, hint }) = answer else { panic!("{answer:?}") };
        assert_eq!(hint.ask_in, min_hold);
    });
}
