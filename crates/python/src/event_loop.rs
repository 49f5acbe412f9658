//! The event loops in which operations are awaited: what each wait needs to know of the loop that runs in this thread.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use pyo3::{
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyWeakrefMethods, PyWeakrefReference},
};

use crate::wakers::{Shared, WakeQueue};

thread_local! {
    /// The loop of asyncio that ran last in this thread.
    static LAST: RefCell<Option<Known>> = const { RefCell::new(None) };
}

/// A loop, with its wake-ups. It keeps neither of the two.
struct Known {
    event_loop: Py<PyWeakrefReference>,
    queue: Weak<Shared>,
}

/// A loop of asyncio, with its wake-ups. It does not keep the loop.
pub struct LoopOfAsyncio {
    pub event_loop: Py<PyWeakrefReference>,
    pub queue: Arc<Shared>,
}

/// The loop of asyncio that runs in this thread.
pub fn running_loop(py: Python<'_>) -> PyResult<LoopOfAsyncio> {
    running_loop_and_object(py).map(|(running, _)| running)
}

fn running_loop_and_object(py: Python<'_>) -> PyResult<(LoopOfAsyncio, Bound<'_, PyAny>)> {
    static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static QUEUE_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let object = RUNNING.import(py, "asyncio", "get_running_loop")?.call0()?;
    let last = LAST.with_borrow(|last| {
        last.as_ref().map(|last| (last.event_loop.clone_ref(py), Weak::clone(&last.queue)))
    });
    if let Some((event_loop, queue)) = last
        && let Some(queue) = queue.upgrade().filter(|queue| !queue.is_closed())
        && event_loop.bind(py).upgrade().is_some_and(|last| last.is(&object))
    {
        return Ok((LoopOfAsyncio { event_loop, queue }, object));
    }
    let queue = QUEUE_OF.import(py, "leasehold._loops", "queue_of")?.call1((&object,))?;
    let queue = queue.cast_into::<WakeQueue>()?.get().shared();
    let event_loop = PyWeakrefReference::new(&object)?.unbind();
    let known = Known { event_loop: event_loop.clone_ref(py), queue: Arc::downgrade(&queue) };
    // What was known is dropped after the borrow.
    drop(LAST.replace(Some(known)));
    Ok((LoopOfAsyncio { event_loop, queue }, object))
}

/// The task of asyncio or trio that runs in this thread, and its loop, if it is certainly one of asyncio.
pub fn running_task(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Option<LoopOfAsyncio>)> {
    static OF_ASYNCIO: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static OF_ANY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if !is_trio_loaded(py)?
        && let Ok((running, object)) = running_loop_and_object(py)
        && let Ok(task) = OF_ASYNCIO.import(py, "asyncio", "current_task")?.call1((object,))
        && !task.is_none()
    {
        return Ok((task, Some(running)));
    }
    Ok((OF_ANY.import(py, "leasehold._loops", "current_task")?.call0()?, None))
}

/// Whether a task of trio runs in this thread.
pub fn is_in_trio(py: Python<'_>) -> PyResult<bool> {
    static IN_TRIO: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Ok(is_trio_loaded(py)? && IN_TRIO.import(py, "leasehold._trio", "is_running")?.call0()?.is_truthy()?)
}

/// Whether the program uses trio: only then an operation asks which loop runs.
fn is_trio_loaded(py: Python<'_>) -> PyResult<bool> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let modules = MODULES.get_or_try_init(py, || {
        py.import("sys")?.getattr("modules")?.cast_into::<PyDict>().map(Bound::unbind).map_err(PyErr::from)
    })?;
    modules.bind(py).contains(intern!(py, "trio"))
}
