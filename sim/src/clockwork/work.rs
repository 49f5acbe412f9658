//! The loop: what is due happens, then one of the tasks that are ready goes on, then time passes.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    task::{Context, Waker},
    time::Duration,
};

use leasehold_core::{BoxFuture, Instant};

use super::{
    Group, Sleep,
    group::State,
    task::{Bell, Task, TaskId},
};
use crate::dice::Dice;

/// When every world begins: long after the boot of its machines, so that no span reaches back to zero.
const BEGIN: Instant = Instant::from_nanos(1_000_000_000_000);
/// What one go of a task takes at most.
const STEP: u64 = 20_000;
/// By how much a sleep may last longer than asked for: the timers of real runtimes are so coarse.
const OVERSLEPT: u64 = 1_200_000;

/// Time, and all that happens in it.
pub(crate) struct Clockwork {
    inside: Mutex<Inside>,
}

pub(super) struct Inside {
    now: Instant,
    dice: Dice,
    due: BTreeMap<Key, Due>,
    entries: u64,
    tasks: Vec<Option<Task>>,
    pub(super) ready: Vec<TaskId>,
    pub(super) groups: Vec<State>,
    /// Of all that happened: equal only for runs that went the same way.
    digest: u64,
    trace: Option<Vec<String>>,
}

/// When something is due, and a number that tells it apart.
pub(super) type Key = (Instant, u64);

enum Due {
    Wake(Waker),
    Do(Box<dyn FnOnce() + Send>),
}

/// What happens next.
enum Next {
    Due(Due),
    Poll(BoxFuture<'static, ()>, Arc<Bell>),
    /// A task that is done already.
    Nothing,
    Over,
}

impl Clockwork {
    /// A clockwork that begins. `traced`: what happens is written down.
    #[must_use]
    pub(crate) fn new(seed: u64, traced: bool) -> Arc<Self> {
        Arc::new(Self {
            inside: Mutex::new(Inside {
                now: BEGIN,
                dice: Dice::of(&[seed, u64::from_be_bytes(*b"schedule")]),
                due: BTreeMap::new(),
                entries: 0,
                tasks: Vec::new(),
                ready: Vec::new(),
                groups: vec![State::default()],
                digest: 0,
                trace: traced.then(Vec::new),
            }),
        })
    }

    /// The time in this world.
    #[must_use]
    pub(crate) fn now(&self) -> Instant {
        self.lock().now
    }

    /// How much time has passed since the world began.
    #[must_use]
    pub(crate) fn passed(&self) -> Duration {
        self.now().since(BEGIN)
    }

    /// The instant `after` the beginning.
    #[must_use]
    pub(crate) fn instant(after: Duration) -> Instant {
        BEGIN.after(after)
    }

    /// Runs `future` as a task of `group`.
    pub(crate) fn spawn(self: &Arc<Self>, group: Group, future: BoxFuture<'static, ()>) {
        let mut inside = self.lock();
        let task = inside.tasks.len();
        let bell = Arc::new(Bell { clockwork: Arc::clone(self), task, rung: true.into() });
        inside.tasks.push(Some(Task { group, future: Some(future), bell }));
        inside.groups[group.0].tasks += 1;
        inside.add_ready(task, group);
    }

    /// Waits for `length`, or a little longer, in a task of `group`.
    pub(crate) fn sleep(self: &Arc<Self>, group: Group, length: Duration) -> Sleep {
        let at = {
            let mut inside = self.lock();
            let over = Duration::from_nanos(inside.dice.among(0..=OVERSLEPT));
            inside.now.after(length + over)
        };
        Sleep::new(self, group, at)
    }

    /// Does `act` at `at`, or as soon as time is free.
    pub(crate) fn at(&self, at: Instant, act: impl FnOnce() + Send + 'static) {
        self.lock().add(at, Due::Do(Box::new(act)));
    }

    /// Lets the world run until `until`, or until nothing can happen any more.
    pub(crate) fn run(&self, until: Instant) {
        loop {
            match self.next(until) {
                Next::Due(Due::Wake(waker)) => waker.wake(),
                Next::Due(Due::Do(act)) => act(),
                Next::Poll(future, bell) => self.poll(future, bell),
                Next::Nothing => {}
                Next::Over => return,
            }
        }
    }

    /// Takes down that something happened; `what` is asked only if somebody wants to read it.
    pub(crate) fn note(&self, mark: u64, what: impl FnOnce() -> String) {
        let mut inside = self.lock();
        let now = inside.now;
        inside.digest = Dice::of(&[inside.digest, now.as_nanos(), mark]).next();
        if let Some(trace) = &mut inside.trace {
            trace.push(format!("{:>14.6?} {}", now.since(BEGIN), what()));
        }
    }

    /// What happened, as one number; and, if it was written down, line by line.
    #[must_use]
    pub(crate) fn told(&self) -> (u64, Vec<String>) {
        let mut inside = self.lock();
        (inside.digest, inside.trace.take().unwrap_or_default())
    }

    /// Drops all tasks and all that is due. What they leave behind when they are dropped is dropped as well.
    pub(crate) fn end(&self) {
        loop {
            let (tasks, due) = {
                let mut inside = self.lock();
                inside.groups.iter_mut().for_each(|group| group.stop_at_reading = None);
                let tasks: Vec<Task> = inside.tasks.iter_mut().filter_map(Option::take).collect();
                (tasks, std::mem::take(&mut inside.due))
            };
            if tasks.is_empty() && due.is_empty() {
                return;
            }
        }
    }

    fn next(&self, until: Instant) -> Next {
        let mut inside = self.lock();
        let first = inside.due.first_key_value().map(|(key, _)| key.0);
        if inside.now >= until {
            return Next::Over;
        }
        if first.is_some_and(|first| first <= inside.now) {
            return inside.take_due();
        }
        if !inside.ready.is_empty() {
            return inside.take_ready();
        }
        match first.filter(|first| *first < until) {
            Some(first) => {
                inside.now = first;
                inside.take_due()
            }
            None => {
                if until != Instant::NEVER {
                    inside.now = until;
                }
                Next::Over
            }
        }
    }

    fn poll(&self, mut future: BoxFuture<'static, ()>, bell: Arc<Bell>) {
        self.note(bell.task as u64, || format!("task {} goes on", bell.task));
        bell.rung.store(false, Ordering::Relaxed);
        let task = bell.task;
        let waker = Waker::from(bell);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut inside = self.lock();
        let took = Duration::from_nanos(inside.dice.among(1..=STEP));
        inside.now = inside.now.after(took);
        let kept = inside.tasks[task].take().map(|mut kept| {
            kept.future = Some(future);
            kept
        });
        let Some(kept) = kept else { return };
        if done {
            inside.groups[kept.group.0].tasks -= 1;
            drop(inside);
            // Dropped without the lock: it may wake others.
            drop(kept);
        } else {
            inside.tasks[task] = Some(kept);
        }
    }

    pub(super) fn make_ready(&self, task: TaskId) {
        let mut inside = self.lock();
        if let Some(group) = inside.tasks.get(task).and_then(|task| Some(task.as_ref()?.group)) {
            inside.add_ready(task, group);
        }
    }

    pub(super) fn wake_at(&self, at: Instant, waker: Waker) -> Key {
        self.lock().add(at, Due::Wake(waker))
    }

    pub(super) fn forget(&self, entry: Key) {
        // Dropped without the lock.
        let _gone = self.lock().due.remove(&entry);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inside> {
        // A panic of a task ends its run; what is dropped then needs the clockwork all the same.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn add(&mut self, at: Instant, due: Due) -> Key {
        self.entries += 1;
        let key = (at, self.entries);
        self.due.insert(key, due);
        key
    }

    fn take_due(&mut self) -> Next {
        self.tick();
        self.due.pop_first().map_or(Next::Over, |(_, due)| Next::Due(due))
    }

    fn take_ready(&mut self) -> Next {
        self.tick();
        let at = self.dice.among(0..=self.ready.len() as u64 - 1) as usize;
        let task = self.ready.swap_remove(at);
        let Some(task) = self.tasks[task].as_mut() else { return Next::Nothing };
        match task.future.take() {
            Some(future) => Next::Poll(future, Arc::clone(&task.bell)),
            None => Next::Nothing,
        }
    }

    /// No two things happen at one instant.
    fn tick(&mut self) {
        self.now = self.now.after(Duration::from_nanos(1));
    }

    fn add_ready(&mut self, task: TaskId, group: Group) {
        if self.groups[group.0].runs() {
            self.ready.push(task);
        } else {
            self.groups[group.0].parked.push(task);
        }
    }

    /// Puts the ready tasks of a group aside.
    pub(super) fn park(&mut self, group: Group) {
        let tasks = &self.tasks;
        let of_group = |task: &mut TaskId| tasks[*task].as_ref().is_some_and(|task| task.group == group);
        let parked: Vec<TaskId> = self.ready.extract_if(.., of_group).collect();
        self.groups[group.0].parked.extend(parked);
    }
}

impl fmt::Debug for Clockwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clockwork").field("passed", &self.passed()).finish_non_exhaustive()
    }
}
