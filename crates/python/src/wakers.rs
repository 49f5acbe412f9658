//! Wake-ups of an event loop. A thread of the library that has a result writes to a descriptor that the loop watches:
//! it never waits for the interpreter, whose lock another thread may hold for long. Several wake-ups are one write.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
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
    task_blocks::BlockLoss,
    task_wait::TaskWait,
};

/// From this number of slots on, those that nobody waits in are removed: a pass over fewer costs nothing.
const FEW_SLOTS: usize = 64;

/// The wake-ups of one event loop. The loop calls `drain` when the descriptor is readable. Only the loop refers to this
/// object: when the loop is closed, the waits in it are cancelled, because nobody would resume them.
#[pyclass(frozen, weakref, module = "leasehold._leasehold")]
pub struct WakeQueue {
    shared: Arc<Shared>,
}

/// What the wake-ups of a loop, and those who wake, share.
pub struct Shared {
    /// The process of the loop.
    forks: u32,
    /// The loop is closed.
    is_closed: AtomicBool,
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
    /// The queue has noted it.
    is_noted: AtomicBool,
}

/// Who is resumed.
enum Waits {
    /// A task of asyncio.
    Task(Py<TaskWait>),
    /// A task of trio.
    Resumption(Py<PyAny>),
    /// The call is polled again, for this callback.
    Callback(Callback),
}

/// Who is told of a result.
pub enum Callback {
    Python(Py<PyAny>),
    /// A block, of its loss.
    Block(Arc<BlockLoss>),
}

impl Callback {
    pub fn call(&self, py: Python<'_>, result: Py<PyAny>) -> PyResult<()> {
        match self {
            Self::Python(callback) => callback.call1(py, (result,)).map(drop),
            Self::Block(loss) => loss.tell(py, result),
        }
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Python(callback) => Self::Python(callback.clone_ref(py)),
            Self::Block(loss) => Self::Block(Arc::clone(loss)),
        }
    }
}

impl WakeQueue {
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }
}

impl Drop for WakeQueue {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
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
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Notes a wait, which ends when the loop is closed.
    fn note(&self, slot: &Arc<Slot>) {
        let mut slots = lock(&self.slots);
        if slots.slots.len() >= slots.clean_at {
            slots.slots.retain(|slot| slot.strong_count() > 0);
            slots.clean_at = FEW_SLOTS.max(slots.slots.len() * 2);
        }
        slots.slots.push(Arc::downgrade(slot));
    }

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
        let is_closed = AtomicBool::new(false);
        let shared =
            Arc::new(Shared { forks: forks(), is_closed, descriptor, woken: Mutex::default(), slots });
        let mut queues = lock(&QUEUES);
        queues.retain(|other| other.strong_count() > 0);
        queues.push(Arc::downgrade(&shared));
        Ok(Self { shared })
    }

    fn fileno(&self) -> i32 {
        self.shared.descriptor.as_raw_fd()
    }

    /// Resumes what was woken. An exception of one does not stop the others; one that ends the program, such as that of
    /// Ctrl-C, leaves the others to another turn of the loop.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        // The descriptor first: a wake-up after it makes the descriptor readable again.
        let _ = rustix::io::read(&self.shared.descriptor, &mut [0; 8]);
        let mut woken = std::mem::take(&mut *lock(&self.shared.woken)).into_iter();
        while let Some(slot) = woken.next() {
            match slot.resume(py) {
                Err(error) if error.is_instance_of::<PyException>(py) => error.write_unraisable(py, None),
                Err(error) => {
                    self.shared.wake(woken);
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

impl Slot {
    /// For a wait of `work` in the loop of `queue`.
    pub fn new(queue: &Arc<Shared>, work: &Arc<WorkCell>) -> Arc<Self> {
        let queue = Arc::clone(queue);
        Arc::new(Self {
            queue,
            work: Arc::downgrade(work),
            waits: Mutex::default(),
            is_noted: AtomicBool::new(false),
        })
    }

    /// Resumes the task that waits by `wait` at the next wake-up.
    pub fn resume_task(self: &Arc<Self>, wait: Py<TaskWait>) {
        self.set(Waits::Task(wait));
    }

    /// Resumes the task of trio that waits by `resumption` at the next wake-up.
    pub fn resume_by(self: &Arc<Self>, resumption: Py<PyAny>) {
        self.set(Waits::Resumption(resumption));
    }

    /// Polls the call again at the next wake-up, for `callback`.
    pub fn poll_again(self: &Arc<Self>, callback: Callback) {
        self.set(Waits::Callback(callback));
    }

    fn set(self: &Arc<Self>, waits: Waits) {
        *lock(&self.waits) = Some(waits);
        if !self.is_noted.swap(true, Ordering::Relaxed) {
            self.queue.note(self);
        }
    }

    fn resume(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        let waits = lock(&self.waits).take();
        match waits {
            Some(Waits::Task(wait)) => TaskWait::resume(wait.bind(py)),
            Some(Waits::Resumption(resumption)) => set_done(resumption.bind(py)),
            Some(Waits::Callback(callback)) => match self.work.upgrade() {
                Some(work) => Operation::poll_for_callback(&work, py, self, &callback),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }
}

impl Shared {
    /// Wakes the loop for these slots.
    fn wake(&self, slots: impl Iterator<Item = Arc<Slot>>) {
        let mut woken = lock(&self.woken);
        let is_awake = !woken.is_empty();
        woken.extend(slots);
        if !is_awake && !woken.is_empty() {
            // It fails only if the counter is full: then the descriptor is readable already.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        let queue = Arc::clone(&self.queue);
        queue.wake(std::iter::once(self));
    }
}

/// A task that was cancelled is resumed already.
fn set_done(resumption: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = resumption.py();
    if !resumption.call_method0(intern!(py, "done"))?.is_truthy()? {
        resumption.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
