//! I13: whoever tries is told "taken" only while somebody holds or waits, not because others try.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use leasehold_core::{Locks, Mode, Request};
use leasehold_testkit::{
    check::{Invariant, Outcome, Terms, check},
    history::{Granted, History, Recorder},
};

use crate::rig::Rig;

/// Each of them has a part in what the others are told.
const CLIENTS: u32 = 3;
const TRIES: u32 = 300;

#[test]
fn a_try_that_finds_no_room_is_in_nobodys_way() {
    let rig = Rig::new();
    let (one, two, three) = (rig.locks(), rig.locks(), rig.locks());
    let permits = |locks: &Locks, count| locks.semaphore("p", 3).permits(count).blocking().try_acquire();
    let held = permits(&one, 2).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert!(permits(&two, 2).unwrap_err().is_taken());
            }
        });
        for number in 0..TRIES {
            match permits(&three, 1) {
                Ok(guard) => guard.release_blocking().unwrap(),
                Err(error) => {
                    over.store(true, Ordering::Relaxed);
                    panic!("try {number}: {error}");
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    held.release_blocking().unwrap();
}

fn tries_of(mode: impl Fn(u32) -> Mode + Sync) {
    let rig = Rig::new();
    let recorders: Vec<Recorder> = (1..=CLIENTS).map(|proc| Recorder::in_memory(1, proc)).collect();
    thread::scope(|scope| {
        for recorder in &recorders {
            let (locks, mode) = (rig.locks(), &mode);
            scope.spawn(move || {
                for number in 0..TRIES {
                    once(recorder, &locks, mode(number));
                }
            });
        }
    });
    let events = recorders.iter().flat_map(Recorder::events).collect();
    let report = check(&History::from_events(events), &Terms::default());
    assert_eq!(report.verdict(Invariant::Taken).unwrap().outcome, Outcome::Holds, "{report}");
}

fn once(recorder: &Recorder, locks: &Locks, mode: Mode) {
    let attempt = recorder.attempt(0, "a", mode, Some(0));
    match request(locks, mode).blocking().try_acquire() {
        Ok(guard) => {
            let facts = Granted { token: guard.token(), ttl_nanos: None, watched: false, fixed: false };
            let belief = attempt.granted(facts, || None);
            let leaving = belief.releasing(None);
            guard.release_blocking().unwrap();
            leaving.freed();
        }
        Err(error) => {
            assert!(error.is_taken(), "{error}");
            attempt.taken();
        }
    }
}

fn request(locks: &Locks, mode: Mode) -> Request {
    match mode {
        Mode::Exclusive => locks.rw("a").write(),
        Mode::Shared => locks.rw("a").read(),
        Mode::Permits { count, limit } => locks.semaphore("a", limit).permits(count),
    }
}

#[test]
fn of_those_who_try_a_mutex_none_is_refused_for_another_that_is() {
    tries_of(|_| Mode::Exclusive);
}

#[test]
fn of_readers_and_writers_likewise() {
    tries_of(|number| if number % 3 == 0 { Mode::Exclusive } else { Mode::Shared });
}

#[test]
fn of_those_who_try_permits_likewise() {
    tries_of(|number| Mode::Permits { count: 1 + number % 2, limit: 3 });
}
