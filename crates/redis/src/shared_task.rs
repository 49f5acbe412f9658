//! The task of a connection. The thread of a caller can poll this task too, after the caller has queued a call, and
//! while no other thread polls it. The request then leaves from the caller's thread, and the keeper's thread is woken
//! only for the answer.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::task::AtomicWaker;

/// How many times the thread of a caller polls the task for one call at most. After a poll that woke the task, the
/// thread polls again, because a call passes two queues of the connection.
const MAX_POLLS: u32 = 4;

thread_local! {
    /// The task that this thread polls, by its address (0: none), and whether the task was woken since the poll began.
    static POLLED_TASK: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

/// The future that runs a connection.
type ConnectionWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The work of one connection.
pub(crate) struct SharedTask(Arc<ConnectionTask>);

/// What the task and the threads of callers share.
struct ConnectionTask {
    /// The work; `None` when it is done.
    work: Mutex<Option<ConnectionWork>>,
    /// Wakes the task that [`SharedTask::new`] returns.
    task: AtomicWaker,
    /// Whether the task was woken but could not poll, because a thread of a caller was polling.
    missed_wake: AtomicBool,
}

impl SharedTask {
    /// Wraps the work. The returned task must run for as long as the connection is to last.
    pub(crate) fn new(work: ConnectionWork) -> (Self, impl Future<Output = ()> + Send) {
        let work = Mutex::new(Some(work));
        let inner =
            Arc::new(ConnectionTask { work, task: AtomicWaker::new(), missed_wake: AtomicBool::new(false) });
        let owner = WorkOwner(Arc::clone(&inner));
        let task = std::future::poll_fn(move |context| owner.0.poll_task(context));
        (Self(inner), task)
    }

    /// Runs `queue_call`, which queues a call, and polls the work to send the call. The caller must be within the
    /// runtime of the task.
    pub(crate) fn poll_after<T>(&self, queue_call: impl FnOnce() -> T) -> T {
        let polled_outside = POLLED_TASK.replace((self.0.address(), false));
        let result = queue_call();
        let is_settled = self.poll_while_woken();
        POLLED_TASK.set(polled_outside);
        if !is_settled {
            self.0.task.wake();
        }
        result
    }

    /// Polls until a poll does not wake the task. Returns false if the task must be woken, because work may be left.
    fn poll_while_woken(&self) -> bool {
        for _ in 0..MAX_POLLS {
            let Some(mut work) = self.0.try_work() else { return false };
            POLLED_TASK.set((self.0.address(), false));
            let is_done = self.0.poll_work(&mut work);
            drop(work);
            // The flag is checked after the work is unlocked: the task sets the flag before it tries to lock the work.
            if self.0.missed_wake.swap(false, Ordering::SeqCst) || is_done {
                return false;
            }
            let (_, was_woken) = POLLED_TASK.get();
            if !was_woken {
                return true;
            }
        }
        false
    }
}

impl ConnectionTask {
    /// The address of this value, which identifies the task.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Polls the work once, for its task. Never waits for a thread that is polling the work: that thread can be
    /// suspended, and the keeper has other connections to serve.
    fn poll_task(self: &Arc<Self>, context: &mut Context<'_>) -> Poll<()> {
        self.task.register(context.waker());
        // The flag is set before the attempt to lock: a thread that is polling now reads the flag when it stops.
        self.missed_wake.store(true, Ordering::SeqCst);
        let Some(mut work) = self.try_work() else { return Poll::Pending };
        self.missed_wake.store(false, Ordering::SeqCst);
        if self.poll_work(&mut work) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Polls the work; true if it is done.
    fn poll_work(self: &Arc<Self>, work: &mut Option<ConnectionWork>) -> bool {
        let Some(future) = work else { return true };
        let waker = Waker::from(Arc::clone(self));
        let poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
        let is_done = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(polled) => polled.is_ready(),
            // After a panic the unfinished work is dropped, as a runtime would do; then no caller waits for an answer
            // any more.
            Err(_) => true,
        };
        if is_done {
            *work = None;
        }
        is_done
    }

    /// Locks the work; `None` while another thread polls.
    fn try_work(&self) -> Option<MutexGuard<'_, Option<ConnectionWork>>> {
        match self.work.try_lock() {
            Ok(work) => Some(work),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Wake for ConnectionTask {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// If the thread that polls the task wakes it, the wake-up is only recorded: that thread then polls again.
    fn wake_by_ref(self: &Arc<Self>) {
        let is_polled_here = POLLED_TASK.try_with(|polled| {
            let (task, _) = polled.get();
            let is_polled_here = task == self.address();
            if is_polled_here {
                polled.set((task, true));
            }
            is_polled_here
        });
        if !is_polled_here.unwrap_or(false) {
            self.task.wake();
        }
    }
}

/// Owned by the task: when dropped, drops the work and with it the connection.
struct WorkOwner(Arc<ConnectionTask>);

impl Drop for WorkOwner {
    fn drop(&mut self) {
        let work = self.0.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(work);
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::atomic::AtomicU32, task::Poll};

    use super::*;

    /// Counts how often the task is woken.
    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Woken {
        fn times(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }
    }

    /// Work that runs `poll` with the number of earlier polls; also returns its task, and the count of polls.
    fn work(
        mut poll: impl FnMut(u32, &Waker) -> bool + Send + 'static,
    ) -> (SharedTask, Pin<Box<dyn Future<Output = ()> + Send>>, Arc<AtomicU32>) {
        let polls = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&polls);
        let (shared, task) = SharedTask::new(Box::pin(poll_fn(move |context| {
            let earlier_polls = count.fetch_add(1, Ordering::SeqCst);
            if poll(earlier_polls, context.waker()) { Poll::Ready(()) } else { Poll::Pending }
        })));
        (shared, Box::pin(task), polls)
    }

    fn poll(task: &mut Pin<Box<dyn Future<Output = ()> + Send>>, woken: &Arc<Woken>) -> bool {
        let waker = Waker::from(Arc::clone(woken));
        task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    }

    #[test]
    fn a_caller_does_the_woken_work_and_the_task_sleeps() {
        let stored_waker = Arc::new(Mutex::new(None::<Waker>));
        let waker_slot = Arc::clone(&stored_waker);
        let (shared, mut task, polls) = work(move |earlier_polls, waker| {
            *waker_slot.lock().unwrap() = Some(waker.clone());
            // The second poll wakes another part of the connection.
            if earlier_polls == 1 {
                waker.wake_by_ref();
            }
            false
        });
        let woken = Arc::new(Woken::default());
        assert!(!poll(&mut task, &woken));
        let wake = || stored_waker.lock().unwrap().clone().unwrap().wake();
        shared.poll_after(wake);
        assert_eq!((polls.load(Ordering::SeqCst), woken.times()), (3, 0));
        // A later answer wakes the task.
        wake();
        assert_eq!(woken.times(), 1);
        let other = shared.0.clone();
        std::thread::scope(|scope| {
            assert!(!poll(&mut task, &woken));
            shared.poll_after(|| scope.spawn(|| other.wake_by_ref()).join().unwrap());
        });
        assert_eq!(woken.times(), 2, "another thread wakes it also meanwhile");
    }

    #[test]
    fn a_task_does_not_wait_for_a_polling_caller() {
        let (shared, mut task, polls) = work(|_, _| false);
        let woken = Arc::new(Woken::default());
        let locked_work = shared.0.try_work().unwrap();
        assert!(!poll(&mut task, &woken));
        assert_eq!(polls.load(Ordering::SeqCst), 0);
        drop(locked_work);
        shared.poll_after(|| ());
        assert_eq!((polls.load(Ordering::SeqCst), woken.times()), (1, 1));
    }

    #[test]
    fn a_caller_that_cannot_poll_wakes_the_task() {
        let (shared, mut task, polls) = work(|_, _| false);
        let woken = Arc::new(Woken::default());
        assert!(!poll(&mut task, &woken));
        let locked_work = shared.0.try_work().unwrap();
        shared.poll_after(|| ());
        assert_eq!((polls.load(Ordering::SeqCst), woken.times()), (1, 1));
        drop(locked_work);
    }

    #[test]
    fn work_that_ends_or_panics_in_a_caller_ends_the_task() {
        for panics in [false, true] {
            let (shared, mut task, _) = work(move |earlier_polls, _| {
                assert!(earlier_polls == 0 || !panics, "as a bug would");
                earlier_polls > 0
            });
            let woken = Arc::new(Woken::default());
            assert!(!poll(&mut task, &woken));
            shared.poll_after(|| ());
            assert_eq!(woken.times(), 1);
            assert!(shared.0.try_work().unwrap().is_none(), "it was dropped");
            assert!(poll(&mut task, &woken));
        }
    }

    #[test]
    fn the_work_is_dropped_with_its_task() {
        let (shared, task, _) = work(|_, _| false);
        drop(task);
        assert!(shared.0.try_work().unwrap().is_none());
        shared.poll_after(|| ());
    }
}
