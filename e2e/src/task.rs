//! One task of a client: acquires locks in every way that the API offers, and works under them.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use leasehold_core::{Error, ErrorKind, Guard, Locks, Mode, Modes, Request};
use leasehold_testkit::history::{Attempt, Granted, now_nanos};
use tokio::time::{sleep, timeout};

use crate::{client::ClientState, observer::owner_of, rng::Rng, section};

/// The ttl of the clients' leases: so short that many faults last longer. On an engine whose shortest ttl is longer
/// than this, the clients use that shortest ttl.
pub const TTL: Duration = Duration::from_secs(1);

/// The names that all clients contend for. The first letter says whether the lock is a mutex, a read-write lock or a
/// semaphore.
pub const LOCKS: [&str; 8] = ["m0", "m1", "m2", "m3", "m4", "m5", "r0", "s0"];

/// Whether tasks always await the answer to a release of this lock, and never drop an acquire of this lock before it
/// returns. Then the history shows when the lock is free, as I7 needs.
#[must_use]
pub fn has_certain_releases(lock: &str) -> bool {
    lock.ends_with(['0', '2', '4'])
}

/// Whether tasks that wait for this lock always wait without a limit. An acquire that gives up at its limit may leave a
/// granted claim, which holds the lock until its cleanup.
fn never_gives_up(lock: &str) -> bool {
    lock.ends_with(['2', '4'])
}

/// The limit of the semaphores.
const PERMITS: u32 = 3;

/// How long a task waits for a lock.
enum Patience {
    /// The task does not wait.
    Try,
    /// The task waits up to this limit.
    Within(Duration),
    /// The task waits without a limit.
    Endless,
    /// The task drops the acquire after this time.
    Cancelled(Duration),
}

/// Works until the time of the round is up.
pub async fn work(state: ClientState, task: u32) {
    let mut rng = Rng::new(state.seed, u64::from(task) + 1);
    while now_nanos() < state.until {
        attempt_once(&state, task, &mut rng).await;
        if rng.percent(30) {
            sleep(rng.millis(1..8)).await;
        }
    }
}

/// Acquires a random lock in a random way, and works under it.
async fn attempt_once(state: &ClientState, task: u32, rng: &mut Rng) {
    let lock = *rng.pick(&LOCKS);
    let (request, mode) = request_for(state, lock, rng);
    let request = request.ttl(ttl(&state.locks)).renew(rng.percent(90));
    let patience = match rng.below(100) {
        0..20 => Patience::Try,
        20..60 if !never_gives_up(lock) => Patience::Within(rng.millis(20..1500)),
        60..85 => Patience::Endless,
        _ if has_certain_releases(lock) => Patience::Endless,
        _ => Patience::Cancelled(rng.millis(0..60)),
    };
    let limit = match patience {
        Patience::Try => Some(0),
        Patience::Within(limit) => Some(limit.as_nanos() as u64),
        Patience::Endless | Patience::Cancelled(_) => None,
    };
    let attempt = state.recorder.attempt(task, lock, mode, limit);
    // If a request may leave a claim behind, its owner text contains the attempt id. So does the owner text of a tenth
    // of the other requests.
    let names_attempt = matches!(patience, Patience::Cancelled(_)) || rng.percent(10);
    let request = if names_attempt { request.owner(owner_of(attempt.id()).as_str()) } else { request };
    let result = match patience {
        Patience::Try => request.try_acquire().await,
        Patience::Within(limit) => request.acquire_within(limit).await,
        Patience::Endless => request.acquire().await,
        Patience::Cancelled(after) => match cancelled(&request, after).await {
            Some(result) => result,
            None => return attempt.cancelled(),
        },
    };
    match result {
        Ok(guard) => {
            let active_hold = attempt
                .granted(grant_details(&guard, ttl(&state.locks)), || section::remaining_nanos(&guard));
            section::work_and_release(state, lock, active_hold, guard, rng).await;
        }
        Err(error) => {
            record_failure(attempt, &error);
            // The pause keeps the loop from overloading a server that is not reachable.
            if !error.is_taken() {
                sleep(rng.millis(5..50)).await;
            }
        }
    }
}

/// A request for the lock, and its mode. The first letter of the name decides what kind of lock it is.
fn request_for(state: &ClientState, lock: &str, rng: &mut Rng) -> (Request, Mode) {
    let kind = if state.locks.profile().modes == Modes::All { lock.as_bytes()[0] } else { b'm' };
    match kind {
        b'm' => (state.locks.mutex(lock), Mode::Exclusive),
        b'r' if rng.percent(30) => (state.locks.rw(lock).write(), Mode::Exclusive),
        b'r' => (state.locks.rw(lock).read(), Mode::Shared),
        _ => {
            let count = 1 + rng.below(2) as u32;
            let request = state.locks.semaphore(lock, PERMITS).permits(count);
            (request, Mode::Permits { count, limit: PERMITS })
        }
    }
}

/// Acquires, but drops the acquire if it has not returned within `after`; if `after` is zero, drops it after its first
/// poll. Returns `None` if the acquire was dropped.
async fn cancelled(request: &Request, after: Duration) -> Option<Result<Guard, Error>> {
    let mut acquire = pin!(request.acquire());
    if after.is_zero() {
        return poll_fn(|cx| match acquire.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
    }
    timeout(after, acquire).await.ok()
}

/// The ttl that the clients ask for.
#[must_use]
pub fn ttl(locks: &Locks) -> Duration {
    let allowed = &locks.profile().ttl;
    TTL.clamp(*allowed.start(), *allowed.end())
}

/// What the history records of a grant.
fn grant_details(guard: &Guard, ttl: Duration) -> Granted {
    let ttl_nanos = guard.remaining().map(|_| ttl.as_nanos() as u64);
    // The confirmation of a pushed grant extends its deadline, so a deadline may move once even without renewals.
    Granted { token: guard.token(), ttl_nanos, watched: true, fixed: false }
}

/// Records a failed acquire. Only some errors, such as "taken", rule out that the claim was granted. An engine that is
/// not reachable now may have received and granted the claim before.
fn record_failure(attempt: Attempt<'_>, error: &Error) {
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
