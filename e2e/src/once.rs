//! Work that is done one time: tasks that run it, fail in it, are killed in it, and repeat it.

use std::time::Duration;

use leasehold_core::{Error, Guard, Mode, Once, OnceError, Ran};
use leasehold_testkit::history::{ActiveHold, Attempt, AttemptId, PendingRelease};

use crate::{
    client::ClientState,
    observer::owner_of,
    patience::Patience,
    rng::Rng,
    section::{self, record_release, remaining_nanos},
    task::{grant_details, names_attempt, pause_after, record_failure, ttl},
};

/// The keys, with the time in milliseconds for which their results are kept: shorter and longer than the leases and the
/// faults, and so short that nothing is left soon after a round.
pub(crate) const KEYS: [(&str, u64); 4] = [("o0", 300), ("o1", 1500), ("o2", 3000), ("o3", 6000)];

/// The error of work that fails on purpose.
#[derive(Debug)]
struct Failed;

/// What the history is still to be told of a call.
struct Call<'a> {
    /// Until the work begins, or the call returns without it.
    attempt: Option<Attempt<'a>>,
    /// While the work runs.
    active_hold: Option<ActiveHold<'a>>,
    /// After the work has ended: its release, and whether the hold counted as lost before.
    pending: Option<(PendingRelease<'a>, bool)>,
}

/// Runs or repeats the work of a random key.
pub(crate) async fn attempt(state: &ClientState, task: u32, rng: &mut Rng) {
    let (key, keep) = *rng.pick(&KEYS);
    let keep = Duration::from_millis(keep);
    // Whatever a repeat waits for, it may give up, and be dropped: the lock of a key is not judged by I7.
    let patience = Patience::draw(rng, &[]);
    let attempt = state.recorder.attempt(task, key, Mode::Exclusive, patience.limit());
    attempt.part();
    let id = attempt.id();
    let once = state.locks.once(key).keep(keep).ttl(ttl(&state.locks));
    let once = if names_attempt(patience, rng) { once.owner(&owner_of(id)) } else { once };
    let (length, fails) = (section::length(&state.locks, rng), rng.percent(10));
    let mut call = Call { attempt: Some(attempt), active_hold: None, pending: None };
    let work = async |guard: &Guard| {
        let Some(attempt) = call.attempt.take() else { return Err(Failed) };
        let granted = attempt.granted(grant_details(guard, ttl(&state.locks)), || remaining_nanos(guard));
        section::work_under(call.active_hold.insert(granted), guard, length, || false).await;
        let Some(active_hold) = call.active_hold.take() else { return Err(Failed) };
        let known_lost = !guard.check();
        if !fails {
            active_hold.storing(keep.as_nanos() as u64);
        }
        call.pending = Some((active_hold.releasing(None), known_lost));
        if fails { Err(Failed) } else { Ok(format!("{id:x}")) }
    };
    let result = run(&once, patience, work).await;
    if let Some(error) = call.record(result) {
        pause_after(&error, rng).await;
    }
}

/// Calls the run. Returns `None` if the call was dropped before it returned.
async fn run(
    once: &Once,
    patience: Patience,
    work: impl AsyncFnOnce(&Guard) -> Result<String, Failed>,
) -> Option<Result<Ran, OnceError<Failed>>> {
    match patience {
        Patience::Try => Some(once.try_run(work).await),
        Patience::Within(limit) => Some(once.run_within(limit, work).await),
        Patience::Endless | Patience::Cancelled(_) => patience.await_for(once.run(work)).await,
    }
}

impl Call<'_> {
    /// Records how the call ended. Returns the error of the lock, if there is one.
    fn record(self, result: Option<Result<Ran, OnceError<Failed>>>) -> Option<Error> {
        let Self { attempt, active_hold, pending } = self;
        match result {
            // The drop of the call ends the hold; the release has no answer.
            None => {
                if let Some(active_hold) = active_hold {
                    let _unanswered = active_hold.releasing(None);
                }
                if let Some(attempt) = attempt {
                    attempt.cancelled();
                }
            }
            Some(Ok(Ran::Fresh(_))) => {
                if let Some((pending, known_lost)) = pending {
                    record_release(pending, known_lost, Ok(()));
                }
            }
            Some(Ok(ran)) => {
                if let Some(attempt) = attempt {
                    attempt.replayed(attempt_of(ran.bytes()).unwrap_or(0));
                }
            }
            Some(Err(OnceError::NotBegun(error))) => {
                if let Some(attempt) = attempt {
                    record_failure(attempt, &error);
                }
                return Some(error);
            }
            Some(Err(OnceError::Cancelled(error))) => {
                if let Some(active_hold) = active_hold {
                    active_hold.lost(&format!("{:?}", error.kind()));
                }
                return Some(error);
            }
            Some(Err(OnceError::NotStored { error, .. })) => {
                if let Some((pending, known_lost)) = pending {
                    if error.is_lost() {
                        pending.not_stored();
                    }
                    record_release(pending, known_lost, Err(error));
                }
            }
            // The answer to the release of failed work is not returned.
            Some(Err(_)) => {
                if let Some((pending, _)) = pending {
                    pending.unknown("the work failed");
                }
            }
        }
        None
    }
}

/// The attempt whose result this is.
fn attempt_of(result: &[u8]) -> Option<AttemptId> {
    AttemptId::from_str_radix(str::from_utf8(result).ok()?, 16).ok()
}
