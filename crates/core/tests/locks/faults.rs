//! The API while requests and answers are lost, late, doubled and out of order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold_core::{Locks, Mode, memory::MemoryEngine};
use leasehold_testkit::{
    check::{self, Invariant, Terms},
    decorators::{Fault, Faulty, Rates, Verb},
    history::{Granted, Recorder},
    stopwatch::Stopwatch,
};

use crate::{PATIENCE, World, eventually, wait_until_renewed};

const FAULTS: [Fault; 5] =
    [Fault::RequestLost, Fault::ReplyLost, Fault::Late, Fault::Duplicated, Fault::SessionGone];

/// Ends a fault: late requests arrive, a lost session comes back.
fn heal(faulty: &Faulty) {
    pollster::block_on(faulty.deliver_late());
    faulty.heal();
}

/// Ends the fault as soon as it was met. It is met a moment before it has its effect, so this goes on until the work is
/// done.
fn heal_until(faulty: &Faulty, is_done: impl Fn() -> bool) {
    eventually("the fault was met", || faulty.pending() == 0);
    eventually("it is done in spite of the fault", || {
        heal(faulty);
        is_done()
    });
}

#[test]
fn a_claim_under_faults_is_granted_and_leaves_nothing() {
    for fault in FAULTS {
        let world = World::new();
        let (locks, faulty) = world.remote_client();
        faulty.next(Verb::Claim, fault);
        let request = locks.mutex("x");
        let acquiring = std::thread::spawn(move || request.blocking().acquire());
        heal_until(&faulty, || acquiring.is_finished());
        let guard = acquiring.join().unwrap().unwrap();
        assert!(guard.check(), "{fault:?}");
        assert!(world.client().mutex("x").blocking().try_acquire().unwrap_err().is_taken(), "{fault:?}");
        guard.release_blocking().unwrap();
        world.assert_no_leftovers();
    }
}

#[test]
fn a_failed_try_reports_an_error_and_leaves_nothing() {
    for fault in FAULTS {
        let world = World::new();
        let (locks, faulty) = world.remote_client();
        faulty.next(Verb::Claim, fault);
        let result = locks.mutex("x").blocking().try_acquire();
        match fault {
            Fault::Duplicated => assert!(result.unwrap().check()),
            _ => assert!(result.unwrap_err().is_unknown(), "{fault:?}"),
        }
        // R9: the delayed request arrives after its release, and must not create a hold that no client knows.
        heal(&faulty);
        world.assert_no_leftovers();
        assert!(world.client().mutex("x").blocking().try_acquire().is_ok(), "{fault:?}");
    }
}

#[test]
fn a_failed_release_is_retried_until_it_is_certain() {
    for fault in FAULTS {
        let world = World::new();
        let (locks, faulty) = world.remote_client();
        let guard = locks.mutex("x").blocking().acquire().unwrap();
        faulty.next(Verb::Release, fault);
        let releasing = std::thread::spawn(move || guard.release_blocking());
        heal_until(&faulty, || releasing.is_finished());
        let released = releasing.join().unwrap();
        assert!(released.is_ok(), "{fault:?}: {released:?}");
        world.assert_no_leftovers();
    }
}

#[test]
fn a_failed_renewal_does_not_lose_the_hold() {
    let renew = |fault| {
        let world = World::new();
        let (locks, faulty) = world.remote_client();
        // Renewed after each third: long enough for a busy machine.
        let guard = locks.mutex("x").ttl(Duration::from_secs(9)).blocking().acquire().unwrap();
        faulty.next(Verb::Renew, fault);
        thread::scope(|scope| {
            scope.spawn(|| {
                eventually("the fault was met", || faulty.pending() == 0);
                heal(&faulty);
            });
            wait_until_renewed(&guard);
        });
        assert!(guard.check(), "{fault:?}");
        drop(guard);
        world.assert_no_leftovers();
    };
    thread::scope(|scope| {
        for fault in [Fault::RequestLost, Fault::ReplyLost, Fault::Late, Fault::Duplicated] {
            scope.spawn(move || renew(fault));
        }
    });
}

#[test]
fn a_lost_session_is_reported_and_waiters_queue_again() {
    let world = World::new();
    let (locks, faulty) = world.remote_client();
    let guard = locks.mutex("x").ttl(Duration::from_secs(2)).blocking().acquire().unwrap();
    pollster::block_on(faulty.lose_session());
    let other = world.client().mutex("x").blocking().try_acquire().unwrap();
    faulty.heal();
    pollster::block_on(guard.lost());
    assert!(!guard.check());
    let request = locks.mutex("x");
    let waiter = std::thread::spawn(move || request.blocking().acquire().map(drop));
    eventually("queued again", || crate::waiter_count(&world.client(), "x") == 1);
    drop(other);
    drop(guard);
    waiter.join().unwrap().unwrap();
    world.assert_no_leftovers();
}

#[test]
fn lost_notifications_only_delay() {
    let world = World::new();
    let (locks, faulty) = world.remote_client();
    let other = world.client();
    for fault in [Fault::RequestLost, Fault::Duplicated] {
        let guard = other.mutex("x").blocking().acquire().unwrap();
        let request = locks.mutex("x");
        let waiter = std::thread::spawn(move || request.blocking().acquire().map(drop));
        eventually("queued", || crate::waiter_count(&other, "x") == 1);
        faulty.next(Verb::Notification, fault);
        drop(guard);
        waiter.join().unwrap().unwrap();
        world.assert_no_leftovers();
    }
}

/// How many locks each task acquires.
const ROUNDS: usize = 20;
/// The lease time in this test: long enough for a busy machine.
const TTL: Duration = Duration::from_secs(30);

/// Four clients with two tasks each on three names of two kinds, over connections that lose, repeat, delay and reorder.
#[test]
fn random_faults_break_no_invariant() {
    // Concurrently: most of the time is spent waiting for lost requests.
    thread::scope(|scope| (1..=9).for_each(|seed| drop(scope.spawn(move || storm(seed)))));
}

/// Clients under random faults, all from one seed; the checker judges their history.
fn storm(seed: u64) {
    let rates = Rates { request_lost: 30, reply_lost: 30, late: 30, duplicated: 30, ..Rates::default() };
    let watch = Stopwatch::start();
    let world = World::new();
    let recorder = Recorder::in_memory(seed, 0);
    let granted = AtomicUsize::new(0);
    let mut wires = Vec::new();
    thread::scope(|scope| {
        for client in 0..4 {
            let engine = Arc::new(MemoryEngine::new(Arc::clone(&world.store)));
            let faulty = Arc::new(Faulty::seeded(engine, seed * 10 + client, rates));
            let locks = Locks::builder(Arc::clone(&faulty) as _).build();
            wires.push(faulty);
            for task in 0..2 {
                let (locks, recorder, granted) = (locks.clone(), &recorder, &granted);
                scope.spawn(move || work(&locks, recorder, client as u32 * 2 + task, granted));
            }
        }
    });
    wires.iter().for_each(|wire| wire.stop_random_faults());
    wires.iter().for_each(|wire| heal(wire));
    let mut terms = Terms::default();
    // Releases and notifications get lost here, so a grant may need the next poll, and a release a second request. Time
    // for which the machine did not run the test does not count as a fault.
    let withheld = watch.elapsed() - watch.given();
    terms.wake = Duration::from_secs(10) + withheld;
    terms.over_limit += withheld;
    terms.report_limit += withheld;
    terms.cancelled += withheld;
    let report = check::check(&recorder.history(), &terms);
    assert!(report.holds(), "seed {seed}: {report:?}");
    assert!(report.verdict(Invariant::Exclusion).is_some());
    assert!(granted.into_inner() > ROUNDS, "seed {seed}: too few grants");
}

/// Acquires and releases locks of random names, and records that.
fn work(locks: &Locks, recorder: &Recorder, task: u32, granted: &AtomicUsize) {
    for round in 0..ROUNDS {
        let name = ["a", "b", "s"][(round + task as usize) % 3];
        let (request, mode) = match (name, round % 4) {
            ("s", _) => (locks.semaphore("s", 2), Mode::Permits { count: 1, limit: 2 }),
            (name, 0) => (locks.rw(name).read(), Mode::Shared),
            (name, _) => (locks.rw(name).write(), Mode::Exclusive),
        };
        let attempt = recorder.attempt(task, name, mode, None);
        match request.ttl(TTL).blocking().acquire_within(PATIENCE) {
            Ok(guard) => {
                granted.fetch_add(1, Ordering::Relaxed);
                let left = || guard.remaining().map(|left| left.as_nanos() as u64);
                let facts = Granted {
                    token: guard.token(),
                    ttl_nanos: Some(TTL.as_nanos() as u64),
                    watched: false,
                    fixed: false,
                };
                let active = attempt.granted(facts, left);
                // Long enough that readers and permits overlap.
                thread::sleep(Duration::from_millis(1));
                active.check(|| guard.check(), left);
                let leaving = active.releasing(None);
                match guard.release_blocking() {
                    Ok(()) => leaving.freed(),
                    Err(error) if error.is_lost() => leaving.not_held(),
                    Err(error) => leaving.unknown(&error.to_string()),
                }
            }
            Err(error) if error.is_taken() => attempt.taken(),
            Err(error) if error.is_unknown() => attempt.unknown(&error.to_string()),
            Err(error) => attempt.failed(&error.to_string()),
        }
    }
}
