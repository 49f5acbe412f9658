//! One call of the library, which a thread waits for ([`Operation::wait`]) or a task of an event loop awaits.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use pyo3::{
    exceptions::{PyRuntimeError, PyStopIteration},
    prelude::*,
    sync::PyOnceLock,
};

use crate::{
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
    /// `None`: done, or cancelled.
    work: Mutex<Option<Work>>,
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
        Self { work: Mutex::new(Some(work)) }
    }

    /// Waits for the result without making a Python object of this operation.
    pub fn wait_now(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let work = self.take()?;
        block_on(py, work)?(py)
    }

    fn take(&self) -> PyResult<Work> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.ok_or_else(|| {
            PyRuntimeError::new_err("this operation is done, cancelled, or waited for elsewhere")
        })
    }

    /// Runs the call as far as it goes now.
    fn poll(&self, py: Python<'_>, waker: &Waker) -> PyResult<Poll<Finish>> {
        let mut work = self.take()?;
        let polled = py.detach(|| {
            let polled = work.as_mut().poll(&mut Context::from_waker(waker));
            (polled, work)
        });
        match polled {
            (Poll::Ready(finish), _) => Ok(Poll::Ready(finish)),
            (Poll::Pending, work) => {
                *self.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
                Ok(Poll::Pending)
            }
        }
    }

    fn cancel(&self, py: Python<'_>) {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(work));
    }

    /// Runs the call on, and calls `callback` with its result when it is done. An exception of the call is passed too.
    pub fn poll_for_callback(slf: &Bound<'_, Self>, slot: &Arc<Slot>, callback: &Py<PyAny>) -> PyResult<()> {
        let py = slf.py();
        // Cancelled meanwhile.
        if slf.get().work.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Ok(());
        }
        match slf.get().poll(py, &Waker::from(Arc::clone(slot)))? {
            Poll::Ready(finish) => callback.call1(py, (finish(py)?,)).map(drop),
            Poll::Pending => {
                slot.poll_again(slf.clone().unbind(), callback.clone_ref(py));
                Ok(())
            }
        }
    }
}

#[pymethods]
impl Operation {
    /// Blocks this thread until the result is there.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let work = self.take()?;
        block_on(py, work)?(py)
    }

    /// Calls `callback` with the result, in the event loop that runs now.
    fn start(slf: &Bound<'_, Self>, callback: Py<PyAny>) -> PyResult<()> {
        let (queue, _) = new_wait(slf.py())?;
        Self::poll_for_callback(slf, &queue.get().slot(), &callback)
    }

    fn __await__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
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
        let slot = queue.get().slot();
        match self.poll(py, &Waker::from(Arc::clone(&slot)))? {
            Poll::Ready(finish) => Err(PyStopIteration::new_err((finish(py)?,))),
            Poll::Pending => {
                slot.resume_task(future.clone_ref(py));
                Ok(future)
            }
        }
    }

    fn send(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        drop(value);
        self.__next__(py)
    }

    /// Cancels the call, and raises the exception that cancels the task.
    #[pyo3(signature = (kind, value = None, traceback = None))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        drop(traceback);
        self.cancel(py);
        let value = value.filter(|value| !value.is_none());
        Err(PyErr::from_value(value.unwrap_or(kind)))
    }

    /// Cancels the call.
    fn close(&self, py: Python<'_>) {
        self.cancel(py);
    }
}

/// The queue of wake-ups of the event loop that runs in this thread, and a new future of that loop, to be awaited.
fn new_wait(py: Python<'_>) -> PyResult<(Py<WakeQueue>, Py<PyAny>)> {
    static NEW_WAIT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    NEW_WAIT.import(py, "leasehold._loops", "new_wait")?.call0()?.extract()
}
