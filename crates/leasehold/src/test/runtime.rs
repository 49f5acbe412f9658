//! The runtime of processes outside of tokio: its tasks run on the thread that waits for something, and its time passes
//! when all of them wait.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::ThreadId,
    time::Duration,
};

use leasehold_core::{BoxFuture, Clock, Instant, Runtime};

use super::clock::KitClock;

/// A wait on this runtime may last for so much time of the kit: a longer one is taken for a wait that never ends.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 24 * 3600);

pub(super) struct KitRuntime {
    clock: Arc<KitClock>,
    weak_self: Weak<Self>,
    state: Mutex<State>,
    /// Locked by the thread that runs tasks.
    driving: Mutex<()>,
    /// The thread that is running a task now.
    task_thread: Mutex<Option<ThreadId>>,
}

#[derive(Default)]
struct State {
    /// The tasks. A task is taken out while it is polled.
    tasks: BTreeMap<u64, BoxFuture<'static, ()>>,
    /// The tasks that were woken, in this order.
    woken: VecDeque<u64>,
    timers: BTreeMap<(Instant, u64), Waker>,
    /// The last number of a task or timer.
    last_number: u64,
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

/// Wakes one task.
struct TaskWaker {
    runtime: Weak<KitRuntime>,
    task: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if let Some(runtime) = self.runtime.upgrade() {
            let mut state = runtime.lock();
            if !state.woken.contains(&self.task) {
                state.woken.push_back(self.task);
            }
        }
    }
}

/// Wakes the future of a blocking call.
#[derive(Default)]
struct FlagWaker(AtomicBool);

impl Wake for FlagWaker {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl KitRuntime {
    pub(super) fn new(clock: Arc<KitClock>) -> Arc<Self> {
        let (state, driving, task_thread) = Default::default();
        Arc::new_cyclic(|weak_self| Self {
            clock,
            weak_self: Weak::clone(weak_self),
            state,
            driving,
            task_thread,
        })
    }

    /// Polls the task that was woken first; false if none was.
    fn run_one(&self) -> bool {
        let (task, mut future) = loop {
            let mut state = self.lock();
            let Some(task) = state.woken.pop_front() else { return false };
            // A task that has ended may be woken once more.
            if let Some(future) = state.tasks.remove(&task) {
                break (task, future);
            }
        };
        let waker = Waker::from(Arc::new(TaskWaker { runtime: Weak::clone(&self.weak_self), task }));
        let polled = {
            let _running = RunningTask::begin(self);
            future.as_mut().poll(&mut Context::from_waker(&waker))
        };
        if polled.is_pending() {
            self.lock().tasks.insert(task, future);
        }
        true
    }

    /// Sets the clock to the next timer, and fires the timers of this moment; false if there is no timer until `limit`.
    fn advance_to_timer(&self, limit: Instant) -> bool {
        let Some(at) = self.lock().timers.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= limit)
        else {
            return false;
        };
        self.clock.move_to(at);
        loop {
            let mut state = self.lock();
            let Some(entry) = state.timers.first_entry().filter(|entry| entry.key().0 <= at) else {
                return true;
            };
            let waker = entry.remove();
            drop(state);
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn task_thread(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.task_thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the calling thread as the one that is running a task, until it is dropped: also by a panic of the task.
struct RunningTask<'a>(&'a KitRuntime);

impl<'a> RunningTask<'a> {
    fn begin(runtime: &'a KitRuntime) -> Self {
        *runtime.task_thread() = Some(std::thread::current().id());
        Self(runtime)
    }
}

impl Drop for RunningTask<'_> {
    fn drop(&mut self) {
        *self.0.task_thread() = None;
    }
}

impl Runtime for KitRuntime {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut state = self.lock();
        let number = state.next_number();
        state.tasks.insert(number, task);
        state.woken.push_back(number);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let until = self.clock.now().after(duration);
        Box::pin(Sleep { runtime: Weak::clone(&self.weak_self), until, timer: None })
    }

    fn is_running_task_here(&self) -> bool {
        *self.task_thread() == Some(std::thread::current().id())
    }

    fn block_on(&self, mut future: Pin<&mut dyn Future<Output = ()>>) {
        assert!(
            !self.is_running_task_here(),
            "a call that lets the time of the kit pass, in an observer or a loss callback, would wait for itself"
        );
        let woken = Arc::new(FlagWaker(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let limit = self.clock.now().after(LONGEST_WAIT);
        let mut driving = self.driving.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if woken.0.swap(false, Ordering::AcqRel) {
                // The future may belong to code that waits for the kit itself.
                drop(driving);
                if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    return;
                }
                driving = self.driving.lock().unwrap_or_else(PoisonError::into_inner);
            }
            if !self.run_one() && !woken.0.load(Ordering::Acquire) && !self.advance_to_timer(limit) {
                panic!(
                    "this wait never ends: nothing that the kit knows will wake it in the next {LONGEST_WAIT:?}"
                );
            }
        }
    }
}

/// Waits until the clock of the kit reaches a time.
struct Sleep {
    runtime: Weak<KitRuntime>,
    until: Instant,
    timer: Option<(Instant, u64)>,
}

impl Sleep {
    fn remove_timer(&mut self, runtime: &KitRuntime) {
        if let Some(timer) = self.timer.take() {
            runtime.lock().timers.remove(&timer);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(runtime) = self.runtime.upgrade() else { return Poll::Ready(()) };
        self.remove_timer(&runtime);
        if runtime.clock.now() >= self.until {
            return Poll::Ready(());
        }
        let mut state = runtime.lock();
        let timer = (self.until, state.next_number());
        state.timers.insert(timer, context.waker().clone());
        self.timer = Some(timer);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.upgrade() {
            self.remove_timer(&runtime);
        }
    }
}
