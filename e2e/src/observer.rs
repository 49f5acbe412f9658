//! Records the holders and waiters that the server reports. An admin client polls the server, and the answers of the
//! server are added to the history at the end of the round.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{JoinHandle, sleep, spawn},
    time::Duration,
};

use leasehold_core::{Locks, View};
use leasehold_testkit::history::{AttemptId, Held, Recorder, What, now_nanos};
use tokio::runtime::Runtime;

use crate::{election::ELECTIONS, once::KEYS, task::LOCKS};

/// The pause between two polls of all names.
const INTERVAL: Duration = Duration::from_millis(20);

/// An owner text with the attempt id, so that a holder or waiter that the server reports can be matched with its
/// attempt. Requests with different owners share no hold.
#[must_use]
pub fn owner_of(attempt: AttemptId) -> String {
    format!("attempt {attempt:x}")
}

/// An owner text with the attempt ids of a request for several names, each with its name.
#[must_use]
pub(crate) fn owner_of_set<'n>(attempts: impl Iterator<Item = (&'n str, AttemptId)>) -> String {
    let attempts: Vec<_> = attempts.map(|(name, attempt)| format!("{name}={attempt:x}")).collect();
    format!("attempts {}", attempts.join(" "))
}

/// The attempt id in the owner text of a claim of this lock.
fn attempt_of(lock: &str, owner: &str) -> Option<AttemptId> {
    let attempt = match owner.strip_prefix("attempts ") {
        Some(of_set) => of_set
            .split(' ')
            .filter_map(|attempt| attempt.split_once('='))
            .find_map(|(name, attempt)| (name == lock).then_some(attempt)),
        None => owner.strip_prefix("attempt "),
    };
    AttemptId::from_str_radix(attempt?, 16).ok()
}

/// The names that the clients lock.
fn names(locks: &Locks) -> Vec<&'static str> {
    let has_memos = locks.profile().no_memos.is_none();
    let with_memos = ELECTIONS.into_iter().chain(KEYS.map(|(key, _)| key)).filter(|_| has_memos);
    LOCKS.into_iter().chain(with_memos).collect()
}

/// A thread with an admin client that polls the server.
pub struct Observer {
    /// Whether the thread has to end.
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Observation>>,
}

/// One answer of the server, with the times of the request and of the reply.
struct Observation {
    /// The time of the request.
    at: u64,
    /// The time of the reply.
    until: u64,
    lock: &'static str,
    view: View,
}

impl Observer {
    /// Starts the thread.
    #[must_use]
    pub fn begin(locks: Locks, runtime: Runtime) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let thread = spawn(move || {
            let (mut observations, names) = (Vec::new(), names(&locks));
            while !ended.load(Relaxed) {
                for &lock in &names {
                    let at = now_nanos();
                    // If the server is not reachable, there is no answer to record.
                    if let Ok(view) = runtime.block_on(locks.show(lock)) {
                        observations.push(Observation { at, until: now_nanos(), lock, view });
                    }
                }
                sleep(INTERVAL);
            }
            observations
        });
        Self { ends, thread }
    }

    /// Ends the thread and records the answers of the server: the holders, with their tokens if it knows them, and
    /// those waiters whose owner text has an attempt id.
    ///
    /// # Panics
    /// When the thread panicked.
    pub fn record(self, recorder: &Recorder) {
        self.ends.store(true, Relaxed);
        let observations = self.thread.join().expect("the observer does not panic");
        for observation in observations {
            let mut holders = Vec::new();
            for holder in &observation.view.holders {
                // This is the latest possible end, because the remaining time is counted from the reply.
                let expires = holder.remaining.map(|left| observation.until + left.as_nanos() as u64);
                let attempt = attempt_of(observation.lock, &holder.owner).unwrap_or(0);
                // The number of a foreign holder is no token of an attempt.
                let token = holder.token.filter(|_| !holder.foreign);
                holders.push(Held { attempt, token, expires });
            }
            let attempt_of_waiter = |owner: &str| attempt_of(observation.lock, owner);
            let waiters = observation.view.waiters.iter();
            let waiters = waiters.filter_map(|waiter| attempt_of_waiter(&waiter.owner)).collect();
            let what = What::Truth { until: observation.until, holders, waiters };
            recorder.note_lock(observation.at, observation.lock, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_text_tells_the_attempt_of_each_name() {
        assert_eq!(attempt_of("m1", &owner_of(0xab)), Some(0xab));
        let of_set = owner_of_set([("m1", 0xab), ("r0", 0xcd)].into_iter());
        assert_eq!(attempt_of("m1", &of_set), Some(0xab));
        assert_eq!(attempt_of("r0", &of_set), Some(0xcd));
        for (lock, other) in [("s0", of_set.as_str()), ("m1", "user@host:17"), ("m1", "attempts m1")] {
            assert_eq!(attempt_of(lock, other), None, "{other:?}");
        }
    }
}
