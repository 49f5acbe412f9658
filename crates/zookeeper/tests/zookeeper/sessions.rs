//! Claims whose session ends or whose connection breaks: F49 to F51, F53, F54.

use std::{
    sync::{Arc, mpsc},
    thread::spawn,
    time::Duration,
};

use leasehold_core::{
    Answer, Claim, Engine, Guard, How, Locks, Loss, Mode, Name, Notification, Released, Renewed,
};
use leasehold_testkit::{
    lease_retries::with_longer_leases,
    panic_clock::PanicClock,
    server::{Proxy, ZookeeperEnsemble},
};
use leasehold_zookeeper::{Config, ZookeeperEngine};

use crate::rig::{PATIENCE, Rig, acquire, local, release_of, release_until_certain};

const TTL: Duration = Duration::from_secs(2);

fn acquire_short(locks: &Locks, name: &str) -> Guard {
    locks.mutex(name).ttl(TTL).blocking().acquire_within(PATIENCE).unwrap()
}

/// Waits for a mutex on a thread of its own.
fn wait_for(locks: &Locks, name: &'static str) -> mpsc::Receiver<Guard> {
    let (locks, (tx, rx)) = (locks.clone(), mpsc::channel());
    spawn(move || tx.send(acquire(&locks, name)));
    rx
}

/// Only the maintenance task keeps sessions alive.
#[test]
fn a_maintenance_task_that_panicked_is_restarted() {
    let rig = Rig::new();
    let (clock, env) = PanicClock::new("leasehold_core::client::maintenance::run_rounds");
    let locks = Locks::builder(Arc::new(ZookeeperEngine::new(rig.config.clone(), &env))).build();
    let guard = locks.mutex("a").ttl(Duration::from_secs(10)).blocking().acquire().unwrap();
    clock.arm();
    rig.until("the maintenance task dies", || clock.has_panicked());
    rig.until("maintenance runs again", || clock.is_asked_again());
    // The first deadline of a session counts from its creation, and later ones from the second-to-last heartbeat. So
    // what remains may never be as long again, but the deadline moves.
    let (remaining_before, since) = (guard.remaining(), std::time::Instant::now());
    let moved = || guard.remaining().map(|remaining| remaining + since.elapsed());
    rig.until("its session is kept alive", || {
        moved() > remaining_before.map(|remaining| remaining + Duration::from_secs(2)) || !guard.check()
    });
    guard.release_blocking().unwrap();
}

/// A client is cut off for longer than its session lasts, and then reconnects.
#[test]
fn an_ended_session_loses_its_holds_and_its_waiters_queue_again() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let (cut, other) = (Locks::builder(engine).build(), rig.locks());
    let blocker = acquire(&other, "c");
    let (a, b) = (acquire_short(&cut, "a"), acquire_short(&cut, "b"));
    let (tx, rx) = mpsc::channel();
    let waiting_client = cut.clone();
    spawn(move || tx.send(acquire_short(&waiting_client, "c")));
    rig.until("it is queued", || rig.show("c").waiters.len() == 1);
    proxy.block();
    for guard in [&a, &b] {
        let lost = rig.run(async { tokio::time::timeout(PATIENCE, guard.lost()).await }).unwrap();
        assert!(matches!(lost, Loss::Lapsed), "{lost:?}");
        assert!(!guard.check());
    }
    // The server ends the session later than the client does.
    acquire(&other, "a").release_blocking().unwrap();
    rig.until("its queue entry is gone", || rig.show("c").waiters.is_empty());
    proxy.unblock();
    rig.until("it is queued again", || rig.show("c").waiters.len() == 1);
    blocker.release_blocking().unwrap();
    rx.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
    assert_eq!(rig.nodes(), [""; 0]);
}

/// A disconnection shorter than the session: no hold is lost, and the client asks for what it missed.
#[test]
fn a_short_disconnection_loses_no_hold_and_no_wake_up() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let (cut, other) = (Locks::builder(engine).build(), rig.locks());
    let held = acquire(&cut, "held");
    let (next, blocker) = ("next", acquire(&other, "next"));
    let waits = wait_for(&cut, next);
    rig.until("it is queued", || rig.show(next).waiters.len() == 1);
    proxy.block();
    blocker.release_blocking().unwrap();
    proxy.unblock();
    waits.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
    assert!(held.check());
    held.release_blocking().unwrap();
}

/// F49: the server created a node and its answer was lost. A repeated claim finds the node instead of waiting for it.
#[test]
fn a_claim_whose_answer_was_lost_finds_its_node() {
    let permits = |count| Mode::Permits { count, limit: 3 };
    find_lost_nodes(&Rig::new(), &[Mode::Exclusive, Mode::Shared, permits(1), permits(3)]);
}

/// F49, where the name of a node contains no claim id: the data contains it.
#[test]
fn a_claim_whose_answer_was_lost_finds_its_node_by_the_data() {
    find_lost_nodes(&Rig::plain(), &[Mode::Exclusive]);
}

fn find_lost_nodes(rig: &Rig, modes: &[Mode]) {
    for number in 0..2 {
        let (proxy, engine) = rig.proxied();
        // The first session of the client ends with its first claim.
        let locks = Locks::builder(Arc::clone(&engine) as _).build();
        (0..2).for_each(|_| acquire(&locks, "warm").release_blocking().unwrap());
        for (index, &mode) in modes.iter().enumerate() {
            let claim = Claim { mode, ..rig.claim(&format!("lost-{number}-{index}")) };
            rig.run(async {
                // Creates the directory of the name.
                let (before, other) = (Claim { id: rig.claim("x").id, ..claim.clone() }, rig.engine());
                assert!(matches!(other.claim(&before, How::Create).await, Ok(Answer::Held(_))));
                other.release(&release_of(&before)).await;
                proxy.hold_answers();
                let lost =
                    tokio::time::timeout(Duration::from_millis(300), engine.claim(&claim, How::Create));
                let lost = lost.await;
                assert!(lost.is_err(), "no answer arrives: {lost:?}");
                proxy.drop_connections();
                let granted = async {
                    loop {
                        match engine.claim(&claim, How::Create).await {
                            Ok(Answer::Held(grant)) => return grant,
                            Ok(Answer::Waiting(_)) | Err(_) => {
                                tokio::time::sleep(Duration::from_millis(20)).await
                            }
                            other => panic!("{mode}: {other:?}"),
                        }
                    }
                };
                let granted = tokio::time::timeout(PATIENCE, granted).await.expect("it finds its node");
                let view = rig.view(&claim.name).await;
                assert_eq!(view.holders.len(), 1, "{mode}: {view:?}");
                assert!(view.waiters.is_empty(), "{mode}: {view:?}");
                assert_eq!(view.holders[0].token, Some(granted.token.number));
                let released = engine.release(&release_of(&claim)).await;
                assert!(matches!(released[..], [Released::Freed]), "{released:?}");
            });
        }
        assert_eq!(rig.nodes(), [""; 0]);
    }
}

/// F54, for a caller that gives up at any point of the server's work.
#[test]
fn a_claim_given_up_at_any_point_leaves_nothing() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let locks = Locks::builder(engine).build();
    acquire(&locks, "warm").release_blocking().unwrap();
    for micros in (0..60).map(|step| step * 100) {
        for name in ["free", "held"] {
            let holder = (name == "held").then(|| acquire(&rig.locks(), name));
            let wait = locks.mutex(name).acquire();
            rig.run(async {
                drop(tokio::time::timeout(Duration::from_micros(micros), wait).await);
            });
            holder.into_iter().for_each(|holder| holder.release_blocking().unwrap());
        }
        if micros % 1500 == 0 {
            proxy.reset();
        }
    }
    rig.until("nothing is left", || rig.nodes().is_empty());
}

/// F50, F51: the server of this client is cut off from its leader and still answers, while the leader ends the session.
#[test]
fn a_server_without_its_leader_keeps_no_hold_alive() {
    let mut ensemble = ZookeeperEnsemble::start();
    let leader = ensemble.leader();
    let follower = (leader + 1) % 3;
    let ports = ensemble.ports();
    let client = |server: usize| {
        let config = Config::new(vec![local(ports[server])]);
        Locks::builder(Arc::new(ZookeeperEngine::new(config, &leasehold_core::Env::system()))).build()
    };
    let (cut, other) = (client(follower), client(leader));
    let held = acquire_short(&cut, "a");
    ensemble.cut(follower);
    // From the next grant on, the first hold must not count as valid.
    let next = acquire(&other, "a");
    assert!(!held.check(), "two clients hold");
    assert!(next.token().number > held.token().number);
    ensemble.heal(follower);
    next.release_blocking().unwrap();
}

/// The first claim holds. The other one is sent, and no server receives it.
pub(crate) async fn claim_undelivered(engine: &ZookeeperEngine, proxy: &Proxy, [first, claim]: [&Claim; 2]) {
    assert!(matches!(engine.claim(first, How::Create).await, Ok(Answer::Held(_))));
    proxy.hold_requests();
    let mut sending = engine.claim(claim, How::Create);
    while !proxy.holds_a_request() {
        let sent = tokio::time::timeout(Duration::from_millis(100), &mut sending).await;
        assert!(sent.is_err(), "no server receives it: {sent:?}");
    }
}

/// R9: a leader without followers still answers requests that need no quorum, among them `sync`. Nodes that it does not
/// know of may exist all the same.
#[test]
fn a_release_without_a_quorum_is_not_answered() {
    let mut ensemble = ZookeeperEnsemble::start();
    let (leader, ports) = (ensemble.leader(), ensemble.ports());
    let followers = [(leader + 1) % 3, (leader + 2) % 3];
    let (rig, proxy) = (Rig::new(), Proxy::start(ports[leader]));
    let config = Config::new(vec![local(proxy.port())]);
    let engine = ZookeeperEngine::new(config, &leasehold_core::Env::system());
    let (first, claim) = (rig.claim("a"), rig.claim("a"));
    rig.run(async {
        claim_undelivered(&engine, &proxy, [&first, &claim]).await;
        followers.into_iter().for_each(|node| ensemble.pause(node));
        proxy.reset();
        let answer =
            tokio::time::timeout(Duration::from_secs(2), release_until_certain(&engine, &claim)).await;
        assert!(answer.is_err(), "one server of three has no quorum: {answer:?}");
        followers.into_iter().for_each(|node| ensemble.resume(node));
        let ended = async {
            while !matches!(engine.release(&release_of(&claim)).await[..], [Released::NotThere]) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("two of three are a quorum");
    });
}

/// R9: a request that was sent before the release of its claim may be applied after it.
#[test]
fn a_late_node_of_a_released_claim_is_deleted() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let (first, claim) = (rig.claim("a"), rig.claim("a"));
    rig.run(async {
        claim_undelivered(&engine, &proxy, [&first, &claim]).await;
        proxy.reset();
        let answer = tokio::time::timeout(PATIENCE, release_until_certain(&engine, &claim))
            .await
            .expect("the server is there");
        assert!(matches!(answer[..], [Released::NotThere]), "{answer:?}");
    });
    let id = claim.id.to_string();
    let id = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
    rig.server.command(&["create", "-s", &format!("/locks/a/_c_{id}-lock-"), "late"]);
    rig.until("it is deleted while the first one holds", || {
        let view = rig.show("a");
        view.waiters.is_empty() && view.holders.iter().any(|holder| !holder.foreign)
    });
    rig.run(engine.release(&release_of(&first)));
}

/// F53: the counter of a directory is nearly used up.
#[test]
fn a_nearly_used_up_counter_restarts_when_the_queue_is_empty() {
    let mut rig = Rig::new();
    let first = acquire(&rig.locks(), "a");
    let token = first.token();
    first.release_blocking().unwrap();
    rig.server.kill();
    rig.server.set_child_counter("/locks/a", i32::MAX - (1 << 20) - 1);
    rig.server.restart();
    let locks = rig.locks();
    let last = acquire(&locks, "a");
    assert!(rig.nodes()[0].ends_with(&(i32::MAX - (1 << 20) - 1).to_string()), "{:?}", rig.nodes());
    let waits = wait_for(&rig.locks(), "a");
    assert!(waits.recv_timeout(Duration::from_millis(500)).is_err());
    last.release_blocking().unwrap();
    let next = waits.recv_timeout(PATIENCE).unwrap();
    assert!(rig.nodes()[0].ends_with("-lock-0000000000"), "{:?}", rig.nodes());
    assert!(next.token().number > token.number);
    next.release_blocking().unwrap();
}

/// R1: the server does not know the ttl of the hold. The client is well but does not renew the hold.
#[test]
fn a_fixed_lease_ends_although_its_session_lives() {
    let rig = Rig::new();
    with_longer_leases(TTL, "the fixed hold ends, and the renewed one does not", |ttl| {
        let (locks, other) = (rig.locks(), rig.locks());
        let fixed = locks.mutex("a").ttl(ttl).renew(false).blocking().acquire_within(PATIENCE).unwrap();
        let renewed = locks.mutex("b").ttl(ttl).blocking().acquire_within(PATIENCE).unwrap();
        let next = acquire(&other, "a");
        assert!(!fixed.check(), "two clients hold");
        next.release_blocking().unwrap();
        renewed.check()
    });
}

/// F47: older data on the server revives a session with claims that have ended.
#[test]
fn older_data_on_the_server_ends_the_session_and_its_claims() {
    let mut rig = Rig::new();
    let engine = rig.engine();
    let (stays, over) = (rig.claim("stays"), rig.claim("over"));
    let hold = rig.run(async {
        let Ok(Answer::Held(_)) = engine.claim(&over, How::Create).await else { panic!("not granted") };
        let Ok(Answer::Held(grant)) = engine.claim(&stays, How::Create).await else { panic!("not granted") };
        leasehold_core::Hold {
            id: stays.id,
            name: stays.name.clone(),
            mode: stays.mode,
            token: grant.token,
            ttl: stays.ttl,
        }
    });
    rig.server.save();
    rig.server.restart();
    rig.run(async {
        while !matches!(engine.release(&release_of(&over)).await[..], [Released::Freed]) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for _ in 0..10 {
            let more = rig.claim("more");
            assert!(matches!(engine.claim(&more, How::Create).await, Ok(Answer::Held(_))));
            engine.release(&release_of(&more)).await;
        }
    });
    rig.server.restore();
    rig.server.restart();
    rig.run(async {
        let lost = tokio::time::timeout(PATIENCE, async {
            loop {
                if let [Renewed::Lost(_)] = engine.renew(std::slice::from_ref(&hold)).await[..] {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        lost.await.unwrap();
    });
    rig.until("nothing is left", || rig.nodes().is_empty());
}

/// It does not matter which client deleted the node.
#[test]
fn a_hold_whose_node_is_deleted_is_lost_at_once() {
    let rig = Rig::new();
    let engine = rig.engine();
    let claim = rig.claim("a");
    rig.run(async {
        assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Held(_))));
    });
    rig.until("the hold is watched", || rig.watches() > 0);
    rig.server.command(&["delete", &rig.nodes()[0]]);
    let notification =
        rig.run(async { tokio::time::timeout(PATIENCE, engine.notifications()).await }).unwrap();
    assert!(
        matches!(&notification[..], [Notification::Lost { id, loss: Loss::Gone, .. }] if *id == claim.id),
        "{notification:?}"
    );
}

/// A waiter is granted by the report of a deletion, without another request. So the end of its own node must be
/// reported to it.
#[test]
fn a_waiter_whose_node_is_deleted_queues_again() {
    let rig = Rig::new();
    let (holder, waiter) = (rig.locks(), rig.locks());
    let held = acquire(&holder, "a");
    let granted = wait_for(&waiter, "a");
    // The holder watches its own node.
    rig.until("the waiter watches both nodes", || rig.watches() == 3);
    let numbered = |number: &str| rig.nodes().into_iter().find(|node| node.ends_with(number));
    rig.server.command(&["delete", &numbered("0000000001").expect("the waiter has the second node")]);
    rig.until("the waiter has another node", || numbered("0000000002").is_some());
    held.release_blocking().unwrap();
    granted.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
}

/// The server reports to a waiter every change that concerns the waiter, so the waiter asks for nothing.
#[test]
fn waiters_send_no_requests_while_nothing_changes() {
    const NAMES: [&str; 20] =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];
    let rig = Rig::new();
    let (holder, waiter) = (rig.locks(), rig.locks());
    let held: Vec<Guard> = NAMES.map(|name| acquire(&holder, name)).into();
    let granted = NAMES.map(|name| wait_for(&waiter, name));
    // Each holder watches its own node, each waiter two nodes.
    rig.until("all watch", || rig.watches() as usize == 3 * NAMES.len());
    let (before, begin) = (rig.requests(), std::time::Instant::now());
    std::thread::sleep(Duration::from_secs(4));
    // A waiter asks once in half a minute, and the two sessions send heartbeats.
    let a_second = f64::from(rig.requests() - before) / begin.elapsed().as_secs_f64();
    assert!(a_second < NAMES.len() as f64 / 4.0, "{a_second} requests a second");
    drop(held);
    granted.iter().for_each(|granted| drop(granted.recv_timeout(PATIENCE).unwrap()));
}

/// A cron job acquires one lock and leaves no session.
#[test]
fn only_a_second_lock_leaves_a_session_open() {
    let rig = Rig::new();
    let locks = rig.locks();
    acquire(&locks, "a").release_blocking().unwrap();
    assert_eq!(rig.sessions(), 0);
    acquire(&locks, "a").release_blocking().unwrap();
    assert_eq!(rig.sessions(), 1, "the next one needs no connection for it");
    rig.run(async {
        let name = Name::new("a").unwrap();
        let (one, two, _) = tokio::join!(locks.show("a"), locks.show("b"), rig.view(&name));
        assert!(one.is_ok() && two.is_ok());
    });
    assert_eq!(rig.sessions(), 1, "a query leaves no session");
    drop(locks);
    rig.until("the session is closed", || rig.sessions() == 0);
}
