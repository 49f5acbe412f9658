//! One call of the library, which a thread waits for ([`Operation::wait`]) or a task of an event loop awaits.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
};

use leasehold::{Error, ErrorKind};
use pyo3::{
    exceptions::{PyRuntimeError, PyStopIteration},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::PyWeakrefReference,
};

use crate::{
    errors::exception,
    event_loop::{LoopOfAsyncio, is_in_trio, running_loop},
    locks::{Locks, forks},
    task_wait::TaskWait,
    thread_wait::block_on,
    wakers::{Callback, Shared, Slot, WakeQueue},
};

/// Turns the result of a call into a Python object, or an exception.
pub type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
/// A call that runs.
pub type Work = Pin<Box<dyn Future<Output = Finish> + Send>>;

/// One call of the library. Dropping it, at any point, cancels the call: futures of the library are cancel safe.
#[pyclass(frozen, module = "leasehold._leasehold")]
pub struct Operation {
    work: Arc<WorkCell>,
    /// Where a task of asyncio awaits it, once that is known.
    awaited: OnceLock<Awaited>,
    /// The locks that it is a call on, if that is known: a thread that waits may run their keeper.
    locks: Option<Py<Locks>>,
}

/// A task of this loop awaits an operation.
struct Awaited {
    event_loop: Py<PyWeakrefReference>,
    slot: Arc<Slot>,
}

/// The call of an operation. Those who resume it refer to it weakly: the call itself has their wakers.
pub struct WorkCell {
    /// `None`: done, or cancelled, or polled now.
    work: Mutex<Option<Work>>,
    /// Of the process that made the call.
    forks: u32,
}

impl WorkCell {
    fn lock(&self) -> MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the call. `drop` of the library never blocks.
    pub fn cancel(&self) {
        let work = self.lock().take();
        if self.forks == forks() {
            drop(work);
        } else {
            // The call belongs to the parent process, with the threads and connections that run it.
            std::mem::forget(work);
        }
    }
}

impl Drop for WorkCell {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Operation {
    /// An operation whose result `finish` turns into a Python object.
    pub fn new<T: Send + 'static>(
        work: impl Future<Output = T> + Send + 'static,
        finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Self {
        let work: Work = Box::pin(async move {
            let result = work.await;
            let finish: Finish = Box::new(move |py| finish(py, result));
            finish
        });
        Self::of(Arc::new(WorkCell { work: Mutex::new(Some(work)), forks: forks() }))
    }

    const fn of(work: Arc<WorkCell>) -> Self {
        Self { work, awaited: OnceLock::new(), locks: None }
    }

    /// This operation, as a call on `locks`.
    pub fn on(self, locks: Py<Locks>) -> Self {
        Self { locks: Some(locks), ..self }
    }

    /// This operation, to be awaited by a task of that loop.
    pub fn awaited_in(self, running: Option<LoopOfAsyncio>) -> Self {
        if let Some(running) = running {
            self.awaited_by(running);
        }
        self
    }

    fn awaited_by(&self, running: LoopOfAsyncio) -> &Awaited {
        let LoopOfAsyncio { event_loop, queue } = running;
        self.awaited.get_or_init(|| Awaited { event_loop, slot: Slot::new(&queue, &self.work) })
    }

    /// An operation that results in the reason of a loss.
    pub fn of_loss(reason: impl Future<Output = String> + Send + 'static) -> Self {
        Self::new(reason, |py, reason| Ok(reason.into_pyobject(py)?.into_any().unbind()))
    }

    /// This operation, and then `next` with its result.
    pub fn then(
        self,
        py: Python<'_>,
        next: impl FnOnce(Python<'_>, PyResult<Py<PyAny>>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Self> {
        let work = self.take(py)?;
        Ok(Self::new(work, move |py, finish| next(py, finish(py))))
    }

    /// The call itself, which is cancelled when it is dropped.
    pub fn into_work(self) -> Arc<WorkCell> {
        self.work
    }

    /// Waits for the result without making a Python object of this operation.
    pub fn wait_now(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.block(py)?(py)
    }

    /// Blocks this thread until the call is done. The errors of this function are not those of the call: a signal
    /// handler raised an exception, for example.
    pub fn block(&self, py: Python<'_>) -> PyResult<Finish> {
        let work = self.take(py)?;
        let locks = self.locks.as_ref().map(|locks| locks.get().native(py)).transpose()?;
        block_on(py, work, locks.as_ref())
    }

    /// What is left of the call, to be run by somebody else.
    pub fn take(&self, py: Python<'_>) -> PyResult<Work> {
        if self.work.forks != forks() {
            let message =
                "this operation belongs to the parent process: call the method anew in this process";
            return Err(exception(py, &Error::new(ErrorKind::Forked, message), None));
        }
        self.work.lock().take().ok_or_else(|| {
            PyRuntimeError::new_err("this operation is done, cancelled, or waited for elsewhere")
        })
    }

    /// Runs the call as far as it goes now.
    fn poll(&self, py: Python<'_>, waker: &Waker) -> PyResult<Poll<Finish>> {
        let mut work = self.take(py)?;
        let polled = py.detach(|| {
            let polled = work.as_mut().poll(&mut Context::from_waker(waker));
            (polled, work)
        });
        match polled {
            (Poll::Ready(finish), _) => Ok(Poll::Ready(finish)),
            (Poll::Pending, work) => {
                *self.work.lock() = Some(work);
                Ok(Poll::Pending)
            }
        }
    }

    /// Runs the call on, and calls `callback` with its result when it is done; with the exception if the call failed.
    pub fn poll_for_callback(
        work: &Arc<WorkCell>,
        py: Python<'_>,
        slot: &Arc<Slot>,
        callback: &Callback,
    ) -> PyResult<()> {
        // Cancelled meanwhile.
        if work.lock().is_none() {
            return Ok(());
        }
        let operation = Self::of(Arc::clone(work));
        match operation.poll(py, &Waker::from(Arc::clone(slot)))? {
            Poll::Ready(finish) => {
                let result = finish(py).unwrap_or_else(|error| error.into_value(py).into_any());
                callback.call(py, result)
            }
            Poll::Pending => {
                slot.poll_again(callback.clone_ref(py));
                Ok(())
            }
        }
    }
}

#[pymethods]
impl Operation {
    /// Blocks this thread until the result is there.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.block(py)?(py)
    }

    /// Calls `callback` with the result, in the event loop that runs now. Dropping this operation cancels that.
    fn start(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.start_for(py, &Callback::Python(callback))
    }

    /// In a task of asyncio the iterator is this operation itself.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static WAIT_IN_TRIO: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        if is_in_trio(py)? {
            let wait = WAIT_IN_TRIO.import(py, "leasehold._trio", "wait")?.call1((slf,))?;
            return wait.call_method0(intern!(py, "__await__"));
        }
        Ok(slf.clone().into_any())
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Runs the call on: what the task has to wait for, or the result as the value of `StopIteration`.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<TaskWait>>> {
        match self.step(py)? {
            Step::Waits(wait) => Ok(Some(wait)),
            // The end of an iterator without a value is one with the value `None`.
            Step::Done(result) if result.is_none(py) => Ok(None),
            Step::Done(result) => Err(PyStopIteration::new_err((result,))),
        }
    }

    fn send(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<TaskWait>> {
        drop(value);
        match self.step(py)? {
            Step::Waits(wait) => Ok(wait),
            Step::Done(result) => Err(PyStopIteration::new_err((result,))),
        }
    }

    /// Runs the call on, for a task of trio. `None`: it is not done, and `resumption.set_result(None)` is called when
    /// it can be run on. Otherwise a tuple of the result.
    #[pyo3(name = "_advance")]
    fn advance(
        &self,
        py: Python<'_>,
        queue: &Bound<'_, WakeQueue>,
        resumption: Py<PyAny>,
    ) -> PyResult<Option<(Py<PyAny>,)>> {
        let slot = Slot::new(&queue.get().shared(), &self.work);
        match self.poll(py, &Waker::from(Arc::clone(&slot)))? {
            Poll::Ready(finish) => Ok(Some((finish(py)?,))),
            Poll::Pending => {
                slot.resume_by(resumption);
                Ok(None)
            }
        }
    }

    /// Cancels the call, and raises the exception that cancels the task.
    #[pyo3(signature = (kind, value = None, traceback = None))]
    fn throw(
        &self,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        drop(traceback);
        self.work.cancel();
        let value = value.filter(|value| !value.is_none());
        Err(PyErr::from_value(value.unwrap_or(kind)))
    }

    /// Cancels the call.
    fn close(&self) {
        self.work.cancel();
    }
}

/// What a task does next with the operation that it awaits.
enum Step {
    Waits(Py<TaskWait>),
    Done(Py<PyAny>),
}

impl Operation {
    /// Runs the call on, for a task of asyncio.
    fn step(&self, py: Python<'_>) -> PyResult<Step> {
        let awaited = match self.awaited.get() {
            Some(awaited) => awaited,
            None => match running_loop(py) {
                Ok(running) => self.awaited_by(running),
                // A call that is done at once needs no event loop.
                Err(no_loop) => match self.poll(py, Waker::noop())? {
                    Poll::Ready(finish) => return finish(py).map(Step::Done),
                    Poll::Pending => return Err(no_loop),
                },
            },
        };
        match self.poll(py, &Waker::from(Arc::clone(&awaited.slot)))? {
            Poll::Ready(finish) => finish(py).map(Step::Done),
            Poll::Pending => {
                let wait = Py::new(py, TaskWait::new(awaited.event_loop.clone_ref(py)))?;
                awaited.slot.resume_task(wait.clone_ref(py));
                Ok(Step::Waits(wait))
            }
        }
    }

    /// Calls `callback` with the result, in the event loop that runs now. Dropping this operation cancels that.
    pub fn start_for(&self, py: Python<'_>, callback: &Callback) -> PyResult<()> {
        static OF_TRIO: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let queue = if is_in_trio(py)? {
            let queue = OF_TRIO.import(py, "leasehold._trio", "wake_queue")?.call0()?;
            queue.cast_into::<WakeQueue>()?.get().shared()
        } else {
            running_loop(py)?.queue
        };
        self.start_in(py, &queue, callback)
    }

    /// [`start_for`](Self::start_for), in the event loop of `queue`.
    pub fn start_in(&self, py: Python<'_>, queue: &Arc<Shared>, callback: &Callback) -> PyResult<()> {
        Self::poll_for_callback(&self.work, py, &Slot::new(queue, &self.work), callback)
    }
}
