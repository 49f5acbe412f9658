//! The main loop. In each step, the first event that is due happens. If no event is due, a ready task is polled. If no
//! task is ready, time passes until the next event.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use leasehold_core::{BoxFuture, Instant};

use super::{
    Group, Sleep,
    agenda::{Agenda, Key},
    group::{GroupState, HotState},
    task::{Task, TaskId, TaskWaker},
};
use crate::rng::Rng;

/// The time at which every world begins. It is long after the boot of the world's machines, so that no duration reaches
/// back to zero.
const WORLD_BEGIN: Instant = Instant::from_nanos(1_000_000_000_000);
/// The longest time in nanoseconds that passes for one poll of a task.
const MAX_STEP: u64 = 20_000;
/// By how many nanoseconds a sleep may last too long. The timers of real runtimes are not exact either.
const MAX_OVERSLEEP: u64 = 1_200_000;

/// The scheduler: virtual time, and all events in it. The world has one thread, so values that are read at every step
/// need not be behind the lock. Taking the lock would cost more than reading the value.
pub(crate) struct Scheduler {
    /// The time, in nanoseconds.
    now: AtomicU64,
    /// The parts of the groups' states that are read at every step.
    pub(super) hot_states: Box<[HotState]>,
    inner: Mutex<SchedulerState>,
}

/// The state behind the lock.
pub(super) struct SchedulerState {
    rng: Rng,
    /// The events that are scheduled.
    due: Agenda<Due>,
    tasks: Vec<Option<Task>>,
    /// The tasks that can be polled.
    pub(super) ready: Vec<TaskId>,
    pub(super) groups: Vec<GroupState>,
    /// A hash of all events. Two runs have the same hash only if they had the same events in the same order.
    digest: u64,
    /// The events as text, if the run is traced.
    trace: Option<Vec<String>>,
}

/// A scheduled event.
enum Due {
    /// The end of a sleep.
    Wake(Waker),
    /// An event of the world.
    Do(Box<dyn FnOnce() + Send>),
}

/// The next step of the loop.
enum Next {
    /// This event happens.
    Due(Due),
    /// This task is polled.
    Poll(Polled),
    /// Nothing happens, because the ready task has ended already.
    Nothing,
    /// The loop ends.
    Over,
}

/// A task while it is polled. It is not in the table of tasks.
struct Polled {
    future: BoxFuture<'static, ()>,
    waker: Arc<TaskWaker>,
}

impl Scheduler {
    /// A new scheduler for `groups` groups beside the world's own; with a trace if `traced`.
    #[must_use]
    pub(crate) fn new(seed: u64, traced: bool, groups: usize) -> Arc<Self> {
        Arc::new(Self {
            now: AtomicU64::new(WORLD_BEGIN.as_nanos()),
            hot_states: (0..=groups).map(|_| HotState::default()).collect(),
            inner: Mutex::new(SchedulerState {
                rng: Rng::of(&[seed, u64::from_be_bytes(*b"schedule")]),
                due: Agenda::new(),
                tasks: Vec::new(),
                ready: Vec::new(),
                groups: (0..=groups).map(|_| GroupState::default()).collect(),
                digest: 0,
                trace: traced.then(Vec::new),
            }),
        })
    }

    /// The time in this world.
    #[must_use]
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// How much time has passed since the world began.
    #[must_use]
    pub(crate) fn passed(&self) -> Duration {
        self.now().since(WORLD_BEGIN)
    }

    /// The time at which `after` has passed since the world began.
    #[must_use]
    pub(crate) fn instant(after: Duration) -> Instant {
        WORLD_BEGIN.after(after)
    }

    /// Runs `future` as a task of `group`.
    pub(crate) fn spawn(self: &Arc<Self>, group: Group, future: BoxFuture<'static, ()>) {
        let mut inner = self.lock();
        let task = inner.tasks.len();
        let waker = Arc::new(TaskWaker { scheduler: Arc::clone(self), task, woken: true.into() });
        inner.tasks.push(Some(Task { group, future: Some(future), waker }));
        inner.groups[group.0].tasks += 1;
        inner.add_ready(task, group);
    }

    /// Sleeps for `length`, or a little longer, in a task of `group`.
    pub(crate) fn sleep(self: &Arc<Self>, group: Group, length: Duration) -> Sleep {
        let over = Duration::from_nanos(self.lock().rng.among(0..=MAX_OVERSLEEP));
        Sleep::new(self, group, self.now().after(length + over))
    }

    /// Calls `act` at the time `at`, or in the first step of the loop after this time.
    pub(crate) fn at(&self, at: Instant, act: impl FnOnce() + Send + 'static) {
        self.lock().due.add(at, Due::Do(Box::new(act)));
    }

    /// Runs the world until `until`, or until no event can happen any more.
    pub(crate) fn run(&self, until: Instant) {
        let mut next = self.next(&mut self.lock(), until);
        loop {
            next = match next {
                Next::Over => return,
                Next::Poll(polled) => self.poll(polled, until),
                other => {
                    match other {
                        Next::Due(Due::Wake(waker)) => waker.wake(),
                        Next::Due(Due::Do(act)) => act(),
                        _ => {}
                    }
                    self.next(&mut self.lock(), until)
                }
            }
        }
    }

    /// Records an event: in the digest, by the number `event`; and in the trace, by the text of `what`, which is called
    /// only if the run is traced.
    pub(crate) fn note(&self, event: u64, what: impl FnOnce() -> String) {
        self.lock().note(self.now(), event, what);
    }

    /// The digest of all events, and the trace line by line if the run is traced.
    #[must_use]
    pub(crate) fn digest_and_trace(&self) -> (u64, Vec<String>) {
        let mut inner = self.lock();
        (inner.digest, inner.trace.take().unwrap_or_default())
    }

    /// Drops all tasks and all entries of the agenda. Repeats that for everything that these drops create.
    pub(crate) fn end(&self) {
        loop {
            let (tasks, due) = {
                let mut inner = self.lock();
                inner.groups.iter_mut().for_each(|group| group.stop_at_reading = None);
                let tasks: Vec<Task> = inner.tasks.iter_mut().filter_map(Option::take).collect();
                (tasks, inner.due.clear())
            };
            if tasks.is_empty() && due.is_empty() {
                return;
            }
        }
    }

    /// The next step of the loop.
    fn next(&self, inner: &mut SchedulerState, until: Instant) -> Next {
        let (now, first) = (self.now(), inner.due.first());
        if now >= until {
            return Next::Over;
        }
        if first.is_some_and(|first| first <= now) {
            return self.take_due(inner, now);
        }
        if !inner.ready.is_empty() {
            return self.take_ready(inner, now);
        }
        match first.filter(|first| *first < until) {
            Some(first) => self.take_due(inner, first),
            None => {
                if until != Instant::NEVER {
                    self.set(until);
                }
                Next::Over
            }
        }
    }

    /// Takes the first event of the agenda, and sets the time to just after `now`.
    fn take_due(&self, inner: &mut SchedulerState, now: Instant) -> Next {
        self.tick(now);
        inner.due.pop().map_or(Next::Over, Next::Due)
    }

    /// Takes a random ready task.
    fn take_ready(&self, inner: &mut SchedulerState, now: Instant) -> Next {
        let now = self.tick(now);
        let index = inner.rng.among(0..=inner.ready.len() as u64 - 1) as usize;
        let number = inner.ready.swap_remove(index);
        let Some(task) = inner.tasks[number].as_mut() else { return Next::Nothing };
        let Some(future) = task.future.take() else { return Next::Nothing };
        let waker = Arc::clone(&task.waker);
        inner.note(now, number as u64, || format!("task {number} goes on"));
        Next::Poll(Polled { future, waker })
    }

    /// Sets the clock to just after `now`, so that no two events have the same time.
    fn tick(&self, now: Instant) -> Instant {
        let now = now.after(Duration::from_nanos(1));
        self.set(now);
        now
    }

    /// Sets the time.
    fn set(&self, now: Instant) {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Polls a task. Returns the next step.
    fn poll(&self, Polled { mut future, waker }: Polled, until: Instant) -> Next {
        waker.woken.store(false, Ordering::Relaxed);
        let task = waker.task;
        let waker = Waker::from(waker);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut inner = self.lock();
        let took = Duration::from_nanos(inner.rng.among(1..=MAX_STEP));
        self.set(self.now().after(took));
        match &mut inner.tasks[task] {
            Some(task) if !done => task.future = Some(future),
            gone => {
                let task = gone.take();
                if let Some(task) = &task {
                    inner.groups[task.group.0].tasks -= 1;
                }
                drop(inner);
                // The future is dropped after the lock is released, because the drop may wake other tasks.
                drop((future, task));
                inner = self.lock();
            }
        }
        self.next(&mut inner, until)
    }

    /// Makes a task ready.
    pub(super) fn make_ready(&self, task: TaskId) {
        let mut inner = self.lock();
        if let Some(group) = inner.tasks.get(task).and_then(|task| Some(task.as_ref()?.group)) {
            inner.add_ready(task, group);
        }
    }

    /// Schedules a wake of `waker` at `at`, and returns its entry. If `entry` is given, replaces the wake of that
    /// entry.
    pub(super) fn wake_at(&self, at: Instant, waker: &Waker, entry: Option<Key>) -> Key {
        let mut inner = self.lock();
        let due = &mut inner.due;
        let reusable =
            entry.filter(|key| matches!(due.get(*key), Some(Due::Wake(before)) if before.will_wake(waker)));
        if let Some(key) = reusable.and_then(|key| due.put_off(key, at)) {
            return key;
        }
        let gone = entry.and_then(|key| due.remove(key));
        let key = due.add(at, Due::Wake(waker.clone()));
        drop(inner);
        // The old entry is dropped after the lock is released.
        drop(gone);
        key
    }

    /// Removes an event from the agenda.
    pub(super) fn forget(&self, entry: Key) {
        // The entry is dropped after the lock is released.
        let _gone = self.lock().due.remove(entry);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        // A panic of a task ends its run. The values of the run are dropped then, and their drops still need the
        // scheduler. So the lock is taken even if it is poisoned.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SchedulerState {
    fn note(&mut self, now: Instant, event: u64, what: impl FnOnce() -> String) {
        self.digest = Rng::of(&[self.digest, now.as_nanos(), event]).next();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>14.6?} {}", now.since(WORLD_BEGIN), what()));
        }
    }

    /// Makes a task ready, or parks it if its group does not run.
    fn add_ready(&mut self, task: TaskId, group: Group) {
        if self.groups[group.0].runs() {
            self.ready.push(task);
        } else {
            self.groups[group.0].parked.push(task);
        }
    }

    /// Moves the ready tasks of a group to its parked tasks.
    pub(super) fn park(&mut self, group: Group) {
        let tasks = &self.tasks;
        let of_group = |task: &mut TaskId| tasks[*task].as_ref().is_some_and(|task| task.group == group);
        let parked: Vec<TaskId> = self.ready.extract_if(.., of_group).collect();
        self.groups[group.0].parked.extend(parked);
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("passed", &self.passed()).finish_non_exhaustive()
    }
}
