//! Slots of a Redis Cluster that move while claims hold and wait for their names.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{
    Answer, Claim, Engine, Fault, Guard, How, Inspect, Locks, Mode, Notification, Released, Renewed,
};
use leasehold_redis::RedisEngine;
use leasehold_testkit::server::RedisCluster;

use crate::{
    cluster_rig::{ClusterRig, granted, hold_of, release_of},
    rig::{PATIENCE, acquire},
};

/// How many names the migration tests use. All names are in one slot, because they have the same text in braces.
const NAMES: usize = 100;

async fn must_wait(engine: &RedisEngine, claim: &Claim) {
    let answer = engine.claim(claim, How::Create).await;
    assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
}

/// Waits for the pushed grant of a claim, with or without the time since which the claim holds: on a busy machine the
/// client may not know that time.
async fn pushed_grant(engine: &RedisEngine, claim: &Claim) -> leasehold_core::Grant {
    let granted_by_push = async {
        loop {
            for notification in engine.notifications().await {
                if let Notification::Granted { id, grant, .. } = notification
                    && id == claim.id
                {
                    return grant;
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, granted_by_push).await.expect("the grant is pushed")
}

/// A script can only use keys of one slot.
#[test]
fn all_keys_of_a_name_share_one_slot() {
    let rig = ClusterRig::with(3, 0, &[]);
    let (locks, other) = (rig.locks(), rig.locks());
    for name in ["a", "a}b", "{", "{}x", "}{", "{a}b", "a{b}c{d}", "ä{ö}"] {
        let guard = acquire(&locks, name);
        let waiting = other.mutex(name).acquire_within(PATIENCE);
        let waiting = rig.runtime().spawn(waiting);
        rig.until("it waits", || rig.show(name).waiters.len() == 1);
        guard.release_blocking().unwrap();
        let next = rig.run(waiting).unwrap().unwrap();
        rig.run(next.confirm()).unwrap();
        next.release_blocking().unwrap();
        for guard in [
            locks.rw(name).read().blocking().acquire_within(PATIENCE).unwrap(),
            other.rw(name).read().blocking().acquire_within(PATIENCE).unwrap(),
        ] {
            guard.release_blocking().unwrap();
        }
    }
    rig.until("nothing is left", || rig.leftovers().is_empty());
}

/// R18: a server refuses a request about several slots, so the engine sends the batch in one request for each slot.
#[test]
fn renewals_and_releases_may_span_many_slots() {
    let rig = ClusterRig::with(3, 0, &[]);
    let engine = rig.engine();
    rig.run(async {
        let mut holds = Vec::new();
        for number in 0..300 {
            let mode = if number % 3 == 0 { Mode::Shared } else { Mode::Exclusive };
            let claim = Claim { mode, ..rig.claim(&format!("n{number}")) };
            let grant = granted(&engine, &claim).await;
            holds.push((claim, grant));
        }
        // Claims that never held are among the others, and get their own answers.
        let is_unknown = |index: usize| index.is_multiple_of(7);
        for index in (0..350).filter(|index| is_unknown(*index)) {
            holds.insert(index, (rig.claim(&format!("unknown{index}")), holds[0].1.clone()));
        }
        let renewals: Vec<_> = holds.iter().map(|(claim, grant)| hold_of(claim, grant)).collect();
        let renewed = engine.renew(&renewals).await;
        assert_eq!(renewed.len(), renewals.len());
        for (index, answer) in renewed.iter().enumerate() {
            let extended = matches!(answer, Renewed::Extended { .. });
            assert!(
                if is_unknown(index) { matches!(answer, Renewed::Lost(_)) } else { extended },
                "{index}: {answer:?}"
            );
        }
        let releases: Vec<_> = holds.iter().map(|(claim, grant)| release_of(claim, Some(grant))).collect();
        let released = engine.release(&releases).await;
        for (index, answer) in released.iter().enumerate() {
            let freed = matches!(answer, Released::Freed);
            assert!(
                if is_unknown(index) { matches!(answer, Released::NotThere) } else { freed },
                "{index}: {answer:?}"
            );
        }
    });
    assert!(rig.leftovers().is_empty());
}

/// A release grants to a waiter only if its client is subscribed. PUBLISH would count the subscribers of one node;
/// SPUBLISH counts all subscribers of the slot.
#[test]
fn a_pushed_grant_reaches_a_waiter_on_any_node() {
    let rig = ClusterRig::with(3, 0, &[]);
    let (here, there) = (rig.engine(), rig.engine());
    rig.run(async {
        for number in 0..20 {
            let (first, second) = (rig.claim(&format!("n{number}")), rig.claim(&format!("n{number}")));
            let grant = granted(&here, &first).await;
            must_wait(&there, &second).await;
            assert!(matches!(here.release(&[release_of(&first, Some(&grant))]).await[..], [Released::Freed]));
            let next = pushed_grant(&there, &second).await;
            assert!(next.token.number > grant.token.number);
            assert!(matches!(
                there.release(&[release_of(&second, Some(&next))]).await[..],
                [Released::Freed]
            ));
        }
    });
}

/// R14: while the slot migrates, no script fails after a write, and none creates a side key at the new node.
#[test]
fn a_migrating_slot_allows_renewals_and_releases_but_no_claims() {
    let rig = ClusterRig::with(3, 0, &[]);
    let (slot, from, to) = rig.slot_and_nodes("{x}");
    let engine = rig.engine();
    let claim = |number: usize, mode| Claim { mode, ..rig.claim(&format!("{{x}}{number}")) };
    let permits = Mode::Permits { count: 1, limit: 2 };
    let modes = [Mode::Exclusive, Mode::Shared, permits];
    let claims: Vec<_> = (0..12).map(|number| claim(number, modes[number % 3])).collect();
    let (waiting, free) = (claim(0, Mode::Exclusive), claim(99, Mode::Exclusive));
    let other = rig.engine();
    let mut grants = Vec::new();
    rig.run(async {
        for claim in &claims {
            grants.push(granted(&engine, claim).await);
        }
        must_wait(&other, &waiting).await;
    });
    rig.cluster().open_slot(slot, to).unwrap();
    // In each round some keys are at the old node and some at the new one.
    loop {
        rig.run(async {
            let holds: Vec<_> =
                claims.iter().zip(&grants).map(|(claim, grant)| hold_of(claim, grant)).collect();
            let renewed = engine.renew(&holds).await;
            // While the two keys of a shared hold are on different nodes, the answer is unknown, not a loss.
            let fits = |(renewed, claim): (&Renewed, &Claim)| match renewed {
                Renewed::Extended { .. } => true,
                Renewed::Unknown(error) => claim.mode != Mode::Exclusive && error.fault == Fault::Retry,
                _ => false,
            };
            assert!(renewed.iter().zip(&claims).all(fits), "{renewed:?}");
            for (claim, how) in [(&waiting, How::Ask), (&waiting, How::Create), (&free, How::Create)] {
                let error = other.claim(claim, how).await.unwrap_err();
                assert_eq!(error.fault, Fault::Retry, "{error:?}");
                assert!(error.message.contains(&format!("slot {slot} is moving")), "{error:?}");
            }
            let given_up = claim(98, Mode::Exclusive);
            assert!(matches!(
                other.release(&[release_of(&given_up, None)]).await[..],
                [Released::Unknown(_)]
            ));
        });
        if rig.cluster().move_keys(slot, 1).unwrap() == 0 {
            break;
        }
    }
    // The slot has moved completely. Until now the engine created nothing at the new node.
    rig.run(async {
        let ends: Vec<_> =
            claims[..6].iter().zip(&grants).map(|(claim, grant)| release_of(claim, Some(grant))).collect();
        let released = engine.release(&ends).await;
        assert!(released.iter().all(|one| matches!(one, Released::Freed)), "{released:?}");
    });
    assert!(rig.cluster().keys_in_slot(from, slot).is_empty());
    rig.cluster().close_slot(slot).unwrap();
    rig.run(async {
        let holds: Vec<_> =
            claims[6..].iter().zip(&grants[6..]).map(|(claim, grant)| hold_of(claim, grant)).collect();
        let renewed = engine.renew(&holds).await;
        assert!(renewed.iter().all(|one| matches!(one, Renewed::Extended { .. })), "{renewed:?}");
        // The waiter keeps its queue entry, and released names are free.
        let Answer::Held(next) = other.claim(&waiting, How::Ask).await.unwrap() else { panic!("it is free") };
        assert!(next.token.number > grants[0].token.number);
        for (number, mode) in (1..6).map(|number| (number, Mode::Exclusive)) {
            granted(&other, &claim(number, mode)).await;
        }
        granted(&other, &free).await;
    });
}

/// The slot is migrating for four times the ttl.
#[test]
fn a_long_slot_migration_ends_no_hold() {
    let rig = ClusterRig::with(3, 0, &[]);
    let (slot, _, to) = rig.slot_and_nodes("{x}");
    let locks = rig.locks();
    let ttl = Duration::from_secs(4);
    let guards: Vec<Guard> =
        [locks.mutex("{x}1").ttl(ttl), locks.rw("{x}2").read().ttl(ttl), locks.semaphore("{x}3", 2).ttl(ttl)]
            .into_iter()
            .map(|request| request.blocking().acquire_within(PATIENCE).unwrap())
            .collect();
    rig.cluster().open_slot(slot, to).unwrap();
    let begun = std::time::Instant::now();
    while begun.elapsed() < ttl * 4 {
        assert!(guards.iter().all(Guard::check));
        std::thread::sleep(Duration::from_millis(50));
    }
    while rig.cluster().move_keys(slot, 100).unwrap() > 0 {}
    assert!(guards.iter().all(Guard::check));
    for guard in guards {
        guard.release_blocking().unwrap();
    }
    rig.cluster().close_slot(slot).unwrap();
}

/// No key stays at the old node, and each waiter is granted.
#[test]
fn a_slot_migrates_under_a_hundred_holds_and_a_hundred_waiters() {
    let rig = ClusterRig::with(3, 0, &[]);
    migrate_under_holds_and_waiters(&rig, RedisCluster::migrate_slot);
}

/// Valkey from 9.0 on moves a slot in one step; the nightly tests run on it. Other servers refuse the command.
#[test]
fn an_atomic_slot_migration_loses_no_hold_or_waiter() {
    let rig = ClusterRig::with(3, 0, &[]);
    let info = rig.cluster().command(0, &["INFO", "server"]);
    let valkey = info.iter().find_map(|line| line.trim().strip_prefix("valkey_version:"));
    let can = valkey.is_some_and(|version| version.split('.').next().unwrap().parse::<u32>().unwrap() >= 9);
    if can {
        return migrate_under_holds_and_waiters(&rig, RedisCluster::migrate_slot_at_once);
    }
    let (slot, _, to) = rig.slot_and_nodes("{x}");
    let error = rig.cluster().migrate_slot_at_once(slot, to).unwrap_err();
    assert!(error.to_lowercase().contains("unknown subcommand"), "{error}");
}

fn migrate_under_holds_and_waiters(
    rig: &ClusterRig,
    migrate: fn(&mut RedisCluster, u16, usize) -> Result<(), String>,
) {
    let (slot, from, to) = rig.slot_and_nodes("{x}");
    let name = |number: usize| format!("{{x}}{number}");
    let holder = rig.locks();
    let mut guards: Vec<Guard> = (0..NAMES).map(|number| acquire(&holder, &name(number))).collect();
    // Four clients wait for each of 25 names, in this order.
    let programs: Vec<Locks> = (0..4).map(|_| rig.locks()).collect();
    let grant_order: Arc<Mutex<Vec<(usize, usize)>>> = Arc::default();
    let mut waiting = Vec::new();
    for (program, locks) in programs.iter().enumerate() {
        for number in 0..NAMES / 4 {
            let (acquired, grant_order) =
                (locks.mutex(name(number)).acquire_within(PATIENCE * 2), Arc::clone(&grant_order));
            waiting.push(rig.runtime().spawn(async move {
                let guard = acquired.await.unwrap();
                grant_order.lock().unwrap().push((number, program));
                let token = guard.token().number;
                guard.release().await.unwrap();
                (number, token)
            }));
        }
        for number in 0..NAMES / 4 {
            rig.until("they wait", || rig.show(&name(number)).waiters.len() == program + 1);
        }
    }
    let before: Vec<u64> = guards.iter().map(|guard| guard.token().number).collect();
    migrate(&mut rig.cluster(), slot, to).unwrap();
    assert!(rig.cluster().keys_in_slot(from, slot).is_empty());
    // The first names are released at once, before all clients know where the slot moved.
    for guard in guards.drain(..NAMES / 4) {
        guard.release_blocking().unwrap();
    }
    for waited in waiting {
        let (number, token) = rig.run(waited).unwrap();
        assert!(token > before[number], "tokens grow through a migration");
    }
    let grant_order = grant_order.lock().unwrap();
    for number in 0..NAMES / 4 {
        let order: Vec<usize> =
            grant_order.iter().filter(|entry| entry.0 == number).map(|entry| entry.1).collect();
        assert_eq!(order, [0, 1, 2, 3], "no waiter is passed over for {}", name(number));
    }
    assert!(guards.iter().all(Guard::check));
    for guard in guards {
        rig.run(guard.confirm()).unwrap();
        guard.release_blocking().unwrap();
    }
    rig.until("nothing is left", || rig.leftovers().is_empty());
}

/// I8: the client of the first waiter does not know yet where the slot moved, so it has no subscription at the new
/// node.
#[test]
fn a_waiter_keeps_its_position_when_its_slot_moves() {
    let rig = ClusterRig::with(2, 0, &[]);
    let (slot, _, to) = rig.slot_and_nodes("{x}");
    let engines = [rig.engine(), rig.engine(), rig.engine()];
    let claims = [rig.claim("{x}"), rig.claim("{x}"), rig.claim("{x}")];
    rig.run(async {
        let grant = granted(&engines[0], &claims[0]).await;
        for index in [1, 2] {
            must_wait(&engines[index], &claims[index]).await;
        }
        rig.cluster().migrate_slot(slot, to).unwrap();
        // The client of the second waiter knows of the move, and subscribes at the new node.
        must_still_wait(&engines[2], &claims[2]).await;
        assert!(matches!(
            engines[0].release(&[release_of(&claims[0], Some(&grant))]).await[..],
            [Released::Freed]
        ));
        let first = engines[1].claim(&claims[1], How::Ask).await;
        assert!(matches!(first, Ok(Answer::Held(_))), "{first:?}");
        must_still_wait(&engines[2], &claims[2]).await;
    });
}

/// A slot with subscriptions leaves a node while a thousand requests are in flight there.
#[test]
fn a_slot_migration_under_load_mixes_up_no_answers() {
    let rig = ClusterRig::with(2, 0, &[]);
    let (slot, from, to) = rig.slot_and_nodes("{x}");
    let (engine, other) = (rig.engine(), rig.engine());
    let (first, second) = (rig.claim("{x}"), rig.claim("{x}"));
    let leaving = rig.run(async {
        let grant = granted(&other, &first).await;
        must_wait(&engine, &second).await;
        grant
    });
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for _ in 0..3 {
                rig.cluster().migrate_slot(slot, to).unwrap();
                rig.cluster().migrate_slot(slot, from).unwrap();
            }
        });
        let mut rounds = 0;
        while !mover.is_finished() || rounds == 0 {
            rounds += 1;
            // Half of these names are on the node that the slot leaves.
            let claims: Vec<_> = (0..1000).map(|number| rig.claim(&format!("n{number}"))).collect();
            rig.run(async {
                let grants =
                    futures_util::future::join_all(claims.iter().map(|claim| granted(&engine, claim))).await;
                let holds: Vec<_> =
                    claims.iter().zip(&grants).map(|(claim, grant)| hold_of(claim, grant)).collect();
                let renewed = engine.renew(&holds).await;
                assert!(renewed.iter().all(|one| matches!(one, Renewed::Extended { .. })), "{renewed:?}");
                let ends: Vec<_> =
                    claims.iter().zip(&grants).map(|(claim, grant)| release_of(claim, Some(grant))).collect();
                let released = engine.release(&ends).await;
                assert!(released.iter().all(|one| matches!(one, Released::Freed)), "{released:?}");
            });
        }
        mover.join().unwrap();
    });
    // The claim subscribes at the final node of the slot when it asks.
    rig.run(async {
        must_still_wait(&engine, &second).await;
        assert!(matches!(other.release(&[release_of(&first, Some(&leaving))]).await[..], [Released::Freed]));
        pushed_grant(&engine, &second).await;
    });
}

async fn must_still_wait(engine: &RedisEngine, claim: &Claim) {
    let answer = engine.claim(claim, How::Ask).await;
    assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
}

/// R21: a repeated request gets the same answer.
#[test]
fn flushed_scripts_are_loaded_again_on_a_cluster_node() {
    let rig = ClusterRig::with(3, 0, &[]);
    let engine = rig.engine();
    // Servers before 7.0 have one count for all subcommands of SCRIPT.
    let loads = || {
        let calls = rig.calls();
        calls.get("script|load").or(calls.get("script")).copied().unwrap_or_default()
    };
    rig.run(async {
        let claim = rig.claim("a");
        let grant = granted(&engine, &claim).await;
        let (_, owner, _) = rig.slot_and_nodes("a");
        rig.cluster().command(owner, &["SCRIPT", "FLUSH"]);
        let before = loads();
        assert!(matches!(engine.renew(&[hold_of(&claim, &grant)]).await[..], [Renewed::Extended { .. }]));
        assert_eq!(granted(&engine, &claim).await.token, grant.token);
        assert_eq!(loads(), before + 3, "the script of renewals, and both scripts of claims");
        assert!(matches!(engine.release(&[release_of(&claim, Some(&grant))]).await[..], [Released::Freed]));
    });
}

/// I4: a slot moves to a node whose counter lacks the newest token, as after a fail-over. The client was connected to
/// that node before.
#[test]
fn tokens_grow_on_a_node_that_lacks_the_newest_token() {
    let rig = ClusterRig::with(2, 0, &[]);
    let (slot, _, to) = rig.slot_and_nodes("{x}");
    let engine = rig.engine();
    rig.run(async {
        // Connects to all nodes.
        Inspect::ping(&*engine).await.unwrap();
        let claim = rig.claim("{x}");
        let grant = granted(&engine, &claim).await;
        assert!(matches!(engine.release(&[release_of(&claim, Some(&grant))]).await[..], [Released::Freed]));
        rig.cluster().migrate_slot(slot, to).unwrap();
        let keys = rig.cluster().keys_in_slot(to, slot);
        let counter = keys.iter().find(|key| key.contains("}t")).unwrap();
        let stale = (grant.token.number - 1).to_string();
        rig.cluster().command(to, &["SET", counter, &stale, "PX", "3600000"]);
        let again = granted(&engine, &rig.claim("{x}")).await;
        assert!(again.token.number > grant.token.number, "{again:?} after {grant:?}");
    });
}

/// Counts the commands that the scripts run to claim and release free names, once the counter of the slot exists.
#[test]
fn a_cluster_runs_the_same_commands_as_one_server() {
    let rig = ClusterRig::with(3, 0, &[]);
    let one = crate::rig::Rig::new();
    let (cluster, alone) = (rig.locks(), one.locks());
    let names: Vec<_> = (0..50).map(|number| format!("n{number}")).collect();
    let pairs =
        |locks: &Locks| names.iter().for_each(|name| acquire(locks, name).release_blocking().unwrap());
    let counts = |lines: &[String]| -> std::collections::BTreeMap<String, u64> {
        let read = |line: &String| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((command.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        lines.iter().filter_map(read).collect()
    };
    let is_of_a_script = |command: &str| {
        ["evalsha", "set", "get", "getrange", "mget", "del", "exists", "incrby", "pexpire", "pttl", "zrange"]
            .contains(&command)
    };
    for locks in [&cluster, &alone] {
        pairs(locks);
    }
    let (before, first) = (rig.calls(), counts(&one.server.command(&["INFO", "commandstats"])));
    pairs(&cluster);
    pairs(&alone);
    let (after, last) = (rig.calls(), counts(&one.server.command(&["INFO", "commandstats"])));
    let grown = |after: std::collections::BTreeMap<String, u64>,
                 before: &std::collections::BTreeMap<String, u64>| {
        let grown = after.into_iter().map(|(command, calls)| {
            let grown = calls - before.get(&command).copied().unwrap_or_default();
            (command, grown)
        });
        grown.filter(|(command, grown)| *grown > 0 && is_of_a_script(command)).collect::<Vec<_>>()
    };
    assert_eq!(grown(after, &before), grown(last, &first));
}
