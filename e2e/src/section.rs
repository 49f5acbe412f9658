//! The work of a task under a lock, and the kinds of releases.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use leasehold_core::{Error, ErrorKind, Guard, Locks, Loss, Mode, Token};
use leasehold_testkit::history::{ActiveHold, PendingRelease};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{sleep, timeout},
};

use crate::{
    client::ClientState,
    results::WriteOutcome,
    rng::Rng,
    task::{TTL, has_certain_releases, ttl},
};

/// The interval at which a long section checks its hold.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// The shortest time for which the runtime can sleep.
pub(crate) const MIN_SLEEP: Duration = Duration::from_millis(1);
/// If two readings of a guard's deadline differ by no more than this, there was no renewal between them: they differ by
/// an error of the reading.
const RENEWAL_STEP: Duration = Duration::from_millis(50);

/// Works under a lock for a while, checks the hold repeatedly, and releases it.
pub async fn work_and_release(
    state: &ClientState,
    lock: &str,
    active_hold: ActiveHold<'_>,
    guard: Guard,
    rng: &mut Rng,
) {
    let length = length(&state.locks, rng);
    let work = (guard.mode() == Mode::Exclusive && rng.percent(5))
        .then(|| append(state, lock, &active_hold, guard.token()));
    work_under(&active_hold, &guard, length, || work.as_ref().is_some_and(|work| !work.is_finished())).await;
    if rng.percent(2) {
        let _ = guard.confirm().await;
    }
    release(lock, active_hold, guard, rng).await;
}

/// The random length of a section.
pub(crate) fn length(locks: &Locks, rng: &mut Rng) -> Duration {
    match rng.below(1000) {
        0..920 => rng.millis(0..2),
        920..992 => rng.millis(2..25),
        992..998 => rng.millis(100..600),
        // The length is measured in leases, so that some leases end during the section.
        _ => ttl(locks).mul_f64(rng.millis(1000..2200).as_secs_f64()),
    }
}

/// Appends an element to the fenced file of the lock. The fence may refuse the append, which is no error. Lost appends
/// are counted at the end of the round.
pub(crate) fn append(
    state: &ClientState,
    lock: &str,
    active_hold: &ActiveHold<'_>,
    token: Token,
) -> JoinHandle<std::io::Result<WriteOutcome>> {
    let (results, lock, element) = (state.results.clone(), lock.to_owned(), active_hold.id());
    spawn_blocking(move || results.append(&lock, element, Some(token), || ()))
}

/// Checks the hold repeatedly until `length` has passed and `busy` is false, or until the hold is lost.
pub(crate) async fn work_under(
    active_hold: &ActiveHold<'_>,
    guard: &Guard,
    length: Duration,
    busy: impl Fn() -> bool,
) {
    let begin = Instant::now();
    let mut lost = pin!(guard.lost());
    let mut last_deadline = deadline(guard);
    loop {
        check(active_hold, guard, &mut last_deadline);
        let until_end = length.saturating_sub(begin.elapsed());
        if until_end.is_zero() && !busy() {
            return;
        }
        tokio::select! {
            biased;
            loss = &mut lost => {
                active_hold.lost(&format!("{loss:?}"));
                active_hold.check(|| guard.check(), || remaining_nanos(guard));
                return;
            }
            () = sleep(until_end.clamp(MIN_SLEEP, CHECK_INTERVAL)) => {}
        }
    }
}

/// Checks the hold, and records a renewal since the last check. `last_deadline` is the deadline at the last renewal.
pub(crate) fn check(active_hold: &ActiveHold<'_>, guard: &Guard, last_deadline: &mut Option<Instant>) {
    active_hold.check(|| guard.check(), || remaining_nanos(guard));
    if let (Some(before), Some(now)) = (*last_deadline, deadline(guard))
        && now > before + RENEWAL_STEP
    {
        // The remaining time of an expired hold is 0 whenever it is read, so no deadline can be computed from it.
        active_hold.renewed(|| remaining_nanos(guard).filter(|remaining_nanos| *remaining_nanos > 0));
        *last_deadline = Some(now);
    }
}

/// Releases the hold in a random way.
async fn release(lock: &str, active_hold: ActiveHold<'_>, guard: Guard, rng: &mut Rng) {
    let kind = if has_certain_releases(lock) { rng.below(80) } else { rng.below(100) };
    let known_lost = !guard.check();
    match kind {
        0..75 => {
            let pending = active_hold.releasing(None);
            record_release(pending, known_lost, guard.release().await);
        }
        75..80 => {
            let min_hold = rng.millis(5..40);
            let pending = active_hold.releasing(Some(min_hold.as_nanos() as u64));
            record_release(pending, known_lost, guard.release_at_least(min_hold).await);
        }
        80..90 => {
            let _unanswered = active_hold.releasing(None);
            drop(guard);
        }
        // F17: this user does not wait for the answer to the release.
        _ => {
            let pending = active_hold.releasing(None);
            if let Ok(answer) = timeout(TTL / 1000, guard.release()).await {
                record_release(pending, known_lost, answer);
            }
        }
    }
}

/// Records the answer to a release. If the guard counted as lost before the release (`known_lost`), the library answers
/// without asking the server. Then the hold may last on the server for much longer than the guard was valid, so the
/// answer "was not held" counts as unknown.
pub(crate) fn record_release(pending: PendingRelease<'_>, known_lost: bool, answer: Result<(), Error>) {
    match answer {
        Ok(()) => pending.freed(),
        Err(error) if error.kind() == ErrorKind::Lost(Loss::Gone) && !known_lost => pending.not_held(),
        Err(error) => pending.unknown(&format!("{:?}", error.kind())),
    }
}

/// The remaining validity of the guard in nanoseconds.
pub fn remaining_nanos(guard: &Guard) -> Option<u64> {
    guard.remaining().map(|remaining_nanos| remaining_nanos.as_nanos() as u64)
}

/// The deadline of the guard by the clock of this process, if it is valid.
pub(crate) fn deadline(guard: &Guard) -> Option<Instant> {
    guard
        .remaining()
        .filter(|remaining_nanos| !remaining_nanos.is_zero())
        .map(|remaining_nanos| Instant::now() + remaining_nanos)
}
