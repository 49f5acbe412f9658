//! Minimum holds whose client has exited, so that it cannot end them in time.

use std::{thread::scope, time::Duration};

use leasehold_core::{Answer, Broken, Claim, Engine, Guard, How, Locks, Notification, Request};
use leasehold_etcd::EtcdEngine;
use leasehold_testkit::stopwatch::Stopwatch;

use crate::{
    go::Program,
    rig::{PATIENCE, Rig, acquire, locks, release_of},
};

/// The minimum hold time.
const MIN_HOLD: Duration = Duration::from_millis(200);
/// How late a grant may be, by the time that the machine gives to the test.
const MAX_DELAY: Duration = Duration::from_millis(100);
const WAITERS: usize = 5;

/// A minimum hold so long that the name becomes free for another reason only.
const LONG_MIN_HOLD: Duration = Duration::from_secs(3600);

/// Starts a server that grants no lease shorter than eight seconds: the end of a lease frees the name far too late.
fn rig_with_long_leases() -> Rig {
    Rig::with(&["--heartbeat-interval=500", "--election-timeout=5000"])
}

fn acquire_any(request: &Request) -> Guard {
    request.clone().blocking().acquire_within(PATIENCE).unwrap()
}

/// Releases with a minimum hold time, counted from the grant, and closes the client, as a command does.
fn release_and_close(locks: &Locks, guard: Guard, at_least: Duration) {
    guard.release_at_least_blocking(at_least).unwrap();
    assert_eq!(locks.close_blocking(PATIENCE), 0);
}

fn until_waiting(rig: &Rig, count: usize) {
    rig.until("all are queued", || rig.show("a").waiters.len() == count);
}

#[test]
fn each_waiter_is_granted_in_time_after_an_ended_program() {
    let rig = rig_with_long_leases();
    let (first, begin) = (rig.locks(), Stopwatch::start());
    let guard = acquire(&first, "a");
    scope(|scope| {
        let waiting: Vec<_> = (0..WAITERS)
            .map(|_| {
                scope.spawn(|| {
                    let locks = rig.locks();
                    let guard = acquire(&locks, "a");
                    let since = begin.elapsed();
                    release_and_close(&locks, guard, MIN_HOLD);
                    since
                })
            })
            .collect();
        until_waiting(&rig, WAITERS);
        let (watch, before) = (Stopwatch::start(), begin.elapsed());
        release_and_close(&first, guard, before + MIN_HOLD);
        let mut granted: Vec<Duration> = waiting.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        watch.assert_within((MIN_HOLD + MAX_DELAY) * WAITERS as u32, "all waiters had the name");
        granted.sort_unstable();
        for (number, since) in (1..).zip(granted) {
            assert!(
                since >= before + MIN_HOLD * number,
                "waiter {number}: {since:?}, the first release was at {before:?}"
            );
        }
    });
}

/// A client that arrives later was not notified of the minimum hold.
#[test]
fn a_later_claim_waits_at_most_one_more_minimum_hold() {
    let rig = rig_with_long_leases();
    let (locks, begin) = (rig.locks(), Stopwatch::start());
    let guard = acquire(&locks, "a");
    let before = begin.elapsed();
    release_and_close(&locks, guard, before + MIN_HOLD);
    let watch = Stopwatch::start();
    let next = acquire(&rig.locks(), "a");
    assert!(begin.elapsed() >= before + MIN_HOLD, "{:?}", begin.elapsed());
    watch.assert_within(MIN_HOLD + 2 * MAX_DELAY, "the later claim");
    next.release_blocking().unwrap();
}

/// Makes the request for a lock, given the locks of a client.
type MakeRequest<'a> = &'a dyn Fn(&Locks) -> Request;

/// One or two clients leave minimum holds in each mode, and another client waits for them.
#[test]
fn waiters_of_every_mode_are_granted_in_time() {
    let rig = rig_with_long_leases();
    let write = |locks: &Locks| locks.rw("a").write();
    let read = |locks: &Locks| locks.rw("a").read();
    let permit = |locks: &Locks| locks.semaphore("a", 2);
    let kinds: [(MakeRequest<'_>, usize, MakeRequest<'_>, &str); 4] = [
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
                guard.release_at_least_blocking(begin.elapsed() + MIN_HOLD).unwrap();
            }
            programs.iter().for_each(|locks| assert_eq!(locks.close_blocking(PATIENCE), 0));
            let guard = waiting.join().unwrap();
            assert!(watch.elapsed() >= MIN_HOLD, "{what}: {:?}", watch.elapsed());
            watch.assert_within(MIN_HOLD + MAX_DELAY, what);
            guard.release_blocking().unwrap();
        });
        rig.until("nothing is left", || rig.keys().is_empty());
    }
}

/// Leaves a minimum hold for each of these holds, on a long lease, and then rewrites all their records with a short
/// time: a waiter that does not count that time waits for hours.
fn leave_on_long_leases(rig: &Rig, holders: Vec<(Locks, Guard)>) {
    holders.into_iter().for_each(|(locks, guard)| release_and_close(&locks, guard, LONG_MIN_HOLD));
    let oldest_first = ["get", "/locks/a/", "--prefix", "--keys-only", "--sort-by=CREATE"];
    for key in locks(rig.server.command(&oldest_first)) {
        let record = rig.server.command(&["get", "--print-value-only", &key]).concat();
        let words: Vec<&str> = record.split(' ').collect();
        if let ["k", version, claim, _, owner] = words[..] {
            let shorter = format!("k {version} {claim} {} {owner}", MIN_HOLD.as_millis());
            rig.server.command(&["put", "--ignore-lease", &key, &shorter]);
        }
    }
}

/// Waits until the engine reports the grant of this claim, and sends no request meanwhile.
fn until_granted(rig: &Rig, engine: &EtcdEngine, claim: &Claim) {
    let granted = |event: &Notification| matches!(event, Notification::Granted { id, .. } if *id == claim.id);
    rig.run(async {
        let received = async { while !engine.notifications().await.iter().any(granted) {} };
        tokio::time::timeout(PATIENCE, received).await.expect("the grant is pushed");
        engine.release(&release_of(claim)).await;
    });
}

#[test]
fn a_waiter_is_notified_of_a_minimum_hold_and_ends_it() {
    let rig = Rig::new();
    let (locks, engine, claim) = (rig.locks(), rig.engine(), rig.claim("a"));
    let guard = acquire(&locks, "a");
    assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Waiting(_))));
    leave_on_long_leases(&rig, vec![(locks, guard)]);
    until_granted(&rig, &engine, &claim);
}

/// A writer watches only the newest key ahead of it.
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
    leave_on_long_leases(&rig, readers);
    let gone = || rig.keys().len() == 1;
    rig.run(async {
        // The end of the watched reader notifies the claim, which then has to ask.
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
    leave_on_long_leases(&rig, vec![(locks, guard)]);
    assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Waiting(_))));
    until_granted(&rig, &engine, &claim);
}

/// A waiter without a connection misses the notification, and finds the minimum hold when it asks.
#[test]
fn a_waiter_finds_a_minimum_hold_after_it_reconnects() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let (locks, waits) = (rig.locks(), Locks::builder(engine).build());
    let guard = acquire(&locks, "a");
    scope(|scope| {
        let waiting = scope.spawn(|| acquire(&waits, "a"));
        until_waiting(&rig, 1);
        proxy.block();
        leave_on_long_leases(&rig, vec![(locks, guard)]);
        proxy.unblock();
        waiting.join().unwrap().release_blocking().unwrap();
    });
}

/// A try leaves no watch, but counts the time, so the next try finds the name free.
#[test]
fn a_try_ends_a_minimum_hold_counted_from_the_first_try() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    leave_on_long_leases(&rig, vec![(locks, guard)]);
    let begin = Stopwatch::start();
    let attempt = || other.mutex("a").blocking().try_acquire();
    assert!(attempt().unwrap_err().is_taken());
    rig.until("the name is free", || rig.keys().is_empty());
    assert!(begin.elapsed() >= MIN_HOLD, "{:?}", begin.elapsed());
    attempt().unwrap().release_blocking().unwrap();
}

/// A claim behind a foreign program waits for that program, which waits for the deletion of the key of the minimum
/// hold.
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
        release_and_close(&locks, guard, before + MIN_HOLD);
        let _ = go.read_locked();
        assert!(begin.elapsed() >= before + MIN_HOLD);
        assert!(!waiting.is_finished());
        assert_eq!(go.ask("unlock /locks/a"), "unlocked");
        waiting.join().unwrap().release_blocking().unwrap();
    });
}

/// As on the other engines: a minimum hold has no holder that would have to release it.
#[test]
fn a_broken_minimum_hold_frees_the_name_at_once() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    let token = guard.token().number;
    release_and_close(&locks, guard, LONG_MIN_HOLD);
    assert_eq!(rig.show("a").holders[0].owner, "kept");
    assert_eq!(rig.run(other.break_hold("a", token, false)).unwrap(), Broken::Done);
    other.mutex("a").blocking().try_acquire().unwrap().release_blocking().unwrap();
    assert_eq!(rig.keys(), [""; 0]);
}
