//! The timers: all future actions in one ordered map, so that no hold needs a task or a timer of the runtime.

use std::{collections::BTreeMap, num::NonZeroU64, sync::Mutex};

use crate::{ClaimId, Instant, Name, driver::local::Ticket};

/// What to do when a timer fires. Small, because every hold has a timer; the rare kinds are boxed.
pub(crate) enum TimerAction {
    /// The lease of the hold that has this timer needs its next step. The hold is one of this name.
    Lease(Name),
    /// The `max_hold` of one guard ends.
    MaxHold(Box<(Name, ClaimId)>),
    /// The wait of a request ends.
    Limit(Box<(Name, Ticket)>),
}

/// When a timer fires, and a number that makes the key unique.
pub(crate) type TimerKey = (Instant, NonZeroU64);

/// All timers of one `Locks`.
#[derive(Default)]
pub(crate) struct Timers(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    entries: BTreeMap<TimerKey, TimerAction>,
    /// How many timers were ever added.
    added: u64,
    /// Until when the keeper sleeps: an earlier entry must wake it.
    wake_at: Option<Instant>,
}

/// Whether the keeper must be woken for a new entry.
#[must_use]
pub(crate) enum KeeperWake {
    /// The keeper sleeps until after the time of the new entry.
    Now,
    /// The keeper wakes early enough by itself.
    NotNeeded,
}

impl Timers {
    /// Adds a timer that fires at `at`.
    pub(crate) fn add(&self, at: Instant, action: TimerAction) -> (TimerKey, KeeperWake) {
        let mut inner = self.lock();
        inner.added += 1;
        let key = (at, NonZeroU64::MIN.saturating_add(inner.added));
        inner.entries.insert(key, action);
        let wake = if inner.wake_at.is_none_or(|wake_at| at < wake_at) {
            KeeperWake::Now
        } else {
            KeeperWake::NotNeeded
        };
        (key, wake)
    }

    pub(crate) fn remove(&self, key: TimerKey) {
        self.lock().entries.remove(&key);
    }

    /// Removes and returns the entries due at `now`, at most `max_entries` of them.
    pub(crate) fn take_due(&self, now: Instant, max_entries: usize) -> Vec<(TimerKey, TimerAction)> {
        let mut inner = self.lock();
        let mut due_entries = Vec::new();
        while due_entries.len() < max_entries
            && let Some(entry) = inner.entries.first_entry()
            && entry.key().0 <= now
        {
            due_entries.push(entry.remove_entry());
        }
        due_entries
    }

    /// Returns until when the keeper may sleep: until the first timer, at the latest until `bound`. A timer that is
    /// added for an earlier time has to wake the keeper.
    pub(crate) fn sleep_until(&self, bound: Instant) -> Instant {
        let mut inner = self.lock();
        let first = inner.entries.first_key_value().map_or(Instant::NEVER, |(key, _)| key.0);
        *inner.wake_at.insert(first.min(bound))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
