//! The hold of a guard. The calls that use a hold share it, and it is released when the last of them ends. A list of
//! all holds of the process serves to release them when the interpreter ends.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

use leasehold::Error;
use pyo3::prelude::*;

use crate::{
    locks::{end_waits, forks},
    wakers::cancel_waits,
};

/// The holds of this process that were not released.
static HELD: Mutex<Held> = Mutex::new(Held { last: 0, holds: BTreeMap::new() });

struct Held {
    /// The last number given.
    last: u64,
    holds: BTreeMap<u64, Weak<Hold>>,
}

/// The hold of a guard, until it is released.
pub struct Hold {
    /// `None`: released. Calls in progress share it.
    kept: Mutex<Option<Arc<Kept>>>,
    number: u64,
    /// Of the process that it belongs to.
    forks: u32,
}

/// The guard of the library. Dropping it releases the hold.
struct Kept {
    /// `None`: its release has begun.
    guard: Option<leasehold::Guard>,
    /// For how long the name stays taken, from the grant on.
    at_least: Option<Duration>,
    /// Whether its end leaves the hold to the end of the lease.
    is_left: AtomicBool,
    /// The release that waits until the other calls have ended.
    release: Arc<Mutex<Option<Waker>>>,
}

/// A call that uses the hold.
pub struct Use(Option<Arc<Kept>>);

impl Hold {
    pub fn new(guard: leasehold::Guard, at_least: Option<Duration>) -> Arc<Self> {
        let is_left = AtomicBool::new(false);
        let kept = Kept { guard: Some(guard), at_least, is_left, release: Arc::default() };
        let mut held = lock(&HELD);
        held.last += 1;
        let number = held.last;
        let hold = Arc::new(Self { kept: Mutex::new(Some(Arc::new(kept))), number, forks: forks() });
        held.holds.insert(number, Arc::downgrade(&hold));
        hold
    }

    /// Whether another process, which forked this one, has the hold.
    pub fn is_of_parent(&self) -> bool {
        self.forks != forks()
    }

    pub fn is_released(&self) -> bool {
        lock(&self.kept).is_none()
    }

    pub fn check(&self) -> bool {
        !self.is_of_parent() && lock(&self.kept).as_ref().is_some_and(|kept| kept.guard().check())
    }

    /// What `look` says of the hold; `None` after its release.
    pub fn look<T>(&self, look: impl FnOnce(&leasehold::Guard) -> T) -> Option<T> {
        lock(&self.kept).as_ref().map(|kept| look(kept.guard()))
    }

    /// The end of the guard leaves the hold to the end of the lease, where the engine can.
    pub fn leave_at_end(&self) {
        if let Some(kept) = &*lock(&self.kept) {
            kept.is_left.store(true, Ordering::Relaxed);
        }
    }

    fn is_left(&self) -> bool {
        lock(&self.kept).as_ref().is_some_and(|kept| kept.is_left.load(Ordering::Relaxed))
    }

    /// The hold for the time of one call; `None` after its release.
    pub fn borrow(&self) -> Option<Use> {
        lock(&self.kept).as_ref().map(|kept| Use(Some(Arc::clone(kept))))
    }

    /// The release, which begins when it is polled or dropped; `None` if it began before.
    pub fn release(&self) -> Option<impl Future<Output = Result<(), Error>> + Send + use<>> {
        let kept = Use(Some(self.take()?));
        Some(async move {
            // While another call confirms or extends the hold, it is held.
            poll_fn(|context| {
                if kept.is_last() {
                    return Poll::Ready(());
                }
                *lock(&kept.kept().release) = Some(context.waker().clone());
                // A call that ended before it could see the waker is gone now.
                if kept.is_last() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            kept.begin_release().await
        })
    }

    /// The guard of the library, whose end is the caller's work; `None` after its release, or if another call uses it.
    pub fn take_guard(&self) -> Option<leasehold::Guard> {
        Arc::into_inner(self.take()?)?.guard.take()
    }

    fn take(&self) -> Option<Arc<Kept>> {
        let kept = lock(&self.kept).take()?;
        lock(&HELD).holds.remove(&self.number);
        Some(kept)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let kept = self.take();
        if self.is_of_parent() {
            // The hold, with the threads and connections that keep it, belongs to the parent process.
            mem::forget(kept);
        }
    }
}

impl Kept {
    const fn guard(&self) -> &leasehold::Guard {
        self.guard.as_ref().expect("it is taken only when nothing else refers to this")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        if self.is_left.load(Ordering::Relaxed) {
            // Where the engine knows no hold without a process, this releases.
            let _ = guard.into_handle();
        } else if let Some(at_least) = self.at_least {
            // It begins now, and nobody waits for the answer.
            drop(guard.release_at_least(at_least));
        }
    }
}

impl Use {
    const fn kept(&self) -> &Arc<Kept> {
        self.0.as_ref().expect("it is taken only at the end")
    }

    pub fn guard(&self) -> &leasehold::Guard {
        self.kept().guard()
    }

    fn is_last(&self) -> bool {
        // No other call can begin: the hold has no reference any more.
        Arc::strong_count(self.kept()) == 1
    }

    /// Begins the release, if this is the last use.
    fn begin_release(mut self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let mut kept = self.0.take().and_then(Arc::into_inner);
        let at_least = kept.as_ref().and_then(|kept| kept.at_least);
        let guard = kept.as_mut().and_then(|kept| kept.guard.take());
        async move {
            match (guard, at_least) {
                (Some(guard), Some(at_least)) => guard.release_at_least(at_least).await,
                (Some(guard), None) => guard.release().await,
                (None, _) => Ok(()),
            }
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let Some(kept) = self.0.take() else { return };
        let release = Arc::clone(&kept.release);
        drop(kept);
        let waker = lock(&release).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Ends all waits and releases all holds when it is dropped. The module has one: the interpreter drops it when it ends,
/// after no thread can run Python code any more. The library waits for the answers, for a second at most, when the
/// process ends.
#[pyclass(frozen, module = "leasehold._leasehold")]
pub struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        end_all_waits();
        crate::election::end_all();
        let holds = mem::take(&mut lock(&HELD).holds);
        for hold in holds.values().filter_map(Weak::upgrade) {
            if !hold.is_of_parent() {
                drop(hold.take());
            }
        }
    }
}

/// Ends all waits of an interpreter that ends, and leaves the holds that are to be left, before holds are released:
/// otherwise a release would hand the name over to a thread or task that cannot run any more.
pub fn end_all_waits() {
    // Locks that are closed release.
    let holds: Vec<_> = lock(&HELD).holds.values().filter_map(Weak::upgrade).collect();
    for hold in holds.iter().filter(|hold| !hold.is_of_parent() && hold.is_left()) {
        drop(hold.take());
    }
    end_waits();
    cancel_waits();
}

/// In a forked child: the holds are those of its parent.
pub fn forget_holds() {
    crate::election::forget_all();
    // The fork was called with the lock of the interpreter, as all that changes the holds is.
    if let Ok(mut held) = HELD.try_lock() {
        held.holds.clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
