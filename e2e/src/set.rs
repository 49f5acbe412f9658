//! Requests for several names at once: all are granted together, and released together or one by one. The history has
//! an attempt for each name.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use leasehold_core::{All, Error, ErrorKind, Guard, Guards, Locks, Loss, Mode};
use leasehold_testkit::history::{ActiveHold, Attempt, PendingRelease};
use tokio::time::{sleep, timeout};

use crate::{
    client::ClientState,
    observer::owner_of_set,
    patience::Patience,
    rng::Rng,
    section::{self, CHECK_INTERVAL, MIN_SLEEP, remaining_nanos},
    task::{
        LOCKS, TTL, grant_details, has_certain_releases, mode_for, names_attempt, pause_after,
        record_failure, ttl,
    },
};

/// Names of each kind that are in no set. While a set waits, its first names may be held without a sign of it in the
/// history, so I7 cannot be judged for them then. These names keep the strict judgement.
const ALONE: [&str; 3] = ["m4", "r0", "s0"];

/// One name of a set: the lock and its active hold.
type Held<'a> = (&'static str, ActiveHold<'a>);

/// Acquires two or three random names in random modes and in random order, and works under them.
pub(crate) async fn attempt(state: &ClientState, task: u32, rng: &mut Rng) {
    let names = names(rng);
    let modes: Vec<Mode> = names.iter().map(|name| mode_for(state, name, rng)).collect();
    let patience = Patience::draw(rng, &names);
    let added = names.iter().zip(&modes);
    let request = added.fold(state.locks.all(), |request, (name, mode)| with(request, name, *mode));
    let request = request.ttl(ttl(&state.locks)).renew(rng.percent(90));
    let attempts: Vec<(&'static str, Attempt<'_>)> = names
        .iter()
        .zip(&modes)
        .map(|(name, mode)| (*name, state.recorder.attempt(task, name, *mode, patience.limit())))
        .collect();
    let is_single = matches!(patience, Patience::Try) && tries_each_once(&state.locks, names.len());
    for (_, attempt) in &attempts {
        if is_single { attempt.part_of_try() } else { attempt.part() }
    }
    let owner = || owner_of_set(attempts.iter().map(|(name, attempt)| (*name, attempt.id())));
    let request = if names_attempt(patience, rng) { request.owner(owner().as_str()) } else { request };
    let acquire = match patience {
        Patience::Try => request.try_acquire(),
        Patience::Within(limit) => request.acquire_within(limit),
        Patience::Endless | Patience::Cancelled(_) => request.acquire(),
    };
    match patience.await_for(acquire).await {
        None => attempts.into_iter().for_each(|(_, attempt)| attempt.cancelled()),
        Some(Ok(guards)) => {
            let holds = attempts
                .into_iter()
                .map(|(name, attempt)| {
                    let guard = guards.get(name).expect("the set has a guard for each of its names");
                    (
                        name,
                        attempt.granted(grant_details(guard, ttl(&state.locks)), || remaining_nanos(guard)),
                    )
                })
                .collect();
            work_and_release(state, holds, guards, rng).await;
        }
        Some(Err(error)) => {
            record_failures(attempts, &error);
            pause_after(&error, rng).await;
        }
    }
}

/// Two or three different names in random order.
fn names(rng: &mut Rng) -> Vec<&'static str> {
    let mut rest: Vec<&'static str> = LOCKS.into_iter().filter(|lock| !ALONE.contains(lock)).collect();
    (0..2 + rng.below(2)).map(|_| rest.swap_remove(rng.below(rest.len() as u64) as usize)).collect()
}

/// Whether a try of a set makes a single claim of each name, so that a name that it is refused was never held or
/// queued. One step takes all names or none; while this process uses one of them, each is tried by itself. On ZooKeeper
/// the one step has entries in all queues for a moment.
fn tries_each_once(locks: &Locks, names: usize) -> bool {
    let profile = locks.profile();
    profile.claims_at_once >= names && profile.engine != "zookeeper"
}

/// The request with one more name.
fn with(request: All, name: &str, mode: Mode) -> All {
    match mode {
        Mode::Shared => request.read(name),
        Mode::Permits { count, limit } => request.permits(name, count, limit),
        _ => request.mutex(name),
    }
}

/// Records a failed acquire. An error names the one lock that it is about; the others were free, or were not asked for.
fn record_failures(attempts: Vec<(&'static str, Attempt<'_>)>, error: &Error) {
    for (name, attempt) in attempts {
        match error.name() {
            Some(of) if error.is_taken() && of.as_str() != name => attempt.failed("another name was taken"),
            _ => record_failure(attempt, error),
        }
    }
}

/// Works under all names for a while, checks the holds repeatedly, and releases them.
async fn work_and_release(state: &ClientState, holds: Vec<Held<'_>>, guards: Guards, rng: &mut Rng) {
    let length = section::length(&state.locks, rng);
    let (lock, active_hold) = &holds[0];
    let guard = guards.get(lock).expect("the set has a guard for each of its names");
    let work = (guard.mode() == Mode::Exclusive && rng.percent(5))
        .then(|| section::append(state, lock, active_hold, guard.token()));
    work_under(&holds, &guards, length, || work.as_ref().is_some_and(|work| !work.is_finished())).await;
    if rng.percent(2) {
        let _ = guards.confirm().await;
    }
    release(holds, guards, rng).await;
}

/// Checks all holds repeatedly until `length` has passed and `busy` is false, or until one of them is lost.
async fn work_under(holds: &[Held<'_>], guards: &Guards, length: Duration, busy: impl Fn() -> bool) {
    let begin = Instant::now();
    let mut lost = pin!(guards.lost());
    let mut deadlines: Vec<Option<Instant>> =
        holds.iter().map(|(name, _)| guards.get(name).and_then(section::deadline)).collect();
    loop {
        for ((name, active_hold), last_deadline) in holds.iter().zip(&mut deadlines) {
            let Some(guard) = guards.get(name) else { continue };
            section::check(active_hold, guard, last_deadline);
        }
        let until_end = length.saturating_sub(begin.elapsed());
        if until_end.is_zero() && !busy() {
            return;
        }
        tokio::select! {
            biased;
            (name, loss) = &mut lost => {
                if let Some((_, active_hold)) = holds.iter().find(|(held, _)| *held == name.as_str()) {
                    active_hold.lost(&format!("{loss:?}"));
                }
                return;
            }
            () = sleep(until_end.clamp(MIN_SLEEP, CHECK_INTERVAL)) => {}
        }
    }
}

/// Releases all holds in a random way.
async fn release(holds: Vec<Held<'_>>, guards: Guards, rng: &mut Rng) {
    let certain = holds.iter().any(|(name, _)| has_certain_releases(name));
    match rng.below(if certain { 80 } else { 100 }) {
        0..50 => {
            let pending = releasing(holds, &guards, None);
            record_release(pending, guards.release().await);
        }
        50..75 => release_one_by_one(holds, guards).await,
        75..80 => {
            let min_hold = rng.millis(5..40);
            let pending = releasing(holds, &guards, Some(min_hold.as_nanos() as u64));
            record_release(pending, guards.release_at_least(min_hold).await);
        }
        80..90 => {
            let _unanswered = releasing(holds, &guards, None);
            drop(guards);
        }
        // F17: this user does not wait for the answers to the releases.
        _ => {
            let pending = releasing(holds, &guards, None);
            if let Ok(answer) = timeout(TTL / 1000, guards.release()).await {
                record_release(pending, answer);
            }
        }
    }
}

/// The release of one name, and whether the guard counted as lost before.
type Releasing<'a> = (&'static str, PendingRelease<'a>, bool);

/// Records that all names are about to be released.
fn releasing<'a>(holds: Vec<Held<'a>>, guards: &Guards, min_hold: Option<u64>) -> Vec<Releasing<'a>> {
    let releasing = |(name, active_hold): Held<'a>| {
        let known_lost = !guards.get(name).is_some_and(Guard::check);
        (name, active_hold.releasing(min_hold), known_lost)
    };
    holds.into_iter().map(releasing).collect()
}

/// Records the answer to the release of all names. An error is about one name, and the answers of the others are not
/// known.
fn record_release(pending: Vec<Releasing<'_>>, answer: Result<(), Error>) {
    let Err(error) = answer else {
        return pending.into_iter().for_each(|(_, pending, _)| pending.freed());
    };
    for (name, pending, known_lost) in pending {
        let is_own = error.name().is_some_and(|of| of.as_str() == name);
        match error.kind() {
            ErrorKind::Lost(Loss::Gone) if is_own && !known_lost => pending.not_held(),
            kind => pending.unknown(&format!("{kind:?}")),
        }
    }
}

/// Takes the set apart, and releases each name by itself.
async fn release_one_by_one(mut holds: Vec<Held<'_>>, guards: Guards) {
    for guard in guards.split() {
        let held = holds.iter().position(|(name, _)| *name == guard.name().as_str());
        let (_, active_hold) = holds.swap_remove(held.expect("each guard is of a name of the set"));
        let known_lost = !guard.check();
        let pending = active_hold.releasing(None);
        section::record_release(pending, known_lost, guard.release().await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_two_or_three_different_names() {
        let mut rng = Rng::new(1, 1);
        let mut lengths = [0; 4];
        for _ in 0..100 {
            let mut names = names(&mut rng);
            lengths[names.len()] += 1;
            assert!(!names.iter().any(|name| ALONE.contains(name)));
            names.sort_unstable();
            names.dedup();
            lengths[names.len()] += 1;
        }
        assert!(lengths[2] >= 40 && lengths[3] >= 40 && lengths[2] + lengths[3] == 200, "{lengths:?}");
    }
}
