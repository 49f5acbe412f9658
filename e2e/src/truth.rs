//! What the server itself says of who holds: asked by an administrator all the time, put into the history at the end.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{JoinHandle, sleep, spawn},
    time::Duration,
};

use leasehold_core::{Locks, View};
use leasehold_testkit::history::{AttemptId, Event, Held, Recorder, What, now_nanos};
use tokio::runtime::Runtime;

use crate::task::LOCKS;

/// How often each name is looked at.
const PACE: Duration = Duration::from_millis(20);

/// An administrator that looks.
pub struct Looker {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Look>>,
}

/// What was seen, and when it was asked and answered.
struct Look {
    at: u64,
    until: u64,
    lock: &'static str,
    view: View,
}

impl Looker {
    /// Begins to look.
    #[must_use]
    pub fn begin(locks: Locks, runtime: Runtime) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let thread = spawn(move || {
            let mut looks = Vec::new();
            while !ended.load(Relaxed) {
                for lock in LOCKS {
                    let at = now_nanos();
                    // A server that is away says nothing.
                    if let Ok(view) = runtime.block_on(locks.show(lock)) {
                        looks.push(Look { at, until: now_nanos(), lock, view });
                    }
                }
                sleep(PACE);
            }
            looks
        });
        Self { ends, thread }
    }

    /// Ends it, and records for each look which of the attempts in `events` were seen to hold: those whose token is one of
    /// the block of tokens of a holder, and which were granted before it was asked and let go after it was answered.
    ///
    /// # Panics
    /// When looking panicked.
    pub fn record(self, events: &[Event], tokens: u32, recorder: &Recorder) {
        self.ends.store(true, Relaxed);
        let looks = self.thread.join().expect("looking cannot panic");
        let holds = holds(events);
        for look in looks {
            let of_lock = holds.get(look.lock);
            let attempts = |first: u64| {
                let block = of_lock
                    .into_iter()
                    .flat_map(move |holds| holds.range((first, 0)..(first.saturating_add(tokens.into()), 0)));
                block
                    .filter(|(_, held)| held.start <= look.at && held.end > look.until)
                    .map(|((_, id), _)| *id)
            };
            let mut holders = Vec::new();
            for holder in &look.view.holders {
                // By when it ends at the latest: counted from the answer.
                let expires = holder.remaining.map(|left| look.until + left.as_nanos() as u64);
                let known = holder.token.into_iter().flat_map(attempts);
                holders.extend(known.map(|attempt| Held { attempt, token: holder.token, expires }));
            }
            let what = What::Truth { until: look.until, holders, waiters: Vec::new() };
            recorder.note_lock(look.at, look.lock, what);
        }
    }
}

/// What was granted, by token, and from when until when its user had it.
type Holds = BTreeMap<(u64, AttemptId), Range<u64>>;

fn holds(events: &[Event]) -> BTreeMap<&str, Holds> {
    let mut holds: BTreeMap<&str, Holds> = BTreeMap::new();
    let mut tokens = BTreeMap::new();
    for event in events {
        let of_lock = holds.entry(&event.lock).or_default();
        match &event.what {
            What::AcqOk { token, .. } => {
                tokens.insert(event.attempt, *token);
                of_lock.insert((*token, event.attempt), event.t..u64::MAX);
            }
            What::RelInv { .. } => {
                let token = tokens.get(&event.attempt).copied().unwrap_or_default();
                if let Some(held) = of_lock.get_mut(&(token, event.attempt)) {
                    held.end = event.t;
                }
            }
            _ => {}
        }
    }
    holds
}
