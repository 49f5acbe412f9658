//! I13: a try is answered "taken" only while another claim holds or waits, not because of other tries.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use leasehold_core::{KnownMode, Locks, Mode, Request};
use leasehold_testkit::{
    SetOnDrop,
    check::{Invariant, Outcome, Terms, check},
    history::{Granted, History, Recorder},
};

use crate::{
    raw_client::{Kind, LONG_SESSION_MILLIS, RawClient},
    rig::Rig,
};

/// Each client influences the answers of the others.
const CLIENTS: u32 = 3;
const TRIES: u32 = 300;
/// A try reads the queue for a second, and its last pause is the second half of that second.
const IN_THE_LAST_PAUSE: Duration = Duration::from_millis(750);

#[test]
fn a_refused_try_refuses_no_other() {
    let rig = Rig::new();
    let (one, two, three) = (rig.locks(), rig.locks(), rig.locks());
    let permits = |locks: &Locks, count| locks.semaphore("p", 3).permits(count).blocking().try_acquire();
    let held = permits(&one, 2).unwrap();
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        let _finished = SetOnDrop(&finished);
        scope.spawn(|| {
            while !finished.load(Ordering::Relaxed) {
                assert!(permits(&two, 2).unwrap_err().is_taken());
            }
        });
        for number in 0..TRIES {
            match permits(&three, 1) {
                Ok(guard) => guard.release_blocking().unwrap(),
                Err(error) => panic!("try {number}: {error}"),
            }
        }
    });
    held.release_blocking().unwrap();
}

fn check_tries(mode: impl Fn(u32) -> Mode + Sync) {
    let rig = Rig::new();
    let recorders: Vec<Recorder> = (1..=CLIENTS).map(|proc| Recorder::in_memory(1, proc)).collect();
    thread::scope(|scope| {
        for recorder in &recorders {
            let (locks, mode) = (rig.locks(), &mode);
            scope.spawn(move || {
                for number in 0..TRIES {
                    try_once(recorder, &locks, mode(number));
                }
            });
        }
    });
    let events = recorders.iter().flat_map(Recorder::events).collect();
    let report = check(&History::from_events(events), &Terms::default());
    assert_eq!(report.verdict(Invariant::Taken).unwrap().outcome, Outcome::Holds, "{report}");
}

fn try_once(recorder: &Recorder, locks: &Locks, mode: Mode) {
    let attempt = recorder.attempt(0, "a", mode, Some(0));
    match request(locks, mode).blocking().try_acquire() {
        Ok(guard) => {
            let granted = Granted { token: guard.token(), ttl_nanos: None, watched: false, fixed: false };
            let hold = attempt.granted(granted, || None);
            let release = hold.releasing(None);
            guard.release_blocking().unwrap();
            release.freed();
        }
        Err(error) => {
            assert!(error.is_taken(), "{error}");
            attempt.taken();
        }
    }
}

fn request(locks: &Locks, mode: Mode) -> Request {
    match mode.known() {
        KnownMode::Exclusive => locks.rw("a").write(),
        KnownMode::Shared => locks.rw("a").read(),
        KnownMode::Permits { count, limit } => locks.semaphore("a", limit).permits(count),
    }
}

#[test]
fn concurrent_tries_of_a_mutex_do_not_refuse_each_other() {
    check_tries(|_| Mode::Exclusive);
}

#[test]
fn concurrent_tries_of_readers_and_writers_do_not_refuse_each_other() {
    check_tries(|number| if number % 3 == 0 { Mode::Exclusive } else { Mode::Shared });
}

#[test]
fn concurrent_tries_of_permits_do_not_refuse_each_other() {
    check_tries(|number| Mode::Permits { count: 1 + number % 2, limit: 3 });
}

/// A hanging try may become the head of the queue at any time, so it refuses other tries, but only while its node
/// exists. If the node is deleted in the last pause of a try behind it, that try is granted.
#[test]
fn a_hanging_try_counts_as_a_waiter_while_it_exists() {
    let rig = Rig::new();
    let (holds, tries) = (rig.locks(), rig.locks());
    let read = |locks: &Locks, name: &str| locks.rw(name).read().blocking().try_acquire();
    let (mut held, mut taken) = (0, 0);
    for round in 0.. {
        let name = format!("n{round}");
        let first = read(&holds, &name).unwrap();
        // Behind the head of the queue, with the number that a sequential node would get.
        let node = format!("/locks/{name}/_c_00000000-0000-0000-0000-000000000000-try-lock-0000000001");
        let mut hanging = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
        hanging.create(&node, b"x", Kind::Ephemeral);
        assert!(read(&tries, &name).unwrap_err().is_taken());
        let answered = AtomicBool::new(false);
        thread::scope(|scope| {
            let trying = scope.spawn(|| {
                let answer = read(&tries, &name);
                answered.store(true, Ordering::SeqCst);
                answer
            });
            thread::sleep(IN_THE_LAST_PAUSE);
            hanging.delete(&node);
            let in_time = !answered.load(Ordering::SeqCst);
            match trying.join().unwrap() {
                Ok(guard) => {
                    (held, taken) = (held + 1, 0);
                    guard.release_blocking().unwrap();
                }
                // This answer is allowed once: it may have left before the node was deleted.
                Err(error) => {
                    taken += u32::from(in_time);
                    assert!(taken < 2, "no claim was ahead any more: {error}");
                }
            }
        });
        first.release_blocking().unwrap();
        if held == 3 {
            return;
        }
    }
}
