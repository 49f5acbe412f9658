//! One call of the library, which a thread waits for ([`Operation::wait`]) or a task of an event loop awaits.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use leasehold::{Error, ErrorKind, Loss};
use pyo3::{
    exceptions::{PyRuntimeError, PyStopIteration},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::PyDict,
};

use crate::{
    errors::exception,
    locks::forks,
    thread_wait::block_on,
    wakers::{Slot, WakeQueue},
};

/// Turns the result of a call into a Python object, or an exception.
pub type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
/// A call that runs.
pub type Work = Pin<Box<dyn Future<Output = Finish> + Send>>;

/// One call of the library. Dropping it, at any point, cancels the call: futures of the library are cancel safe.
#[pyclass(frozen, module = "leasehold._leasehold")]
pub struct Operation {
    work: Arc<WorkCell>,
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
        Self { work: Arc::new(WorkCell { work: Mutex::new(Some(work)), forks: forks() }) }
    }

    /// An operation that results in the reason of a loss.
    pub fn of_loss(loss: impl Future<Output = Loss> + Send + 'static) -> Self {
        Self::new(loss, |py, loss| Ok(loss.as_str().into_pyobject(py)?.into_any().unbind()))
    }

    /// Waits for the result without making a Python object of this operation.
    pub fn wait_now(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.block(py)?(py)
    }

    /// Blocks this thread until the call is done. The errors of this function are not those of the call: a signal
    /// handler raised an exception, for example.
    pub fn block(&self, py: Python<'_>) -> PyResult<Finish> {
        let work = self.take(py)?;
        block_on(py, work)
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
        callback: &Py<PyAny>,
    ) -> PyResult<()> {
        // Cancelled meanwhile.
        if work.lock().is_none() {
            return Ok(());
        }
        let operation = Self { work: Arc::clone(work) };
        match operation.poll(py, &Waker::from(Arc::clone(slot)))? {
            Poll::Ready(finish) => {
                let result = finish(py).unwrap_or_else(|error| error.into_value(py).into_any());
                callback.call1(py, (result,)).map(drop)
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
        static QUEUE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let queue: Py<WakeQueue> = QUEUE.import(py, "leasehold._loops", "wake_queue")?.call0()?.extract()?;
        Self::poll_for_callback(&self.work, py, &queue.get().slot(&self.work), &callback)
    }

    /// In a task of asyncio the iterator is this operation itself.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static IN_TRIO: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static WAIT_IN_TRIO: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        if is_trio_loaded(py)? && IN_TRIO.import(py, "leasehold._trio", "is_running")?.call0()?.is_truthy()? {
            let wait = WAIT_IN_TRIO.import(py, "leasehold._trio", "wait")?.call1((slf,))?;
            return wait.call_method0(intern!(py, "__await__"));
        }
        Ok(slf.clone().into_any())
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Runs the call on: the future to wait for, or the result as the value of `StopIteration`.
    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        // Most calls of an engine inside this process are done at once, and need no event loop.
        if let Poll::Ready(finish) = self.poll(py, Waker::noop())? {
            return Err(PyStopIteration::new_err((finish(py)?,)));
        }
        let (queue, future) = new_wait(py)?;
        match self.advance(py, queue.get(), future.clone_ref(py))? {
            Some(finish) => Err(PyStopIteration::new_err((finish(py)?,))),
            None => Ok(future),
        }
    }

    fn send(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        drop(value);
        self.__next__(py)
    }

    /// Runs the call on. `None`: it is not done, and `future.set_result(None)` is called when it can be run on.
    /// Otherwise a tuple of the result.
    #[pyo3(name = "_advance")]
    fn advance_for(
        &self,
        py: Python<'_>,
        queue: &Bound<'_, WakeQueue>,
        future: Py<PyAny>,
    ) -> PyResult<Option<(Py<PyAny>,)>> {
        let finish = self.advance(py, queue.get(), future)?;
        finish.map(|finish| finish(py).map(|result| (result,))).transpose()
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

impl Operation {
    /// Runs the call on; if it is not done, its next wake-up resumes `future`.
    fn advance(&self, py: Python<'_>, queue: &WakeQueue, future: Py<PyAny>) -> PyResult<Option<Finish>> {
        let slot = queue.slot(&self.work);
        match self.poll(py, &Waker::from(Arc::clone(&slot)))? {
            Poll::Ready(finish) => Ok(Some(finish)),
            Poll::Pending => {
                slot.resume_task(future);
                Ok(None)
            }
        }
    }
}

/// The queue of wake-ups of the event loop that runs in this thread, and a new future of that loop, to be awaited.
fn new_wait(py: Python<'_>) -> PyResult<(Py<WakeQueue>, Py<PyAny>)> {
    static NEW_WAIT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    NEW_WAIT.import(py, "leasehold._loops", "new_wait")?.call0()?.extract()
}

/// Whether the program uses trio: only then an operation asks which loop runs.
fn is_trio_loaded(py: Python<'_>) -> PyResult<bool> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let modules = MODULES.get_or_try_init(py, || {
        py.import("sys")?.getattr("modules")?.cast_into::<PyDict>().map(Bound::unbind).map_err(PyErr::from)
    })?;
    modules.bind(py).contains(intern!(py, "trio"))
}
