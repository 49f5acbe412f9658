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

use crate::task::LOCKS;

/// The pause between two polls of all names.
const INTERVAL: Duration = Duration::from_millis(20);

/// An owner text with the attempt id, so that a holder or waiter that the server reports can be matched with its
/// attempt. Requests with different owners share no hold.
#[must_use]
pub fn owner_of(attempt: AttemptId) -> String {
    format!("attempt {attempt:x}")
}

/// The attempt id in an owner text.
fn attempt_of(owner: &str) -> Option<AttemptId> {
    AttemptId::from_str_radix(owner.strip_prefix("attempt ")?, 16).ok()
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
            let mut observations = Vec::new();
            while !ended.load(Relaxed) {
                for lock in LOCKS {
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
                let attempt = attempt_of(&holder.owner).unwrap_or(0);
                // The number of a foreign holder is no token of an attempt.
                let token = holder.token.filter(|_| !holder.foreign);
                holders.push(Held { attempt, token, expires });
            }
            let waiters =
                observation.view.waiters.iter().filter_map(|waiter| attempt_of(&waiter.owner)).collect();
            let what = What::Truth { until: observation.until, holders, waiters };
            recorder.note_lock(observation.at, observation.lock, what);
        }
    }
}
