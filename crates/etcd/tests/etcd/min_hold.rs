//! Names that are kept taken by nobody: the program that kept them has ended, so no client of its ends their time.

use std::{thread::scope, time::Duration};

use leasehold_core::{Answer, Broken, Claim, Engine, Guard, How, Locks, Notification, Request};
use leasehold_etcd::EtcdEngine;
use leasehold_testkit::stopwatch::Stopwatch;

use crate::{
    go::Program,
    rig::{PATIENCE, Rig, acquire, locks, release_of},
};

/// For how long names are kept.
const KEPT: Duration = Duration::from_millis(200);
/// By how much a waiter may be late, on a machine that gives the time.
const LATE: Duration = Duration::from_millis(100);
const WAITERS: usize = 5;

/// Kept for so long, a name is free for another reason only.
const LONG: Duration = Duration::from_secs(3600);

/// With a server that knows no lease of less than eight seconds: one that ends a name is far from in time.
fn rig() -> Rig {
    Rig::with(&["--heartbeat-interval=500", "--election-timeout=5000"])
}

fn acquire_any(request: &Request) -> Guard {
    request.clone().blocking().acquire_within(PATIENCE).unwrap()
}

/// Lets go, keeps the name until so long after the grant, and ends, as a command does.
fn keep_and_end(locks: &Locks, guard: Guard, at_least: Duration) {
    guard.release_at_least_blocking(at_least).unwrap();
    assert_eq!(locks.close_blocking(PATIENCE), 0);
}

fn until_waiting(rig: &Rig, count: usize) {
    rig.until("all stand in line", || rig.show("a").waiters.len() == count);
}

#[test]
fn each_waiter_is_granted_in_time_after_an_ended_program() {
    let rig = rig();
    let (first, begin) = (rig.locks(), Stopwatch::start());
    let guard = acquire(&first, "a");
    scope(|scope| {
        let waiting: Vec<_> = (0..WAITERS)
            .map(|_| {
                scope.spawn(|| {
                    let locks = rig.locks();
                    let guard = acquire(&locks, "a");
                    let since = begin.elapsed();
                    keep_and_end(&locks, guard, KEPT);
                    since
                })
            })
            .collect();
        until_waiting(&rig, WAITERS);
        let (watch, before) = (Stopwatch::start(), begin.elapsed());
        keep_and_end(&first, guard, before + KEPT);
        let mut granted: Vec<Duration> = waiting.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        watch.assert_within((KEPT + LATE) * WAITERS as u32, "all waiters had the name");
        granted.sort_unstable();
        for (turn, since) in (1..).zip(granted) {
            assert!(since >= before + KEPT * turn, "{turn}: {since:?}, kept since {before:?}");
        }
    });
}

/// When the name was kept nobody tells who was not there.
#[test]
fn a_later_claim_waits_at_most_one_more_minimum_hold() {
    let rig = rig();
    let (locks, begin) = (rig.locks(), Stopwatch::start());
    let guard = acquire(&locks, "a");
    let before = begin.elapsed();
    keep_and_end(&locks, guard, before + KEPT);
    let watch = Stopwatch::start();
    let next = acquire(&rig.locks(), "a");
    assert!(begin.elapsed() >= before + KEPT, "{:?}", begin.elapsed());
    watch.assert_within(KEPT + 2 * LATE, "who came later");
    next.release_blocking().unwrap();
}

type Requests<'a> = &'a dyn Fn(&Locks) -> Request;

/// One or two programs keep a name of each kind of lock, for which another one waits.
#[test]
fn waiters_of_every_mode_are_granted_in_time() {
    let rig = rig();
    let write = |locks: &Locks| locks.rw("a").write();
    let read = |locks: &Locks| locks.rw("a").read();
    let permit = |locks: &Locks| locks.semaphore("a", 2);
    let kinds: [(Requests<'_>, usize, Requests<'_>, &str); 4] = [
        (&write, 1, &read, "a reader after a writer"),
        (&read, 1, &write, "a writer after a reader"),
        (&read, 2, &write, "a writer after two readers"),
        (&permit, 2, &permit, "a permit after two"),
    ];
    for (held, count, wanted, what) in kinds {
        let programs: Vec<Locks> = (0..count).map(|_| rig.locks()).collect();
        let begin = Stopwatch::start();
        let guards: Vec<Guard> = programs.iter().map(|locks| acquire_any(&held(locks))).collect();
        let wanted = wanted(&rig.locks());
        scope(|scope| {
            let waiting = scope.spawn(|| acquire_any(&wanted));
            until_waiting(&rig, 1);
            let watch = Stopwatch::start();
            for guard in guards {
                guard.release_at_least_blocking(begin.elapsed() + KEPT).unwrap();
            }
            programs.iter().for_each(|locks| assert_eq!(locks.close_blocking(PATIENCE), 0));
            let guard = waiting.join().unwrap();
            assert!(watch.elapsed() >= KEPT, "{what}: {:?}", watch.elapsed());
            watch.assert_within(KEPT + LATE, what);
            guard.release_blocking().unwrap();
        });
        rig.until("nothing is left", || rig.keys().is_empty());
    }
}

/// Keeps the name, with each of these holds, on leases that last, and says then that all do so for a time that is over soon: who does not
/// count that waits for hours.
fn keep_on_long_leases(rig: &Rig, holders: Vec<(Locks, Guard)>) {
    holders.into_iter().for_each(|(locks, guard)| keep_and_end(&locks, guard, LONG));
    let oldest_first = ["get", "/locks/a/", "--prefix", "--keys-only", "--sort-by=CREATE"];
    for key in locks(rig.server.command(&oldest_first)) {
        let record = rig.server.command(&["get", "--print-value-only", &key]).concat();
        let words: Vec<&str> = record.split(' ').collect();
        if let ["k", layout, claim, _, owner] = words[..] {
            let shorter = format!("k {layout} {claim} {} {owner}", KEPT.as_millis());
            rig.server.command(&["put", "--ignore-lease", &key, &shorter]);
        }
    }
}

/// Waits until this claim is said to be granted, and asks for nothing meanwhile.
fn until_granted(rig: &Rig, engine: &EtcdEngine, claim: &Claim) {
    let granted = |notification: &Notification| matches!(notification, Notification::Granted { id, .. } if *id == claim.id);
    rig.run(async {
        let received = async { while !engine.notifications().await.iter().any(granted) {} };
        tokio::time::timeout(PATIENCE, received).await.expect("it is granted without being asked for");
        engine.release(&release_of(claim)).await;
    });
}

#[test]
fn a_waiter_is_notified_of_a_minimum_hold_and_ends_it() {
    let rig = Rig::new();
    let (locks, engine, claim) = (rig.locks(), rig.engine(), rig.claim("a"));
    let guard = acquire(&locks, "a");
    assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Waiting(_))));
    keep_on_long_leases(&rig, vec![(locks, guard)]);
    until_granted(&rig, &engine, &claim);
}

/// It listens to the newest of those before it.
#[test]
fn a_writer_notified_of_one_reader_checks_the_others() {
    let rig = Rig::new();
    let (engine, claim) = (rig.engine(), rig.claim("a"));
    let read = |locks: Locks| {
        let guard = acquire_any(&locks.rw("a").read());
        (locks, guard)
    };
    let readers: Vec<_> = (0..3).map(|_| read(rig.locks())).collect();
    assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Waiting(_))));
    keep_on_long_leases(&rig, readers);
    let gone = || rig.keys().len() == 1;
    rig.run(async {
        // All rings, and what it asks then finds nothing in its way any more.
        let _ = tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
    });
    rig.until("no reader is left", gone);
    assert!(matches!(rig.run(engine.claim(&claim, How::Ask)), Ok(Answer::Held(_))));
    rig.run(engine.release(&release_of(&claim)));
}

#[test]
fn a_later_claim_finds_a_minimum_hold_and_ends_it() {
    let rig = Rig::new();
    let (locks, engine, claim) = (rig.locks(), rig.engine(), rig.claim("a"));
    let guard = acquire(&locks, "a");
    keep_on_long_leases(&rig, vec![(locks, guard)]);
    assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Waiting(_))));
    until_granted(&rig, &engine, &claim);
}

/// What was told while a waiter had no connection, it finds when it asks.
#[test]
fn a_waiter_finds_a_minimum_hold_after_it_reconnects() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let (locks, waits) = (rig.locks(), Locks::builder(engine).build());
    let guard = acquire(&locks, "a");
    scope(|scope| {
        let waiting = scope.spawn(|| acquire(&waits, "a"));
        until_waiting(&rig, 1);
        proxy.sever();
        keep_on_long_leases(&rig, vec![(locks, guard)]);
        proxy.mend();
        waiting.join().unwrap().release_blocking().unwrap();
    });
}

/// A try leaves nothing that would be told, but the next one finds the name free.
#[test]
fn a_try_ends_a_minimum_hold_counted_from_the_first_try() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    keep_on_long_leases(&rig, vec![(locks, guard)]);
    let begin = Stopwatch::start();
    let attempt = || other.mutex("a").blocking().try_acquire();
    assert!(attempt().unwrap_err().is_taken());
    rig.until("the name is free", || rig.keys().is_empty());
    assert!(begin.elapsed() >= KEPT, "{:?}", begin.elapsed());
    attempt().unwrap().release_blocking().unwrap();
}

/// Whoever waits behind a program of another kind waits for that one; and it waits for the end of the key, as for every other.
#[test]
fn the_official_client_waits_for_a_minimum_hold_in_the_queue() {
    let rig = Rig::new();
    let (locks, begin) = (rig.locks(), Stopwatch::start());
    let guard = acquire(&locks, "a");
    let mut go = Program::start(rig.server.port(), 30);
    assert_eq!(go.ask("lock /locks/a"), "queued");
    until_waiting(&rig, 1);
    scope(|scope| {
        let waiting = scope.spawn(|| acquire(&rig.locks(), "a"));
        until_waiting(&rig, 2);
        let before = begin.elapsed();
        keep_and_end(&locks, guard, before + KEPT);
        let _ = go.read_locked();
        assert!(begin.elapsed() >= before + KEPT);
        assert!(!waiting.is_finished());
        assert_eq!(go.ask("unlock /locks/a"), "unlocked");
        waiting.join().unwrap().release_blocking().unwrap();
    });
}

/// As on the other engines: nobody holds it who would have to let go.
#[test]
fn a_broken_minimum_hold_frees_the_name_at_once() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    let token = guard.token().number;
    keep_and_end(&locks, guard, LONG);
    assert_eq!(rig.show("a").holders[0].owner, "kept");
    assert_eq!(rig.run(other.break_hold("a", token, false)).unwrap(), Broken::Done);
    other.mutex("a").blocking().try_acquire().unwrap().release_blocking().unwrap();
    assert_eq!(rig.keys(), [""; 0]);
}
