//! The `with` blocks that run, of all threads, and what each of them holds.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread::ThreadId,
};

use pyo3::{
    PyClass,
    exceptions::{PyRuntimeError, PyTypeError},
    prelude::*,
    types::PyTuple,
};

use crate::operation::Operation;

/// The blocks of one request. A thread leaves its blocks in the opposite order.
pub struct Blocks<T>(Mutex<Vec<(ThreadId, Py<T>)>>);

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: PyClass> Blocks<T> {
    /// This thread is in a block that holds `held`.
    pub fn enter(&self, held: Py<T>) {
        self.lock().push((this_thread(), held));
    }

    /// This thread leaves the block that it entered last: the thread that entered it, and what it holds. A framework
    /// may leave a block in another thread than it has entered it: the only block there is.
    pub fn leave(&self) -> PyResult<(ThreadId, Py<T>)> {
        let mut blocks = self.lock();
        let thread = this_thread();
        let last = blocks.iter().rposition(|(of, _)| *of == thread);
        let index = last.or_else(|| (blocks.len() == 1).then_some(0)).ok_or_else(|| {
            PyRuntimeError::new_err(
                "this thread is in no `with` block of this request, but other threads are in several: make a \
                 request for each block",
            )
        })?;
        Ok(blocks.remove(index))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(ThreadId, Py<T>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calling thread.
pub fn this_thread() -> ThreadId {
    std::thread::current().id()
}

/// The end of a `with` block: ends what it holds by `release`, unless the block has done that itself (`None`).
pub fn leave(
    py: Python<'_>,
    release: PyResult<Option<Operation>>,
    exception: &Bound<'_, PyTuple>,
) -> PyResult<bool> {
    let has_exception = exception.get_item(0).is_ok_and(|kind| !kind.is_none());
    let release = match release {
        Ok(Some(release)) => release,
        Ok(None) => return Ok(false),
        Err(_) if has_exception => return Ok(false),
        Err(error) => return Err(error),
    };
    // An exception of a signal handler is raised in any case.
    let released = release.block(py)?(py);
    // An exception of the block is worth more than that of the release, which follows from it or comes too late.
    if has_exception { Ok(false) } else { released.map(|_| false) }
}

/// The refusal to pickle or copy a hold.
pub fn not_pickled(what: &str, instead: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "a {what} belongs to the process that acquired it, and cannot be pickled or copied: pickle the {instead}, and \
         acquire there"
    ))
}
