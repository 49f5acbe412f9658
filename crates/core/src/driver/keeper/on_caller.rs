//! Tasks that are started on the caller's thread while nothing else is pending: their request to the engine is sent
//! without waking the keeper's thread. From the first wake-up on they are tasks of the keeper like all others.

use std::{
    cell::Cell,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    task::{Context, Wake, Waker},
};

use crate::driver::shared::Shared;

/// After this number of requests in a row with nothing else pending, requests are started on the caller's thread.
const MIN_LONE_REQUESTS: u64 = 4;

/// A task of the keeper.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    /// Whether this thread, as the thread of a caller, is polling a task that was started on it.
    static ON_CALLER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the future now being polled was started on the caller's thread. Nothing else is pending then, so an engine
/// sends its request from here, if it can, and does not wait for other requests to batch with it.
#[doc(hidden)]
#[must_use]
pub fn is_on_calling_thread() -> bool {
    ON_CALLER.try_with(Cell::get).unwrap_or(false)
}

/// A task that was started on the caller's thread, as the target of its wake-ups.
struct CallerTask {
    shared: Arc<Shared>,
    stage: Mutex<TaskStage>,
}

/// The stages of a task that was started on the caller's thread.
enum TaskStage {
    /// The caller's thread polls it for the first time.
    Polled,
    /// It was woken during its first poll.
    Woken,
    /// Its first poll is over, and it waits for its wake-up.
    Waits(Task),
    /// It is a task of the keeper now.
    HandedOver,
}

impl Shared {
    /// Whether a task may be started on this thread. `own_pending` is how many of the pending pieces of work belong to
    /// the caller itself. True if, for this request and the last few, nothing else was pending. Otherwise the request
    /// may be one of many, which cost less if sent together.
    pub(crate) fn may_start_on_caller(&self, own_pending: usize) -> bool {
        if !self.profile.direct {
            return false;
        }
        let Some(answered_still_pending) = self.keeper.answered_still_pending() else { return false };
        if !self.pending.is_at_most(own_pending + answered_still_pending) {
            self.lone_requests_in_a_row.store(0, Ordering::Relaxed);
            return false;
        }
        self.lone_requests_in_a_row.fetch_add(1, Ordering::Relaxed) >= MIN_LONE_REQUESTS && self.has_no_jobs()
    }

    /// Polls a new task once on this thread. If it is not done then, the keeper continues it after its wake-up.
    pub(crate) fn start_on_caller(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let mut task: Task = Box::pin(self.guarded(task));
        let caller_task =
            Arc::new(CallerTask { shared: Arc::clone(self), stage: Mutex::new(TaskStage::Polled) });
        let is_done = self.keeper.in_runtime(|| {
            let waker = Waker::from(Arc::clone(&caller_task));
            ON_CALLER.set(true);
            let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
            ON_CALLER.set(false);
            polled.is_ready()
        });
        if !is_done {
            caller_task.keep_until_woken(task);
            self.run_keeper_soon();
        }
    }
}

impl CallerTask {
    /// Keeps the task until its wake-up, or passes it to the keeper if it was woken already.
    fn keep_until_woken(&self, task: Task) {
        let mut stage = self.lock();
        if matches!(*stage, TaskStage::Woken) {
            *stage = TaskStage::HandedOver;
            drop(stage);
            self.hand_over(task);
        } else {
            *stage = TaskStage::Waits(task);
        }
    }

    /// Passes the task to the keeper.
    fn hand_over(&self, task: Task) {
        // A keeper that accepts no more tasks has already ended all waits and reported all holds lost.
        let _ = self.shared.keeper.spawn(task);
    }

    fn lock(&self) -> MutexGuard<'_, TaskStage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for CallerTask {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut stage = self.lock();
        match std::mem::replace(&mut *stage, TaskStage::HandedOver) {
            TaskStage::Polled | TaskStage::Woken => *stage = TaskStage::Woken,
            TaskStage::Waits(task) => {
                drop(stage);
                self.hand_over(task);
            }
            TaskStage::HandedOver => {}
        }
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use std::{future::poll_fn, sync::mpsc::channel, task::Poll, thread};

    use super::*;
    use crate::{
        Env, Locks,
        engines::memory::{MemoryEngine, MemoryStore},
    };

    #[test]
    fn a_task_woken_during_its_first_poll_continues_in_the_keeper_thread() {
        let env = Env::system();
        let store = MemoryStore::new(env.lineage(), env.clock);
        let locks = Locks::new(Arc::new(MemoryEngine::new(store)));
        let shared = locks.shared();
        shared.ensure_served().unwrap();
        let (sender, receiver) = channel();
        let mut polls = 0;
        shared.start_on_caller(poll_fn(move |context| {
            polls += 1;
            let _ = sender.send((thread::current().name().map(str::to_owned), is_on_calling_thread()));
            context.waker().wake_by_ref();
            if polls < 2 { Poll::Pending } else { Poll::Ready(()) }
        }));
        let here = thread::current().name().map(str::to_owned);
        assert_eq!(receiver.recv().unwrap(), (here, true));
        assert_eq!(receiver.recv().unwrap(), (Some("leasehold".to_owned()), false));
        assert!(receiver.recv().is_err(), "it is done");
    }
}
