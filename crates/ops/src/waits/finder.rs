//! Looks one after another: a cycle counts if it is there in two of them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    claims::Look,
    cycle::{Deadlock, cycles},
    long_wait::{LongWait, LongWaits},
};

/// How far apart two looks have to be: a wait that ends within this time is no deadlock. Several engines are not looked
/// at at one moment, so one look alone can show a cycle that never was.
pub const MIN_APART: Duration = Duration::from_secs(1);

/// What an operator should know about the waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// Tasks wait for one another, and none of them can go on.
    Deadlock(Deadlock),
    /// A claim waits far longer than a hold of its name lasts.
    LongWait(Box<LongWait>),
}

impl Finding {
    /// The labels of the engines of its claims. A label can come more than once.
    pub fn engines(&self) -> impl Iterator<Item = &str> {
        let (blocks, waiter) = match self {
            Self::Deadlock(deadlock) => (deadlock.blocks.as_slice(), None),
            Self::LongWait(long_wait) => (&[][..], Some(&long_wait.waiter)),
        };
        blocks.iter().map(|block| &block.waiter).chain(waiter).map(|party| party.engine.as_str())
    }
}

/// Finds deadlocks and long waits in looks that follow one another.
#[derive(Debug, Default)]
pub struct Finder {
    /// The cycles of the last look, by their claims, and when each was seen first.
    cycles: HashMap<Key, Instant>,
    long_waits: LongWaits,
}

/// The claims of a cycle: engine, name, waiting claim and blocking claim of each wait, sorted.
type Key = Vec<[String; 4]>;

impl Finder {
    /// No look yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next look at each engine that answers, made at `now`. Returns the deadlocks whose claims have formed
    /// the same cycle in every look for [`MIN_APART`] or longer, then the long waits. A look that failed, or one of
    /// before the failure, must not be passed: it could show a cycle that has ended. An engine without a look hides the
    /// cycles over it, and lets no other cycle appear.
    pub fn next(&mut self, looks: &[Look<'_>], now: Instant) -> Vec<Finding> {
        let (mut found, mut seen) = (Vec::new(), HashMap::new());
        for deadlock in cycles(looks) {
            let key = key(&deadlock);
            let first = self.cycles.get(&key).copied().unwrap_or(now);
            if now.saturating_duration_since(first) >= MIN_APART {
                found.push(Finding::Deadlock(deadlock));
            }
            seen.insert(key, first);
        }
        self.cycles = seen;
        let long_waits = self.long_waits.next(looks, now).into_iter();
        found.extend(long_waits.map(|long_wait| Finding::LongWait(Box::new(long_wait))));
        found
    }
}

/// The findings of two looks, the second of which was made `apart` later; for a tool that looks only twice.
#[must_use]
pub fn report(before: &[Look<'_>], after: &[Look<'_>], apart: Duration) -> Vec<Finding> {
    let (mut finder, now) = (Finder::new(), Instant::now());
    finder.next(before, now);
    finder.next(after, now + apart)
}

fn key(deadlock: &Deadlock) -> Key {
    let words = deadlock.blocks.iter().map(|block| {
        let waiter = &block.waiter;
        [&waiter.engine, &waiter.name, &waiter.id, &block.blocker.id].map(Clone::clone)
    });
    let mut key: Key = words.collect();
    key.sort_unstable();
    key
}
