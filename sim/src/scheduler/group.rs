//! Groups of tasks that live, stop and die together, as the threads of a process do.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use super::{Scheduler, task::TaskId};

/// A group of tasks. [`Group::WORLD`] never stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group(pub(super) usize);

impl Group {
    /// The group of all tasks that belong to no client.
    pub(crate) const WORLD: Self = Self(0);

    /// Its number, as histories use it.
    #[must_use]
    pub(crate) const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// The state of a group.
#[derive(Debug, Default)]
pub(super) struct GroupState {
    /// Whether it is stopped.
    stopped: bool,
    /// Whether it was killed.
    dead: bool,
    /// Tasks of a stopped group that are ready.
    pub(super) parked: Vec<TaskId>,
    /// After this many more readings of its clock the group stops for this time.
    pub(super) stop_at_reading: Option<(u32, Duration, Moment)>,
    /// The number of its unfinished tasks.
    pub(super) tasks: usize,
}

/// The parts of a group's state that are read at every step. See [`Scheduler`].
#[derive(Debug, Default)]
pub(super) struct HotState {
    /// Whether it was killed.
    dead: AtomicBool,
    /// For how long the group was suspended in all, in nanoseconds: its sleeps last longer by that time.
    suspended: AtomicU64,
    /// Whether it may be about to stop at a reading of its clock.
    may_stop: AtomicBool,
}

impl GroupState {
    /// Whether the group is neither stopped nor dead.
    pub(super) fn runs(&self) -> bool {
        !self.stopped && !self.dead
    }
}

/// Whether the sleeps of a stopped group go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeps {
    /// As for a process that got SIGSTOP.
    GoOn,
    /// As when the whole machine is suspended.
    Suspend,
}

/// Whether a group stops before or after a reading of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Just before the reading.
    Before,
    /// Just after the reading: its value is old when the group goes on.
    After,
}

impl Scheduler {
    /// All groups but the world's own.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Group> + use<> {
        (1..self.hot_states.len()).map(Group)
    }

    /// Stops a group for `length`. Returns `false` if it is not running now. [`cont`](Self::cont) lets it run again.
    pub(crate) fn stop(&self, group: Group, length: Duration, sleeps: Sleeps) -> bool {
        let mut inner = self.lock();
        let state = &mut inner.groups[group.0];
        if !state.runs() {
            return false;
        }
        state.stopped = true;
        if sleeps == Sleeps::Suspend {
            let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
            self.hot_states[group.0].suspended.fetch_add(length, Ordering::Relaxed);
        }
        inner.park(group);
        true
    }

    /// Lets a stopped group run again.
    pub(crate) fn cont(&self, group: Group) {
        let mut inner = self.lock();
        let state = &mut inner.groups[group.0];
        state.stopped = false;
        let parked = std::mem::take(&mut state.parked);
        inner.ready.extend(parked);
    }

    /// Kills a group: none of its code runs any more, not even drop code.
    pub(crate) fn kill(&self, group: Group) {
        let mut inner = self.lock();
        inner.groups[group.0].dead = true;
        inner.park(group);
        self.hot_states[group.0].dead.store(true, Ordering::Relaxed);
    }

    /// Whether the group was not killed.
    #[must_use]
    pub(crate) fn is_alive(&self, group: Group) -> bool {
        !self.hot_states[group.0].dead.load(Ordering::Relaxed)
    }

    /// The number of unfinished tasks of a group.
    #[must_use]
    pub(crate) fn tasks(&self, group: Group) -> usize {
        self.lock().groups[group.0].tasks
    }

    /// After `readings` more readings of its clock the group stops for `length`, in the middle of its step.
    pub(crate) fn stop_at_reading(&self, group: Group, readings: u32, length: Duration, moment: Moment) {
        self.lock().groups[group.0].stop_at_reading = Some((readings, length, moment));
        self.hot_states[group.0].may_stop.store(true, Ordering::Relaxed);
    }

    /// Counts a reading of the clock of a group. Returns for how long the group has to stop, if it has to stop here.
    pub(crate) fn read(&self, group: Group) -> Option<(Duration, Moment)> {
        if !self.hot_states[group.0].may_stop.load(Ordering::Relaxed) {
            return None;
        }
        let mut inner = self.lock();
        let state = &mut inner.groups[group.0];
        let (readings, length, moment) = state.stop_at_reading?;
        if readings > 0 || !state.runs() {
            state.stop_at_reading = Some((readings.saturating_sub(1), length, moment));
            return None;
        }
        state.stop_at_reading = None;
        self.hot_states[group.0].may_stop.store(false, Ordering::Relaxed);
        Some((length, moment))
    }

    /// For how long a group was suspended in all.
    pub(super) fn suspended(&self, group: Group) -> Duration {
        Duration::from_nanos(self.hot_states[group.0].suspended.load(Ordering::Relaxed))
    }
}
