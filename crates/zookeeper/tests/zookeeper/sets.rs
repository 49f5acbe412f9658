//! Several names by one `multi`: one round trip, all nodes or none, and the nodes of other programs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold_core::{
    All, AllAnswer, Answer, Claim, Engine, Env, Fault, How, Inspect, Locks, MAX_NAMES_AT_ONCE, Mode, Name,
};
use leasehold_testkit::{SetOnDrop, server::ZookeeperEnsemble};
use leasehold_zookeeper::{Config, ZookeeperEngine};

use crate::{
    raw_client::{Kind, LONG_SESSION_MILLIS, RawClient},
    rig::{PATIENCE, Rig, local, release_until_certain},
};

/// The number of names of most sets.
const NAMES: usize = 3;

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

async fn release_all(engine: &ZookeeperEngine, claims: &[Claim]) {
    for claim in claims {
        release_until_certain(engine, claim).await;
    }
}

/// Makes the directories of the names, and a session that is kept.
async fn prepare(rig: &Rig, engine: &ZookeeperEngine, count: usize) {
    for _ in 0..2 {
        let claims = tries(rig, &vec![Mode::Exclusive; count]);
        let answer = engine.claim_all(&claims).await;
        assert!(matches!(answer, Ok(AllAnswer::Held(_))), "{answer:?}");
        release_all(engine, &claims).await;
    }
}

/// All requests of a set reach the server before the first answer reaches the client.
#[test]
fn a_set_of_free_names_costs_one_round_trip() {
    const COUNT: usize = 60;
    for rig in [Rig::new(), Rig::latch()] {
        let (proxy, engine) = rig.proxied();
        rig.run(async {
            prepare(&rig, &engine, COUNT).await;
            let claims = tries(&rig, &[Mode::Exclusive; COUNT]);
            let before = rig.requests();
            proxy.hold_answers();
            let mut sent = engine.claim_all(&claims);
            while rig.nodes().len() < COUNT {
                let answer = tokio::time::timeout(Duration::from_millis(10), &mut sent).await;
                assert!(answer.is_err(), "the answer is held back: {answer:?}");
            }
            // One change, and one read for each name. Beside these there are heartbeats and the questions of this test.
            rig.until("the reads have arrived", || rig.requests() - before > COUNT as u32);
            let all = rig.requests();
            proxy.release_answers();
            let answer = sent.await;
            assert!(matches!(answer, Ok(AllAnswer::Held(_))), "{answer:?}");
            assert!(rig.requests() - all < COUNT as u32 / 4, "it sent more after the first answer");
            release_all(&engine, &claims).await;
        });
        assert_eq!(rig.nodes(), [""; 0]);
    }
}

#[test]
fn a_set_with_a_taken_name_leaves_nothing() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    set(&locks, NAMES).blocking().try_acquire().unwrap().release_blocking().unwrap();
    let held = other.mutex(name(1)).blocking().acquire().unwrap();
    let nodes = rig.nodes();
    // The second set finds the name contended, and creates no node.
    for _ in 0..2 {
        let error = set(&locks, NAMES).blocking().try_acquire().unwrap_err();
        assert!(error.is_taken() && error.to_string().contains("n001"), "{error}");
        assert_eq!(rig.nodes(), nodes);
    }
    held.release_blocking().unwrap();
    set(&locks, NAMES).blocking().try_acquire().unwrap().release_blocking().unwrap();
    assert_eq!(rig.nodes(), [""; 0]);
}

/// R11, I6: a session has room for paths of 512 KiB, and the claims of a set that is not granted give their room back.
#[test]
fn sets_that_are_not_granted_take_no_room_on_the_session() {
    /// Each path is longer than 90 bytes.
    const SETS: usize = 512 * 1024 / (MAX_NAMES_AT_ONCE * 90) + 2;
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    set(&locks, MAX_NAMES_AT_ONCE).blocking().try_acquire().unwrap().release_blocking().unwrap();
    let held = other.mutex(name(MAX_NAMES_AT_ONCE - 1)).blocking().acquire().unwrap();
    for _ in 0..SETS {
        assert!(set(&locks, MAX_NAMES_AT_ONCE).blocking().try_acquire().unwrap_err().is_taken());
    }
    let guards = set(&locks, MAX_NAMES_AT_ONCE - 1).blocking().try_acquire().unwrap();
    let token = guards.iter().next().unwrap().token();
    assert!(guards.iter().all(|guard| guard.token() == token), "a full session takes one name after another");
    guards.release_blocking().unwrap();
    held.release_blocking().unwrap();
    assert_eq!(rig.nodes(), [""; 0]);
}

/// I13: a set is answered "taken" only if the node that refuses it still exists when the set gives up.
#[test]
fn a_set_whose_obstacle_ends_meanwhile_is_granted() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let mut other = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    rig.run(async {
        prepare(&rig, &engine, NAMES).await;
        let obstacle = other.enqueue("/locks/n001");
        let claims = tries(&rig, &[Mode::Exclusive; NAMES]);
        let before = rig.requests();
        proxy.hold_answers();
        let mut sent = engine.claim_all(&claims);
        while rig.nodes().len() <= NAMES {
            let answer = tokio::time::timeout(Duration::from_millis(10), &mut sent).await;
            assert!(answer.is_err(), "the answer is held back: {answer:?}");
        }
        rig.until("the queues are read", || rig.requests() - before > NAMES as u32);
        proxy.hold_requests();
        proxy.release_answers();
        while !proxy.holds_a_request() {
            let answer = tokio::time::timeout(Duration::from_millis(10), &mut sent).await;
            assert!(answer.is_err(), "the deletion is held back: {answer:?}");
        }
        other.delete(&obstacle);
        proxy.release_held();
        let answer = sent.await;
        assert!(matches!(answer, Ok(AllAnswer::Held(_))), "{answer:?}");
        release_all(&engine, &claims).await;
    });
    assert_eq!(rig.nodes(), [""; 0]);
}

/// Permits are taken by a request of their own, so a set with permits is claimed in order.
#[test]
fn a_set_with_permits_is_claimed_in_order() {
    let rig = Rig::new();
    let engine = rig.engine();
    let claims = tries(&rig, &[Mode::Exclusive, Mode::Permits { count: 1, limit: 2 }]);
    assert!(matches!(rig.run(engine.claim_all(&claims)), Ok(AllAnswer::OneByOne)));
    assert_eq!(rig.nodes(), [""; 0]);
    let all = rig.locks().all().mutex("a").permits("b", 2, 2);
    let guards = all.blocking().try_acquire().unwrap();
    assert!(rig.locks().semaphore("b", 2).blocking().try_acquire().unwrap_err().is_taken());
    guards.release_blocking().unwrap();
    assert_eq!(rig.nodes(), [""; 0]);
}

/// A node of another program is ahead of a set, and no part of the set is left.
#[test]
fn a_node_of_another_program_keeps_a_set_out() {
    let modes = [Mode::Exclusive, Mode::Shared];
    for (rig, node, modes) in [
        (Rig::new(), "_c_00000000-0000-0000-0000-000000000000-lock-", &modes[..]),
        (Rig::new(), "0011aa__lock__", &modes),
        (Rig::latch(), "_c_00000000-0000-0000-0000-000000000000-latch-", &modes[..1]),
    ] {
        let engine = rig.engine();
        rig.run(prepare(&rig, &engine, NAMES));
        let mut other = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
        let foreign = other.create(&format!("/locks/n001/{node}"), b"x", Kind::EphemeralSequential);
        for &mode in modes {
            let claims = tries(&rig, &[Mode::Exclusive, mode, Mode::Exclusive]);
            let answer = rig.run(engine.claim_all(&claims));
            assert!(matches!(answer, Ok(AllAnswer::Taken { index: 1, .. })), "{answer:?}");
            assert_eq!(rig.nodes(), [foreign.as_str()]);
        }
        other.delete(&foreign);
        let claims = tries(&rig, &[Mode::Exclusive; NAMES]);
        assert!(matches!(rig.run(engine.claim_all(&claims)), Ok(AllAnswer::Held(_))));
        rig.run(release_all(&engine, &claims));
    }
}

/// A claim that was blocked by a set which was not granted is granted when the set gives up.
#[test]
fn a_waiter_behind_a_set_that_gives_up_is_granted() {
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    rig.run(async {
        prepare(&rig, &engine, NAMES).await;
        // The last name is taken, so each set is ahead of the waiters of the first name for a moment.
        let holder = rig.claim(&name(NAMES - 1));
        assert!(matches!(other.claim(&holder, How::Create).await, Ok(Answer::Held(_))));
        for _ in 0..20 {
            let claims = tries(&rig, &[Mode::Exclusive; NAMES]);
            let waiter = rig.claim(&name(0));
            let (answer, waits) =
                futures_util::future::join(engine.claim_all(&claims), other.claim(&waiter, How::Create))
                    .await;
            assert!(matches!(answer, Ok(AllAnswer::Taken { .. })), "{answer:?}");
            if !matches!(waits, Ok(Answer::Held(_))) {
                let granted = async {
                    while !matches!(other.claim(&waiter, How::Ask).await, Ok(Answer::Held(_))) {
                        other.notifications().await;
                    }
                };
                tokio::time::timeout(PATIENCE, granted).await.expect("nothing is ahead of it");
            }
            release_until_certain(&other, &waiter).await;
        }
        release_until_certain(&other, &holder).await;
    });
    assert_eq!(rig.nodes(), [""; 0]);
}

/// I1, I13: sets that overlap exclude each other, never wait for each other, and the first one is granted.
#[test]
fn overlapping_sets_exclude_each_other() {
    const ROUNDS: usize = 60;
    let rig = Rig::new();
    let names = ["a", "b", "c"];
    let held: [AtomicBool; 3] = Default::default();
    let granted = AtomicU32::new(0);
    thread::scope(|scope| {
        for client in 0..3_usize {
            let (locks, held, granted) = (rig.locks(), &held, &granted);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let pair = [(client + round) % 3, (client + round + 1) % 3];
                    let all = pair.iter().fold(locks.all(), |all, &name| all.mutex(names[name]));
                    let guards = match round % 3 {
                        0 => all.blocking().try_acquire(),
                        _ => all.blocking().acquire_within(PATIENCE),
                    };
                    let guards = match guards {
                        Err(error) if error.is_taken() && round % 3 == 0 => continue,
                        guards => guards.unwrap(),
                    };
                    granted.fetch_add(1, Ordering::Relaxed);
                    pair.iter()
                        .for_each(|&name| assert!(!held[name].swap(true, Ordering::SeqCst), "two hold"));
                    pair.iter().for_each(|&name| held[name].store(false, Ordering::SeqCst));
                    guards.release_blocking().unwrap();
                }
            });
        }
    });
    assert!(granted.into_inner() >= 2 * ROUNDS as u32, "those that wait are all granted");
    assert_eq!(rig.nodes(), [""; 0]);
}

/// R10: the token of each name is the number of the change that created its node, on every server and beside other
/// changes.
#[test]
fn the_tokens_of_a_set_are_those_of_its_nodes() {
    let ensemble = ZookeeperEnsemble::start();
    let servers = ensemble.ports().map(local);
    let finished = AtomicBool::new(false);
    let engine_on = |server: usize| {
        Arc::new(ZookeeperEngine::new(Config::new(vec![servers[server].clone()]), &Env::system()))
    };
    thread::scope(|scope| {
        let _finished = SetOnDrop(&finished);
        for port in ensemble.ports() {
            let finished = &finished;
            scope.spawn(move || {
                let mut writer = RawClient::new(port, LONG_SESSION_MILLIS);
                let node = writer.create(&format!("/w{port}"), b"", Kind::Ephemeral);
                while !finished.load(Ordering::Relaxed) {
                    writer.set_data(&node, b"x");
                }
                writer.close();
            });
        }
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            for round in 0..30 {
                let engine = engine_on(round % servers.len());
                for _ in 0..5 {
                    let claim = |number| Claim { may_queue: false, ..crate::rig::exclusive(&name(number)) };
                    let claims: Vec<Claim> = (0..NAMES).map(claim).collect();
                    let answer = engine.claim_all(&claims).await;
                    let Ok(AllAnswer::Held(grants)) = answer else { panic!("{answer:?}") };
                    for (number, grant) in grants.iter().enumerate() {
                        let shown = engine.show(&Name::new(&name(number)).unwrap()).await.unwrap();
                        assert_eq!(shown.holders[0].token, Some(grant.token.number));
                    }
                    release_all(&engine, &claims).await;
                }
            }
        });
    });
}

/// R21, R12, F49: the server has created the nodes, and the answer is lost.
#[test]
fn a_set_whose_answer_was_lost_is_found_again_or_released() {
    for (rig, modes) in [
        (Rig::new(), [Mode::Exclusive, Mode::Shared, Mode::Exclusive]),
        (Rig::latch(), [Mode::Exclusive; NAMES]),
    ] {
        for sends_again in [true, false] {
            let (proxy, engine) = rig.proxied();
            rig.run(async {
                prepare(&rig, &engine, NAMES).await;
                let claims = tries(&rig, &modes);
                proxy.hold_answers();
                let mut sent = engine.claim_all(&claims);
                while rig.nodes().len() < NAMES {
                    let answer = tokio::time::timeout(Duration::from_millis(10), &mut sent).await;
                    assert!(answer.is_err(), "the answer is held back: {answer:?}");
                }
                proxy.drop_connections();
                let error = sent.await.unwrap_err();
                assert_eq!(error.fault, Fault::Unknown, "{error}");
                proxy.release_answers();
                if sends_again {
                    let answer = until_answered(&engine, &claims).await;
                    let AllAnswer::Held(grants) = answer else { panic!("{answer:?}") };
                    assert_eq!(rig.nodes().len(), NAMES, "no second set of nodes");
                    let again = until_answered(&engine, &claims).await;
                    let AllAnswer::Held(again) = again else { panic!("{again:?}") };
                    for (grant, again) in grants.iter().zip(&again) {
                        assert_eq!(grant.token, again.token);
                    }
                }
                release_all(&engine, &claims).await;
            });
            assert_eq!(rig.nodes(), [""; 0]);
        }
    }
}

/// Sends a set until an answer comes.
async fn until_answered(engine: &ZookeeperEngine, claims: &[Claim]) -> AllAnswer {
    let answered = async {
        loop {
            match engine.claim_all(claims).await {
                Ok(answer) => return answer,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("the server answers again")
}

/// R9: the future of a set is dropped, and its claims are released, while its request is on its way.
#[test]
fn a_late_set_leaves_nothing_after_its_release() {
    let rig = Rig::new();
    for round in 0..6 {
        let (proxy, engine) = rig.proxied();
        rig.run(async {
            prepare(&rig, &engine, NAMES).await;
            let claims = tries(&rig, &[Mode::Exclusive; NAMES]);
            proxy.hold_requests();
            let mut sent = engine.claim_all(&claims);
            let waits = async {
                while !proxy.holds_a_request() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                answer = &mut sent => panic!("its request is held back: {answer:?}"),
                () = waits => {}
            }
            if round % 2 == 0 {
                proxy.cut_clients();
                assert_eq!(sent.await.unwrap_err().fault, Fault::Unknown);
            } else {
                drop(sent);
                proxy.cut_clients();
            }
            release_all(&engine, &claims).await;
            proxy.release_held();
            rig.until("nothing is left", || rig.nodes().is_empty());
        });
    }
}

/// The server is killed while it has the request: the set exists whole or not at all, and its release ends it.
#[test]
fn a_set_whose_server_was_killed_is_held_whole_or_not_at_all() {
    let mut rig = Rig::new();
    let engine = rig.engine();
    for round in 0..4_u64 {
        rig.run(prepare(&rig, &engine, NAMES));
        let claims = tries(&rig, &[Mode::Exclusive; NAMES]);
        let sent = {
            let (engine, claims) = (Arc::clone(&engine), claims.clone());
            rig.runtime.spawn(async move { engine.claim_all(&claims).await })
        };
        thread::sleep(Duration::from_millis(2 * round));
        rig.server.kill();
        let answer = rig.run(sent).unwrap();
        rig.server.restart();
        let count = rig.nodes().len();
        assert!([0, NAMES].contains(&count), "{count} nodes after {answer:?}");
        assert!(count == NAMES || !matches!(answer, Ok(AllAnswer::Held(_))), "an answered grant is stored");
        rig.run(release_all(&engine, &claims));
        rig.until("nothing is left", || rig.nodes().is_empty());
    }
}

/// The session ends on the server before the set is sent: the set is granted on another session.
#[test]
fn a_set_on_a_session_that_ended_is_granted_on_another() {
    const TTL: Duration = Duration::from_secs(4);
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let claims = |modes: &[Mode]| {
        tries(&rig, modes).into_iter().map(|claim| Claim { ttl: TTL, ..claim }).collect::<Vec<_>>()
    };
    rig.run(async {
        for _ in 0..2 {
            let before = claims(&[Mode::Exclusive; NAMES]);
            assert!(matches!(engine.claim_all(&before).await, Ok(AllAnswer::Held(_))));
            release_all(&engine, &before).await;
        }
        let held = Claim { ttl: TTL, ..rig.claim("held") };
        assert!(matches!(engine.claim(&held, How::Create).await, Ok(Answer::Held(_))));
        proxy.block();
        rig.until("the session has ended", || rig.nodes().is_empty());
        proxy.unblock();
        let next = claims(&[Mode::Exclusive, Mode::Shared]);
        let answer = until_answered(&engine, &next).await;
        assert!(matches!(answer, AllAnswer::Held(_)), "{answer:?}");
        assert_eq!(rig.nodes().len(), 2);
        release_all(&engine, &next).await;
    });
    assert_eq!(rig.nodes(), [""; 0]);
}

/// A directory in which the login has no right is named, and no part of the set is left.
#[test]
fn an_error_names_the_name_that_the_login_may_not_lock() {
    let rig = Rig::new();
    let locks = rig.locks();
    set(&locks, NAMES).blocking().try_acquire().unwrap().release_blocking().unwrap();
    // The right to create nodes is missing, and then the right to read which nodes are ahead.
    for rights in ["r", "cd"] {
        rig.server.command_as_super(&format!("setAcl /locks/n001 world:anyone:{rights}"));
        for error in [set(&locks, NAMES).blocking().try_acquire(), set(&locks, NAMES).blocking().acquire()] {
            let error = error.unwrap_err();
            assert!(error.is_denied() && error.to_string().contains("n001"), "{error}");
            assert_eq!(rig.nodes(), [""; 0]);
        }
    }
}
