//! Clients that try, wait, give up and end, in all modes at once; the history checker checks what they observed.

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use leasehold_core::{Error, Guard, Locks, Mode, Request};
use leasehold_testkit::{
    SetOnDrop,
    check::{Invariant, Outcome, Terms, check},
    history::{Attempt, Granted, Held, History, Recorder, What, now_nanos},
    stopwatch::Stopwatch,
};

use crate::World;

const NAMES: [&str; 3] = ["alone", "shared", "permits"];
const CLIENTS: u32 = 3;
const TASKS: u32 = 3;
const ROUNDS: u32 = 150;
/// Long enough for a busy machine.
const TTL: Duration = Duration::from_secs(30);

#[test]
fn recorded_histories_keep_the_invariants() {
    let world = World::new();
    let watch = Stopwatch::start();
    let recorders: Vec<_> = (0..=CLIENTS).map(|proc| Recorder::in_memory(1, proc)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let admin = world.client();
        let (done, admin_recorder) = (&done, &recorders[CLIENTS as usize]);
        let _done = SetOnDrop(done);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                NAMES.iter().for_each(|name| record_view(&admin, admin_recorder, name));
                thread::sleep(Duration::from_millis(1));
            }
        });
        let mut tasks = Vec::new();
        for recorder in &recorders[..CLIENTS as usize] {
            let locks = world.client();
            for task in 0..TASKS {
                let locks = locks.clone();
                tasks.push(scope.spawn(move || work(&locks, recorder, task)));
            }
        }
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
    let history = History::from_events(recorders.iter().flat_map(Recorder::events).collect());
    let mut terms = Terms::default();
    // Time for which the machine did not run the test does not count as a fault.
    let withheld = watch.elapsed() - watch.given();
    terms.wake = Duration::from_secs(5) + withheld;
    terms.over_limit = Duration::from_secs(5) + withheld;
    terms.report_limit = Duration::from_secs(1) + withheld;
    terms.cancelled += withheld;
    let report = check(&history, &terms);
    assert!(report.holds(), "{report}");
    for invariant in [Invariant::OneOrder, Invariant::Taken, Invariant::Deadlines, Invariant::Releases] {
        let outcome = report.verdict(invariant).map(|verdict| verdict.outcome);
        assert_eq!(outcome, Some(Outcome::Holds), "{report}");
    }
}

fn work(locks: &Locks, recorder: &Recorder, task: u32) {
    for round in 0..ROUNDS {
        let name = NAMES[((round + task) % 3) as usize];
        let (request, mode) = match (name, round % 5) {
            ("alone", _) => (locks.mutex(name), Mode::Exclusive),
            ("shared", 0) => (locks.rw(name).write(), Mode::Exclusive),
            ("shared", _) => (locks.rw(name).read(), Mode::Shared),
            (_, round) => {
                let count = 1 + round % 2;
                (locks.semaphore(name, 3).permits(count), Mode::Permits { count, limit: 3 })
            }
        };
        attempt_once(&request.ttl(TTL), mode, name, recorder, task, round);
    }
}

/// Makes one attempt: a try, a wait, a wait with a limit, or a wait that is given up, depending on the round.
fn attempt_once(request: &Request, mode: Mode, name: &str, recorder: &Recorder, task: u32, round: u32) {
    let patience = Duration::from_millis(5);
    match round % 7 {
        0..3 => {
            let attempt = recorder.attempt(task, name, mode, Some(0));
            record_hold(attempt, request.blocking().try_acquire());
        }
        3 => {
            let attempt = recorder.attempt(task, name, mode, Some(patience.as_nanos() as u64));
            record_hold(attempt, request.blocking().acquire_within(patience));
        }
        4 => {
            let attempt = recorder.attempt(task, name, mode, None);
            let mut acquire = pin!(request.acquire());
            let polled = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            match polled {
                Poll::Ready(result) => record_hold(attempt, result),
                Poll::Pending => attempt.cancelled(),
            }
        }
        _ => {
            let attempt = recorder.attempt(task, name, mode, None);
            record_hold(attempt, request.blocking().acquire());
        }
    }
}

/// Records the result of an attempt. If the attempt was granted, holds, checks and releases.
fn record_hold(attempt: Attempt<'_>, result: Result<Guard, Error>) {
    let guard = match result {
        Ok(guard) => guard,
        Err(error) if error.is_taken() => return attempt.taken(),
        Err(error) if error.is_unknown() => return attempt.unknown(&error.to_string()),
        Err(error) => return attempt.failed(&error.to_string()),
    };
    let left = || guard.remaining().map(|left| left.as_nanos() as u64);
    let ttl_nanos = Some(TTL.as_nanos() as u64);
    let active =
        attempt.granted(Granted { token: guard.token(), ttl_nanos, watched: false, fixed: false }, left);
    thread::sleep(Duration::from_micros(200));
    active.check(|| guard.check(), left);
    let release = active.releasing(None);
    match guard.release_blocking() {
        Ok(()) => release.freed(),
        Err(error) if error.is_lost() => release.not_held(),
        Err(error) => release.unknown(&error.to_string()),
    }
}

/// Records the engine's view of a name.
fn record_view(admin: &Locks, recorder: &Recorder, name: &str) {
    let request_time = now_nanos();
    let view = pollster::block_on(admin.show(name)).unwrap();
    let until = now_nanos();
    let holders = view.holders.iter().map(|holder| Held {
        attempt: 0,
        token: holder.token,
        expires: holder.remaining.map(|left| until + left.as_nanos() as u64),
    });
    let server_view = What::Truth { until, holders: holders.collect(), waiters: Vec::new() };
    recorder.note_lock(request_time, name, server_view);
}
