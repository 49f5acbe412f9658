//! Wake-ups of an event loop. A thread of the library that has a result writes to a descriptor that the loop watches:
//! it never waits for the interpreter, whose lock another thread may hold for long. Several wake-ups are one write.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::Wake,
};

use pyo3::{
    exceptions::{PyException, PyOSError},
    intern,
    prelude::*,
};
use rustix::event::{EventfdFlags, eventfd};

use crate::{
    locks::forks,
    operation::{Operation, WorkCell},
};

/// From this number of slots on, those that nobody waits in are removed: a pass over fewer costs nothing.
const FEW_SLOTS: usize = 64;

/// The wake-ups of one event loop. The loop calls `drain` when the descriptor is readable. Only the loop refers to this
/// object: when the loop is closed, the waits in it are cancelled, because nobody would resume them.
#[pyclass(frozen, weakref, module = "leasehold._leasehold")]
pub struct WakeQueue {
    shared: Arc<Shared>,
}

struct Shared {
    /// The process of the loop.
    forks: u32,
    descriptor: OwnedFd,
    /// What was woken since the last `drain`.
    woken: Mutex<Vec<Arc<Slot>>>,
    slots: Mutex<Slots>,
}

/// The slots of a queue.
struct Slots {
    /// Some may be dropped already.
    slots: Vec<Weak<Slot>>,
    /// At this length the dropped ones are removed: at twice the number that was left after the last removal.
    clean_at: usize,
}

/// One wait of a task, or of an operation with a callback. Only the thread of the event loop resumes it, so that a
/// wake-up between the poll and the return to the loop is not lost.
pub struct Slot {
    queue: Arc<Shared>,
    /// The call that waits. It has the waker of this slot, so the slot does not keep it.
    work: Weak<WorkCell>,
    waits: Mutex<Option<Waits>>,
}

/// Who is resumed.
enum Waits {
    /// The task that awaits this future.
    Task(Py<PyAny>),
    /// The call is polled again, for this callback.
    Callback(Py<PyAny>),
}

impl WakeQueue {
    /// A wait of `work` in this loop.
    pub fn slot(&self, work: &Arc<WorkCell>) -> Arc<Slot> {
        let slot = Arc::new(Slot {
            queue: Arc::clone(&self.shared),
            work: Arc::downgrade(work),
            waits: Mutex::new(None),
        });
        let mut slots = lock(&self.shared.slots);
        if slots.slots.len() >= slots.clean_at {
            slots.slots.retain(|slot| slot.strong_count() > 0);
            slots.clean_at = FEW_SLOTS.max(slots.slots.len() * 2);
        }
        slots.slots.push(Arc::downgrade(&slot));
        slot
    }
}

impl Drop for WakeQueue {
    fn drop(&mut self) {
        // In a forked child another thread of the parent may have left a mutex locked, and no wait is the child's.
        if self.shared.forks == forks() {
            self.shared.cancel_waits();
        }
    }
}

/// The queues of this process, for its end.
static QUEUES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Cancels all waits in event loops of this process, which ends: a loop that was not closed may have been granted what
/// it does not use.
pub fn cancel_waits() {
    let queues = std::mem::take(&mut *lock(&QUEUES));
    for queue in queues.iter().filter_map(Weak::upgrade).filter(|queue| queue.forks == forks()) {
        queue.cancel_waits();
    }
}

impl Shared {
    fn cancel_waits(&self) {
        let slots = std::mem::take(&mut lock(&self.slots).slots);
        for slot in slots.iter().filter_map(Weak::upgrade) {
            if let Some(work) = slot.work.upgrade() {
                work.cancel();
            }
            let waits = lock(&slot.waits).take();
            drop(waits);
        }
        let woken = std::mem::take(&mut *lock(&self.woken));
        drop(woken);
    }
}

#[pymethods]
impl WakeQueue {
    #[new]
    fn new() -> PyResult<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| PyOSError::new_err(errno.raw_os_error()))?;
        let slots = Mutex::new(Slots { slots: Vec::new(), clean_at: FEW_SLOTS });
        let shared = Arc::new(Shared { forks: forks(), descriptor, woken: Mutex::default(), slots });
        let mut queues = lock(&QUEUES);
        queues.retain(|other| other.strong_count() > 0);
        queues.push(Arc::downgrade(&shared));
        Ok(Self { shared })
    }

    fn fileno(&self) -> i32 {
        self.shared.descriptor.as_raw_fd()
    }

    /// Resumes what was woken. An exception of one does not stop the others; one that ends the program, such as that of
    /// Ctrl-C, is raised after them.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        // The descriptor first: a wake-up after it makes the descriptor readable again.
        let _ = rustix::io::read(&self.shared.descriptor, &mut [0; 8]);
        let woken = std::mem::take(&mut *lock(&self.shared.woken));
        let mut ends = Ok(());
        for slot in woken {
            let waits = lock(&slot.waits).take();
            let resumed = match (waits, slot.work.upgrade()) {
                (Some(Waits::Task(future)), _) => set_done(future.bind(py)),
                (Some(Waits::Callback(callback)), Some(work)) => {
                    Operation::poll_for_callback(&work, py, &slot, &callback)
                }
                _ => Ok(()),
            };
            match resumed {
                Err(error) if error.is_instance_of::<PyException>(py) => error.write_unraisable(py, None),
                Err(error) => ends = Err(error),
                Ok(()) => {}
            }
        }
        ends
    }
}

impl Slot {
    /// Resumes the task that awaits `future` at the next wake-up.
    pub fn resume_task(&self, future: Py<PyAny>) {
        *lock(&self.waits) = Some(Waits::Task(future));
    }

    /// Polls the call again at the next wake-up, for `callback`.
    pub fn poll_again(&self, callback: Py<PyAny>) {
        *lock(&self.waits) = Some(Waits::Callback(callback));
    }
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        let queue = Arc::clone(&self.queue);
        let mut woken = lock(&queue.woken);
        woken.push(self);
        if woken.len() == 1 {
            // It fails only if the counter is full: then the descriptor is readable already.
            let _ = rustix::io::write(&queue.descriptor, &1_u64.to_ne_bytes());
        }
    }
}

/// A task that was cancelled has a future that is done already.
fn set_done(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
        future.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
