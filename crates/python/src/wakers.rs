//! Wake-ups of an event loop. A thread of the library that has a result writes to a descriptor that the loop watches:
//! it never waits for the interpreter, whose lock another thread may hold for long. Several wake-ups are one write.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Wake,
};

use pyo3::{exceptions::PyOSError, intern, prelude::*};
use rustix::event::{EventfdFlags, eventfd};

use crate::operation::Operation;

/// The wake-ups of one event loop. The loop calls `drain` when the descriptor is readable.
#[pyclass(frozen, weakref, module = "leasehold._leasehold")]
pub struct WakeQueue {
    shared: Arc<Shared>,
}

struct Shared {
    descriptor: OwnedFd,
    /// What was woken since the last `drain`.
    woken: Mutex<Vec<Arc<Slot>>>,
}

/// One wait of a task, or of an operation with a callback. Only the thread of the event loop resumes it, so that a
/// wake-up between the poll and the return to the loop is not lost.
pub struct Slot {
    queue: Arc<Shared>,
    waits: Mutex<Option<Waits>>,
}

/// Who is resumed.
enum Waits {
    /// The task that awaits this future.
    Task(Py<PyAny>),
    Callback(Py<Operation>, Py<PyAny>),
}

impl WakeQueue {
    /// A wait in this loop.
    pub fn slot(&self) -> Arc<Slot> {
        Arc::new(Slot { queue: Arc::clone(&self.shared), waits: Mutex::new(None) })
    }
}

#[pymethods]
impl WakeQueue {
    #[new]
    fn new() -> PyResult<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| PyOSError::new_err(errno.raw_os_error()))?;
        Ok(Self { shared: Arc::new(Shared { descriptor, woken: Mutex::default() }) })
    }

    fn fileno(&self) -> i32 {
        self.shared.descriptor.as_raw_fd()
    }

    /// Resumes what was woken.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        // The descriptor first: a wake-up after it makes the descriptor readable again.
        let _ = rustix::io::read(&self.shared.descriptor, &mut [0; 8]);
        let woken = std::mem::take(&mut *lock(&self.shared.woken));
        for slot in woken {
            let waits = lock(&slot.waits).take();
            match waits {
                Some(Waits::Task(future)) => set_done(future.bind(py))?,
                Some(Waits::Callback(operation, callback)) => {
                    Operation::poll_for_callback(operation.bind(py), &slot, &callback)?;
                }
                None => {}
            }
        }
        Ok(())
    }
}

impl Slot {
    /// Resumes the task that awaits `future` at the next wake-up.
    pub fn resume_task(&self, future: Py<PyAny>) {
        *lock(&self.waits) = Some(Waits::Task(future));
    }

    /// Polls `operation` again at the next wake-up, for `callback`.
    pub fn poll_again(&self, operation: Py<Operation>, callback: Py<PyAny>) {
        *lock(&self.waits) = Some(Waits::Callback(operation, callback));
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
