//! What a task of asyncio waits for while its operation is not done.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::PyRuntimeError,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyWeakrefMethods, PyWeakrefReference},
};

/// A future, as far as a task needs one: asyncio accepts any object with these attributes from a task. Unlike a future
/// of asyncio it resumes its task at once when it is done, without another turn of the loop, in less than half of the
/// time.
#[pyclass(frozen, module = "leasehold._leasehold")]
pub struct TaskWait {
    event_loop: Py<PyWeakrefReference>,
    state: Mutex<State>,
}

struct State {
    /// As `_asyncio_future_blocking` of a future: the task that gets this object has not seen it yet.
    is_new: bool,
    /// What resumes the task, in which context.
    resumes: Option<(Py<PyAny>, Option<Py<PyAny>>)>,
    end: End,
}

enum End {
    None,
    Done,
    /// With the message of the cancellation.
    Cancelled(Py<PyAny>),
}

impl TaskWait {
    /// A wait of a task of `event_loop`.
    pub fn new(event_loop: Py<PyWeakrefReference>) -> Self {
        Self { event_loop, state: Mutex::new(State { is_new: true, resumes: None, end: End::None }) }
    }

    /// Resumes the task. Called by the loop, outside of all tasks.
    pub fn resume(slf: &Bound<'_, Self>) -> PyResult<()> {
        let resumes = {
            let mut state = slf.get().lock();
            if !matches!(state.end, End::None) {
                return Ok(());
            }
            state.end = End::Done;
            state.resumes.take()
        };
        let py = slf.py();
        match resumes {
            Some((callback, Some(context))) => {
                context.bind(py).call_method1(intern!(py, "run"), (callback, slf)).map(drop)
            }
            Some((callback, None)) => callback.call1(py, (slf,)).map(drop),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resumes the task in another turn of the loop.
    fn resume_later(slf: &Bound<'_, Self>, callback: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
        let py = slf.py();
        let in_context = PyDict::new(py);
        in_context.set_item(intern!(py, "context"), context)?;
        slf.get()
            .get_loop(py)?
            .call_method(intern!(py, "call_soon"), (callback, slf), Some(&in_context))
            .map(drop)
    }
}

#[pymethods]
impl TaskWait {
    #[getter]
    fn _asyncio_future_blocking(&self) -> bool {
        self.lock().is_new
    }

    #[setter(_asyncio_future_blocking)]
    fn set_asyncio_future_blocking(&self, is_new: bool) {
        self.lock().is_new = is_new;
    }

    fn get_loop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let event_loop = self.event_loop.bind(py).upgrade();
        event_loop.ok_or_else(|| PyRuntimeError::new_err("the event loop of this wait is gone"))
    }

    #[pyo3(signature = (callback, *, context = None))]
    fn add_done_callback(
        slf: &Bound<'_, Self>,
        callback: Py<PyAny>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let mut state = slf.get().lock();
        if matches!(state.end, End::None) {
            state.resumes = Some((callback, context));
            return Ok(());
        }
        drop(state);
        Self::resume_later(slf, callback, context)
    }

    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let py = slf.py();
        let resumes = {
            let mut state = slf.get().lock();
            if !matches!(state.end, End::None) {
                return Ok(false);
            }
            state.end = End::Cancelled(msg.unwrap_or_else(|| py.None()));
            state.resumes.take()
        };
        if let Some((callback, context)) = resumes {
            Self::resume_later(slf, callback, context)?;
        }
        Ok(true)
    }

    fn done(&self) -> bool {
        !matches!(self.lock().end, End::None)
    }

    fn cancelled(&self) -> bool {
        matches!(self.lock().end, End::Cancelled(_))
    }

    fn result(&self, py: Python<'_>) -> PyResult<()> {
        static CANCELLED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let message = match &self.lock().end {
            End::Cancelled(message) => message.clone_ref(py),
            End::None | End::Done => return Ok(()),
        };
        let class = CANCELLED.import(py, "asyncio", "CancelledError")?;
        let exception = if message.is_none(py) { class.call0() } else { class.call1((message,)) };
        Err(PyErr::from_value(exception?))
    }

    /// A task that nobody resumes any more is collected.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        if let Some((callback, context)) = &state.resumes {
            visit.call(callback)?;
            visit.call(context)?;
        }
        if let End::Cancelled(message) = &state.end {
            visit.call(message)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let resumes = self.lock().resumes.take();
        drop(resumes);
    }
}
