//! The callbacks of users for lost holds. A thread that Python has started calls them: the interpreter ends its own
//! threads when it ends, and must not end a thread of Rust in the middle of a call.

use std::sync::{
    Arc, Mutex, PoisonError,
    mpsc::{Receiver, Sender, channel},
};

use leasehold::Loss;
use pyo3::{PyTraverseError, PyVisit, prelude::*, sync::PyOnceLock};

use crate::locks::forks;

/// A callback; `None` after its call, or when its guard was collected.
type Callback = Mutex<Option<Py<PyAny>>>;

/// The callbacks of one hold. The garbage collector sees them: one may refer to the object that has it.
#[derive(Default)]
pub struct Callbacks(Mutex<Vec<Arc<Callback>>>);

impl Callbacks {
    /// What the library is to call at the loss, for `callback`.
    pub fn add(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<impl FnOnce(Loss) + Send + use<>> {
        let calls = calls(py)?;
        let callback: Arc<Callback> = Arc::new(Mutex::new(Some(callback)));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&callback));
        Ok(move |loss: Loss| {
            // The thread ends only with this process.
            let _ = calls.send(Call { callback, reason: loss.as_str() });
        })
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A mutex is locked only while another thread runs Python code, which no thread does now.
        let Ok(callbacks) = self.0.try_lock() else { return Ok(()) };
        for callback in &*callbacks {
            if let Ok(callback) = callback.try_lock() {
                visit.call(callback.as_ref())?;
            }
        }
        Ok(())
    }

    pub fn clear(&self) {
        let callbacks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for callback in callbacks {
            let callback = callback.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(callback);
        }
    }
}

/// The event of the loss of `held`, which is made when it is first asked for.
pub fn loss_event(held: &Bound<'_, PyAny>, event: &PyOnceLock<Py<PyAny>>) -> PyResult<Py<PyAny>> {
    static LOST: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = held.py();
    let new_event = || Ok::<_, PyErr>(LOST.import(py, "leasehold._lost", "Lost")?.call1((held,))?.unbind());
    Ok(event.get_or_try_init(py, new_event)?.clone_ref(py))
}

/// A callback to be called with the reason of a loss.
struct Call {
    callback: Arc<Callback>,
    reason: &'static str,
}

/// The way to the thread that calls, in this process.
static THREAD: Mutex<Option<Way>> = Mutex::new(None);

struct Way {
    /// Of the process that has the thread. A forked child starts its own.
    forks: u32,
    calls: Sender<Call>,
}

/// The way to the thread for callbacks, which starts when the first callback is registered.
fn calls(py: Python<'_>) -> PyResult<Sender<Call>> {
    static START: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let of_this_process = || {
        let way = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
        way.as_ref().filter(|way| way.forks == forks()).map(|way| way.calls.clone())
    };
    if let Some(calls) = of_this_process() {
        return Ok(calls);
    }
    let (calls, to_call) = channel();
    START.import(py, "leasehold._lost", "start_callbacks")?.call1((LossCalls(Mutex::new(to_call)),))?;
    // If another thread has started one, too, that one ends.
    Ok(of_this_process().unwrap_or_else(|| {
        let way = Way { forks: forks(), calls: calls.clone() };
        let before = THREAD.lock().unwrap_or_else(PoisonError::into_inner).replace(way);
        // That of the parent process: its thread is not here.
        std::mem::forget(before);
        calls
    }))
}

/// What the thread for callbacks has to call.
#[pyclass(frozen, module = "leasehold._leasehold")]
pub struct LossCalls(Mutex<Receiver<Call>>);

#[pymethods]
impl LossCalls {
    /// Blocks the thread until a callback is to be called: the callback, which may be gone, with the reason. `None`:
    /// none comes any more.
    fn next(&self, py: Python<'_>) -> Option<(Option<Py<PyAny>>, &'static str)> {
        let call = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).recv()).ok()?;
        let callback = call.callback.lock().unwrap_or_else(PoisonError::into_inner).take();
        Some((callback, call.reason))
    }
}
