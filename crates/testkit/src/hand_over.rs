//! Tests of hand-over inside a process. The engines with blocks of [`HAND_OVER_TOKENS`] tokens share these tests. Each
//! engine adds its own setup and its own faults. All functions use the name `a`.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use futures_util::FutureExt;
use leasehold_core::{BoxFuture, Error, Guard, HAND_OVER_TOKENS, Locks, Loss};
use tokio::{runtime::Runtime, time::timeout};

use crate::{
    SetOnDrop,
    rig::{PATIENCE, acquire},
};

/// The number of tasks of the process.
const TASKS: usize = 8;
/// How often each task locks the name.
const SECTIONS: usize = 40;

/// A request that waits in the local queue of the process.
type Waiting = BoxFuture<'static, Result<Guard, Error>>;

/// Runs threads that lock the name again and again. Checks that two threads never hold the lock at the same time, and
/// that the tokens grow. Returns the tokens.
///
/// # Panics
/// If the test fails.
pub fn sections(locks: &Locks) -> Vec<u64> {
    let (tokens, inside) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..TASKS {
            scope.spawn(|| {
                for _ in 0..SECTIONS {
                    let guard = acquire(locks, "a");
                    assert!(!inside.swap(true, Ordering::SeqCst), "two tasks are in the section");
                    tokens.lock().expect("no task panicked").push(guard.token().number);
                    inside.store(false, Ordering::SeqCst);
                    guard.release_blocking().expect("the hold is not lost");
                }
            });
        }
    });
    let tokens = tokens.into_inner().expect("no task panicked");
    assert_eq!(tokens.len(), TASKS * SECTIONS);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    tokens
}

/// Tests that the tasks of a process share claims: there must be far fewer claims than holds of tasks.
///
/// # Panics
/// If the test fails.
pub fn tasks_share_claims(locks: &Locks) {
    let tokens = sections(locks);
    let mut claims: Vec<u64> = tokens.iter().map(|&token| block(token)).collect();
    claims.dedup();
    assert!(claims.len() <= tokens.len() / 4, "{} claims for {} sections", claims.len(), tokens.len());
}

/// The tasks of a process want the name all the time. Meanwhile `turn` acquires and releases the name by another
/// program. `turn` must not fail.
///
/// # Panics
/// If the test fails.
pub fn busy_process_lets_others_in(locks: &Locks, mut turn: impl FnMut()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        for _ in 0..TASKS {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    acquire(locks, "a").release_blocking().expect("the hold is not lost");
                }
            });
        }
        for _ in 0..5 {
            turn();
        }
    });
}

/// Tests that a hold survives `fault`, which strikes while one task has the lock and another task waits. The hold must
/// then be handed over to the waiting task.
///
/// # Panics
/// If the test fails.
pub fn block_survives(runtime: &Runtime, locks: &Locks, fault: impl FnOnce()) {
    let first = acquire(locks, "a");
    let token = first.token().number;
    let mut next = waiting(runtime, locks);
    fault();
    first.release_blocking().expect("the hold is not lost");
    let next = granted(runtime, &mut next);
    assert!(next.token().number > token && next.check());
    next.release_blocking().expect("the hold is not lost");
}

/// `fault` ends the hold on the server while one task has the lock and another task waits. The first task must be
/// notified of the loss, and the waiting task must get a hold of another claim. Returns the guard of this new hold.
///
/// # Panics
/// If the test fails.
pub fn block_ends(runtime: &Runtime, locks: &Locks, fault: impl FnOnce()) -> Guard {
    let first = acquire(locks, "a");
    let lost_token = first.token().number;
    let mut next = waiting(runtime, locks);
    fault();
    assert_eq!(lost(runtime, &first), Loss::Gone);
    assert!(!first.check());
    let next = granted(runtime, &mut next);
    assert!(block(next.token().number) > block(lost_token), "the token comes from another claim");
    assert!(first.release_blocking().is_err());
    next
}

/// A waiting task gives up at the moment at which the hold is handed to it. The hold must go to the next waiting task.
/// If no other task waits, the hold must go back to the server; `await_free` waits until the name is free there.
///
/// # Panics
/// If the test fails.
pub fn given_up_at_its_step(runtime: &Runtime, locks: &Locks, await_free: impl Fn()) {
    for has_other in [false, true] {
        let first = acquire(locks, "a");
        let given_up = waiting(runtime, locks);
        let other = has_other.then(|| waiting(runtime, locks));
        // The release sends the guard to the waiter, which never looks at it.
        first.release_blocking().expect("the hold is not lost");
        drop(given_up);
        if let Some(mut other) = other {
            granted(runtime, &mut other).release_blocking().expect("the hold is not lost");
        }
        await_free();
    }
}

/// Tests that the end of one task's `max_hold` does not end the block of tokens, so that the next task still gets the
/// hold. Also tests that a hold without renewal is never handed to a task that wants renewals.
///
/// # Panics
/// If the test fails.
pub fn terms_of_tasks_are_kept(runtime: &Runtime, locks: &Locks) {
    let short = locks.mutex("a").max_hold(Duration::from_millis(1));
    let first = short.blocking().acquire_within(PATIENCE).expect("the name is free");
    let mut next = waiting(runtime, locks);
    assert_eq!(lost(runtime, &first), Loss::MaxHold);
    assert!(first.release_blocking().is_err());
    let next = granted(runtime, &mut next);
    assert!(next.check());
    next.release_blocking().expect("the hold is not lost");
    let not_renewed = locks.mutex("a").renew(false).blocking().acquire_within(PATIENCE);
    let not_renewed = not_renewed.expect("the name is free before long");
    let mut renewed = waiting(runtime, locks);
    let token = not_renewed.token().number;
    not_renewed.release_blocking().expect("the hold is not lost");
    let renewed = granted(runtime, &mut renewed);
    assert!(block(renewed.token().number) > block(token), "the token comes from another claim");
    renewed.release_blocking().expect("the hold is not lost");
}

/// The number of the block that contains this token.
fn block(token: u64) -> u64 {
    token / u64::from(HAND_OVER_TOKENS)
}

/// Makes a request that waits in the local queue of the process.
fn waiting(runtime: &Runtime, locks: &Locks) -> Waiting {
    let mut request: Waiting = Box::pin(locks.mutex("a").acquire());
    assert!(runtime.block_on(async { (&mut request).now_or_never() }).is_none(), "the name is held");
    request
}

/// Waits until a waiting request is granted, and returns its guard.
fn granted(runtime: &Runtime, request: &mut Waiting) -> Guard {
    let answer = runtime.block_on(async { timeout(PATIENCE, request).await });
    answer.expect("it is granted before long").expect("it is granted")
}

/// Waits until the loss of this hold is reported, and returns the loss.
fn lost(runtime: &Runtime, guard: &Guard) -> Loss {
    runtime.block_on(async { timeout(PATIENCE, guard.lost()).await }).expect("the loss is reported")
}
