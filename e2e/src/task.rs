//! One task of a client: acquires locks in every way that the API offers, and works under them.

use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Guard, Locks, Mode, Modes, Request};
use leasehold_testkit::history::{Attempt, Granted, now_nanos};
use tokio::time::sleep;

use crate::{
    client::ClientState, election, observer::owner_of, once, patience::Patience, rng::Rng, section, set,
};

/// The ttl of the clients' leases: so short that many faults last longer. On an engine whose shortest ttl is longer
/// than this, the clients use that shortest ttl.
pub const TTL: Duration = Duration::from_secs(1);

/// The names that all clients contend for. The first letter says whether the lock is a mutex, a read-write lock or a
/// semaphore.
pub const LOCKS: [&str; 8] = ["m0", "m1", "m2", "m4", "r0", "r1", "s0", "s1"];

/// Whether tasks always await the answer to a release of this lock, and never drop an acquire of this lock before it
/// returns. Then the history shows when the lock is free, as I7 needs.
#[must_use]
pub fn has_certain_releases(lock: &str) -> bool {
    lock.ends_with(['0', '2', '4'])
}

/// Whether tasks that wait for this lock always wait without a limit. An acquire that gives up at its limit may leave a
/// granted claim, which holds the lock until its cleanup.
pub(crate) fn never_gives_up(lock: &str) -> bool {
    lock.ends_with(['2', '4'])
}

/// The limit of the semaphores.
const PERMITS: u32 = 3;

/// Works until the time of the round is up.
pub async fn work(state: ClientState, task: u32) {
    let mut rng = Rng::new(state.seed, u64::from(task) + 1);
    while now_nanos() < state.until {
        let has_memos = state.locks.profile().no_memos.is_none();
        match rng.below(100) {
            0..8 => set::attempt(&state, task, &mut rng).await,
            8..13 if has_memos => election::attempt(&state, task, &mut rng).await,
            13..19 if has_memos => once::attempt(&state, task, &mut rng).await,
            _ => attempt_once(&state, task, &mut rng).await,
        }
        if rng.percent(30) {
            sleep(rng.millis(1..8)).await;
        }
    }
}

/// Acquires a random lock in a random way, and works under it.
async fn attempt_once(state: &ClientState, task: u32, rng: &mut Rng) {
    let lock = *rng.pick(&LOCKS);
    let mode = mode_for(state, lock, rng);
    let request = request_for(&state.locks, lock, mode).ttl(ttl(&state.locks)).renew(rng.percent(90));
    let patience = Patience::draw(rng, &[lock]);
    let attempt = state.recorder.attempt(task, lock, mode, patience.limit());
    let request =
        if names_attempt(patience, rng) { request.owner(owner_of(attempt.id()).as_str()) } else { request };
    let acquire = match patience {
        Patience::Try => request.try_acquire(),
        Patience::Within(limit) => request.acquire_within(limit),
        Patience::Endless | Patience::Cancelled(_) => request.acquire(),
    };
    match patience.await_for(acquire).await {
        None => attempt.cancelled(),
        Some(Ok(guard)) => {
            let active_hold = attempt
                .granted(grant_details(&guard, ttl(&state.locks)), || section::remaining_nanos(&guard));
            section::work_and_release(state, lock, active_hold, guard, rng).await;
        }
        Some(Err(error)) => {
            record_failure(attempt, &error);
            pause_after(&error, rng).await;
        }
    }
}

/// Whether the owner text of a request contains the attempt id: if the request may leave a claim behind, and for a
/// tenth of the other requests.
pub(crate) fn names_attempt(patience: Patience, rng: &mut Rng) -> bool {
    patience.may_cancel() || rng.percent(10)
}

/// A random mode for the lock. The first letter of the name decides what kind of lock it is.
pub(crate) fn mode_for(state: &ClientState, lock: &str, rng: &mut Rng) -> Mode {
    let kind = if state.locks.profile().modes == Modes::All { lock.as_bytes()[0] } else { b'm' };
    match kind {
        b'r' if !rng.percent(30) => Mode::Shared,
        b's' => Mode::Permits { count: 1 + rng.below(2) as u32, limit: PERMITS },
        _ => Mode::Exclusive,
    }
}

/// A request for the lock in this mode.
fn request_for(locks: &Locks, lock: &str, mode: Mode) -> Request {
    match mode {
        Mode::Shared => locks.rw(lock).read(),
        Mode::Permits { count, limit } => locks.semaphore(lock, limit).permits(count),
        _ if lock.starts_with('r') && locks.profile().modes == Modes::All => locks.rw(lock).write(),
        _ => locks.mutex(lock),
    }
}

/// The ttl that the clients ask for.
#[must_use]
pub fn ttl(locks: &Locks) -> Duration {
    let allowed = &locks.profile().ttl;
    TTL.clamp(*allowed.start(), *allowed.end())
}

/// What the history records of a grant.
pub(crate) fn grant_details(guard: &Guard, ttl: Duration) -> Granted {
    let ttl_nanos = guard.remaining().map(|_| ttl.as_nanos() as u64);
    // The confirmation of a pushed grant extends its deadline, so a deadline may move once even without renewals.
    Granted { token: guard.token(), ttl_nanos, watched: true, fixed: false }
}

/// Records a failed acquire. Only some errors, such as "taken", rule out that the claim was granted. An engine that is
/// not reachable now may have received and granted the claim before.
pub(crate) fn record_failure(attempt: Attempt<'_>, error: &Error) {
    if error.is_taken() {
        return attempt.taken();
    }
    let kind = format!("{:?}", error.kind());
    match error.kind() {
        ErrorKind::Taken | ErrorKind::TimedOut | ErrorKind::Refused | ErrorKind::Denied => {
            attempt.failed(&kind)
        }
        _ => attempt.unknown(&kind),
    }
}

/// A pause after an error that is not "taken". It keeps the loop of a task from overloading a server that is not
/// reachable.
pub(crate) async fn pause_after(error: &Error, rng: &mut Rng) {
    if !error.is_taken() {
        sleep(rng.millis(5..50)).await;
    }
}
