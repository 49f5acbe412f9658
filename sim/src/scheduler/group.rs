//! Groups of tasks that live, pause and die together, as the threads of a process do.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use super::{Scheduler, task::TaskId};

/// A group of tasks. The group [`Group::WORLD`] is never paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group(pub(super) usize);

impl Group {
    /// The group of all tasks that belong to no client.
    pub(crate) const WORLD: Self = Self(0);

    /// The number of the group. Histories use it as the process number.
    #[must_use]
    pub(crate) const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// The state of a group.
#[derive(Debug, Default)]
pub(super) struct GroupState {
    /// Whether the group is paused: its tasks do not run until [`Scheduler::cont`].
    stopped: bool,
    /// Whether the group was killed.
    dead: bool,
    /// The tasks of the group that became ready while it was paused.
    pub(super) parked: Vec<TaskId>,
    /// If set: the group reads its clock this many times, and at the next reading it is paused for this time.
    pub(super) stop_at_reading: Option<(u32, Duration, Moment)>,
    /// The number of its unfinished tasks.
    pub(super) tasks: usize,
}

/// The parts of a group's state that are read at every step, and are therefore not behind the lock. See [`Scheduler`].
#[derive(Debug, Default)]
pub(super) struct HotState {
    /// Whether the group was killed.
    dead: AtomicBool,
    /// The total time for which the group was suspended, in nanoseconds. Its sleeps last longer by that time.
    suspended: AtomicU64,
    /// Whether the group will be paused at a reading of its clock.
    may_stop: AtomicBool,
}

impl GroupState {
    /// Whether the group is neither paused nor dead.
    pub(super) fn runs(&self) -> bool {
        !self.stopped && !self.dead
    }
}

/// Whether the sleeps of a group go on while it is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeps {
    /// The sleeps go on, as for a process that got SIGSTOP.
    GoOn,
    /// The sleeps do not go on, as when the whole machine is suspended.
    Suspend,
}

/// Whether a group pauses before or after a reading of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Just before the reading, so the reading shows the time after the pause.
    Before,
    /// Just after the reading, so the value of the reading is old when the group runs again.
    After,
}

impl Scheduler {
    /// All groups except [`Group::WORLD`].
    pub(crate) fn groups(&self) -> impl Iterator<Item = Group> + use<> {
        (1..self.hot_states.len()).map(Group)
    }

    /// Pauses a group. The caller must let the group run again after `length`, by [`cont`](Self::cont). Returns `false`
    /// and does nothing if the group is paused or dead already.
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

    /// Lets a paused group run again.
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

    /// Whether the group has not been killed.
    #[must_use]
    pub(crate) fn is_alive(&self, group: Group) -> bool {
        !self.hot_states[group.0].dead.load(Ordering::Relaxed)
    }

    /// The number of unfinished tasks of a group.
    #[must_use]
    pub(crate) fn tasks(&self, group: Group) -> usize {
        self.lock().groups[group.0].tasks
    }

    /// Plans a pause in the middle of a step: the group reads its clock `readings` times, and is paused for `length` at
    /// the next reading.
    pub(crate) fn stop_at_reading(&self, group: Group, readings: u32, length: Duration, moment: Moment) {
        self.lock().groups[group.0].stop_at_reading = Some((readings, length, moment));
        self.hot_states[group.0].may_stop.store(true, Ordering::Relaxed);
    }

    /// Counts a reading of the clock of a group. If the group has to pause at this reading, returns for how long, and
    /// whether before or after the reading; otherwise returns `None`.
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

    /// The total time for which a group was suspended.
    pub(super) fn suspended(&self, group: Group) -> Duration {
        Duration::from_nanos(self.hot_states[group.0].suspended.load(Ordering::Relaxed))
    }
}
