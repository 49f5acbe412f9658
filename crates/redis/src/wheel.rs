//! What keeps a connection going: its task, or who has just left a call while nobody else is at it. So a request leaves from the thread
//! that asks, and the keeper's is not woken for it, only for the answer.

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

/// How often one who left a call goes on when what was done has woken something else of the connection: the call goes through two
/// queues.
const MOST_TURNS: u32 = 4;

thread_local! {
    /// The wheel that this thread turns, by its address, and whether it was woken meanwhile.
    static TURNS: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The work of one connection.
pub(crate) struct Wheel(Arc<Inner>);

struct Inner {
    /// `None` when it is done.
    work: Mutex<Option<Work>>,
    /// Wakes the task.
    task: AtomicWaker,
    /// The task found it being turned.
    missed: AtomicBool,
}

impl Wheel {
    /// The task is to be run for as long as the connection is to last.
    pub(crate) fn new(work: Work) -> (Self, impl Future<Output = ()> + Send) {
        let work = Mutex::new(Some(work));
        let inner = Arc::new(Inner { work, task: AtomicWaker::new(), missed: AtomicBool::new(false) });
        let ended = EndsWork(Arc::clone(&inner));
        let task = std::future::poll_fn(move |context| ended.0.poll_task(context));
        (Self(inner), task)
    }

    /// Does what leaves a call, and sends it. Runs where the task could: with its timers at hand.
    pub(crate) fn turn<T>(&self, leave: impl FnOnce() -> T) -> T {
        let before = TURNS.replace((self.0.address(), false));
        let left = leave();
        let is_settled = self.turn_on();
        TURNS.set(before);
        if !is_settled {
            self.0.task.wake();
        }
        left
    }

    /// Whether nothing is left to do but what will wake the task.
    fn turn_on(&self) -> bool {
        for _ in 0..MOST_TURNS {
            let Some(mut work) = self.0.try_work() else { return false };
            TURNS.set((self.0.address(), false));
            let is_done = self.0.poll_work(&mut work);
            drop(work);
            // Only now: it looks whether the wheel is still being turned.
            if self.0.missed.swap(false, Ordering::SeqCst) || is_done {
                return false;
            }
            let (_, again) = TURNS.get();
            if !again {
                return true;
            }
        }
        false
    }
}

impl Inner {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Never waits: the keeper has other connections, and whoever turns this one may be stopped meanwhile.
    fn poll_task(self: &Arc<Self>, context: &mut Context<'_>) -> Poll<()> {
        self.task.register(context.waker());
        // In this order: whoever lets go of it after this looks there.
        self.missed.store(true, Ordering::SeqCst);
        let Some(mut work) = self.try_work() else { return Poll::Pending };
        self.missed.store(false, Ordering::SeqCst);
        if self.poll_work(&mut work) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether it is done.
    fn poll_work(self: &Arc<Self>, work: &mut Option<Work>) -> bool {
        let Some(future) = work else { return true };
        let waker = Waker::from(Arc::clone(self));
        let poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
        let is_done = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(polled) => polled.is_ready(),
            // As a runtime does: what it left half-way through is dropped, which tells whoever waits for it.
            Err(_) => true,
        };
        if is_done {
            *work = None;
        }
        is_done
    }

    fn try_work(&self) -> Option<MutexGuard<'_, Option<Work>>> {
        match self.work.try_lock() {
            Ok(work) => Some(work),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let here = TURNS.try_with(|turns| {
            let (wheel, _) = turns.get();
            let here = wheel == self.address();
            if here {
                turns.set((wheel, true));
            }
            here
        });
        if !here.unwrap_or(false) {
            self.task.wake();
        }
    }
}

/// The task is gone, and with it the connection, in whatever way.
struct EndsWork(Arc<Inner>);

impl Drop for EndsWork {
    fn drop(&mut self) {
        let work = self.0.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(work);
    }
}
