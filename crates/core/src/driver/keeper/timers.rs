//! The timers: all future actions in one ordered map, so that no hold has a timer or a task of its own.

use std::{collections::BTreeMap, num::NonZeroU64, sync::Mutex};

use crate::{ClaimId, Instant, Name, driver::local::Ticket};

/// The action that is due. Small, because every hold has one; the rare kinds are boxed.
pub(crate) enum Due {
    /// The lease of a hold of this name needs its next step: the hold that has this timer.
    Lease(Name),
    /// The `max_hold` of one guard ends.
    MaxHold(Box<(Name, ClaimId)>),
    /// The wait of a request ends.
    Limit(Box<(Name, Ticket)>),
}

/// Identifies an entry, to remove it.
pub(crate) type Key = (Instant, NonZeroU64);

#[derive(Default)]
pub(crate) struct Timers(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    due: BTreeMap<Key, Due>,
    entries: u64,
    /// Until when the keeper sleeps: an earlier entry must wake it.
    wake_at: Option<Instant>,
}

/// Whether the keeper must be woken for a new entry.
#[must_use]
pub(crate) enum Wake {
    Now,
    NotNeeded,
}

impl Timers {
    pub(crate) fn add(&self, at: Instant, due: Due) -> (Key, Wake) {
        let mut inner = self.lock();
        inner.entries += 1;
        let key = (at, NonZeroU64::MIN.saturating_add(inner.entries));
        inner.due.insert(key, due);
        let wake = if inner.wake_at.is_none_or(|wake_at| at < wake_at) { Wake::Now } else { Wake::NotNeeded };
        (key, wake)
    }

    pub(crate) fn remove(&self, key: Key) {
        self.lock().due.remove(&key);
    }

    /// Removes and returns the entries due at `now`, at most `most` of them.
    pub(crate) fn take_due(&self, now: Instant, most: usize) -> Vec<(Key, Due)> {
        let mut inner = self.lock();
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(entry) = inner.due.first_entry()
            && entry.key().0 <= now
        {
            taken.push(entry.remove_entry());
        }
        taken
    }

    /// The keeper is about to sleep until the returned instant, at the latest until `bound`.
    pub(crate) fn sleep_until(&self, bound: Instant) -> Instant {
        let mut inner = self.lock();
        let first = inner.due.first_key_value().map_or(Instant::NEVER, |(key, _)| key.0);
        *inner.wake_at.insert(first.min(bound))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
