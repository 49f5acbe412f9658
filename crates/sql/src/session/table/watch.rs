//! Waiting for other processes: which keys are watched, and when each waiting name is tried again.

use std::time::Duration;

use leasehold_core::{Instant, Name};

use super::Table;
use crate::session::{
    lock_key::Key,
    server::{NameKeys, Share, Unlock, Watch},
};

/// The process with the key of the poller tries after this part of the time that it has waited, within these bounds.
/// The name of a killed holder is granted within this pause.
const POLLER_PART: u32 = 100;
const FIRST_POLLER_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_POLLER_PAUSE: Duration = Duration::from_millis(250);
/// The first pause between two tries of any other waiting process; it doubles up to [`LONGEST_PAUSE`].
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two tries of a waiting process.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Tries that are due within this time are sent together.
const TOGETHER: Duration = Duration::from_millis(2);

/// How the waiters of a key are watched on the server. Names with equal keys share a watch.
pub(super) struct WatchState {
    keys: NameKeys,
    /// The names that wait.
    names: Vec<Name>,
    /// The session has the key of the waiters.
    announced: bool,
    /// The session has the key of the poller.
    polls: bool,
    /// A request that begins or ends the watch is in flight.
    changing: bool,
}

impl Table {
    /// Begins to watch the name; false if it is watched already.
    pub(super) fn begin_watch(&mut self, name: &Name, now: Instant) -> bool {
        let Some(state) = self.names.get_mut(name) else { return false };
        if std::mem::replace(&mut state.watched, true) {
            return false;
        }
        (state.pause, state.waits_since) = (FIRST_PAUSE, now);
        let keys = state.keys.clone();
        let Some(waiters) = keys.waiters.clone() else { return true };
        let watch = self.watches.entry(waiters.clone()).or_insert_with(|| {
            let (names, announced, polls, changing) = Default::default();
            WatchState { keys, names, announced, polls, changing }
        });
        watch.names.push(name.clone());
        self.request_watch(&waiters);
        true
    }

    /// Puts the missing keys of the watch into the next batch.
    fn request_watch(&mut self, waiters: &Key) {
        let Some(watch) = self.watches.get_mut(waiters) else { return };
        if watch.changing || watch.announced && watch.polls {
            return;
        }
        watch.changing = true;
        let (keys, announced, polls) = (watch.keys.clone(), watch.announced, watch.polls);
        self.pending.0.watches.push(Watch { keys, announced, polls });
        self.pending.1.watches.push(waiters.clone());
    }

    /// Records which keys of the watch the session has.
    pub(super) fn watched(&mut self, waiters: &Key, (announced, polls): (bool, bool)) {
        let Some(watch) = self.watches.get_mut(waiters) else { return };
        (watch.announced, watch.polls, watch.changing) = (announced, polls, false);
        if watch.names.is_empty() {
            self.request_unwatch(waiters);
        }
    }

    /// Ends the watch of a name for which no claim waits.
    pub(super) fn end_watch(&mut self, name: &Name) {
        let Some(state) = self.names.get_mut(name) else { return };
        let Some(waiters) = state.keys.waiters.clone().filter(|_| state.watched) else { return };
        state.watched = false;
        let Some(watch) = self.watches.get_mut(&waiters) else { return };
        watch.names.retain(|watched| watched != name);
        if watch.names.is_empty() && !watch.changing {
            self.request_unwatch(&waiters);
        }
    }

    /// Puts the end of a watch into the next batch. Another waiting process is notified, so that it takes the key of
    /// the poller.
    fn request_unwatch(&mut self, waiters: &Key) {
        let Some(watch) = self.watches.get_mut(waiters) else { return };
        watch.changing = true;
        let (batch, plan) = &mut self.pending;
        let poller = watch.keys.poller.clone().filter(|_| watch.polls);
        let unlocks = [
            (watch.announced.then(|| waiters.clone()), Share::Beside, None),
            (poller, Share::Alone, Some(waiters.clone())),
        ];
        for (key, share, wake) in unlocks {
            batch.unlocks.extend(key.map(|key| Unlock { key, share, wake }));
        }
        plan.unlock_owners.resize(batch.unlocks.len(), None);
        batch.unwatched.push(waiters.clone());
        plan.unwatched.push(waiters.clone());
    }

    /// Records that a watch has ended. If a claim began to wait meanwhile, it begins anew.
    pub(super) fn unwatched(&mut self, waiters: &Key, now: Instant) {
        let Some(watch) = self.watches.get_mut(waiters) else { return };
        (watch.announced, watch.polls, watch.changing) = (false, false, false);
        if watch.names.is_empty() {
            self.watches.remove(waiters);
            return;
        }
        self.request_watch(waiters);
        self.may_be_free(waiters, now);
    }

    /// Sets when a waiting name is tried again after the server answered "taken".
    pub(super) fn schedule_poll(&mut self, name: &Name, now: Instant) {
        let Some(state) = self.names.get_mut(name).filter(|state| state.watched) else { return };
        let watch = state.keys.waiters.as_ref().and_then(|waiters| self.watches.get(waiters));
        let pause = match watch.is_some_and(|watch| watch.polls) {
            true => {
                let part = now.since(state.waits_since) / POLLER_PART;
                part.clamp(FIRST_POLLER_PAUSE, LONGEST_POLLER_PAUSE)
            }
            false => state.pause,
        };
        state.pause = (state.pause * 2).min(LONGEST_PAUSE);
        self.schedule(name, now.after(pause));
    }

    /// Sets when the name is tried again.
    pub(super) fn schedule(&mut self, name: &Name, at: Instant) {
        let Some(state) = self.names.get_mut(name) else { return };
        if let Some(old) = state.due.replace(at) {
            self.due.remove(&(old, name.clone()));
        }
        self.due.insert((at, name.clone()));
    }

    /// When the next waiting name is tried again.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Tries every name that is due.
    pub(crate) fn poll(&mut self, now: Instant) {
        let mut due = Vec::new();
        while let Some((at, _)) = self.due.first()
            && *at <= now.after(TOGETHER)
        {
            due.extend(self.due.pop_first());
        }
        // A name can become due again within that time, when its gap ends: it is tried in the next round.
        for (_, name) in due {
            if let Some(state) = self.names.get_mut(&name) {
                state.due = None;
            }
            self.try_again(&name, now);
        }
    }

    /// The names with this key of their waiters may be free.
    pub(crate) fn may_be_free(&mut self, waiters: &Key, now: Instant) {
        let names = self.watches.get(waiters).map(|watch| watch.names.clone()).unwrap_or_default();
        for name in names {
            if let Some(state) = self.names.get_mut(&name) {
                (state.pause, state.waits_since) = (FIRST_PAUSE, now);
            }
            self.try_again(&name, now);
        }
    }

    /// Tries the head of the queue again, and the missing keys of the watch.
    fn try_again(&mut self, name: &Name, now: Instant) {
        let Some(state) = self.names.get_mut(name) else { return };
        if state.trying {
            // The answer of this try may be older than the reason to try again.
            state.try_again = true;
            return;
        }
        let waiters = state.keys.waiters.clone().filter(|_| state.watched);
        let Some(head) = state.queue.front_mut() else { return };
        head.tried = false;
        if let Some(waiters) = waiters {
            self.request_watch(&waiters);
        }
        self.advance(name, now);
    }
}
