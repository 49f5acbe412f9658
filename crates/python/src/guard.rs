//! `Guard`: a hold, in Python.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use leasehold::{Mode, Previous};
use pyo3::{prelude::*, sync::PyOnceLock};

use crate::{
    arguments::duration,
    errors::{exception, released},
    locks::{Locks, forks},
    operation::Operation,
};

/// A hold of a name.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Guard {
    /// `None`: released. Calls in progress share it.
    held: Mutex<Option<Arc<leasehold::Guard>>>,
    /// Of the process that it belongs to.
    forks: u32,
    locks: Py<Locks>,
    at_least: Option<Duration>,
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    token: u64,
    #[pyo3(get)]
    lineage: String,
    #[pyo3(get)]
    mode: &'static str,
    #[pyo3(get)]
    id: String,
    #[pyo3(get)]
    previous: &'static str,
}

impl Guard {
    pub fn new(guard: leasehold::Guard, locks: Py<Locks>, at_least: Option<Duration>) -> Self {
        let token = guard.token();
        Self {
            forks: forks(),
            locks,
            at_least,
            name: guard.name().as_str().to_owned(),
            token: token.number,
            lineage: token.lineage.to_string(),
            mode: match guard.mode() {
                Mode::Exclusive => "exclusive",
                Mode::Shared => "shared",
                _ => "permits",
            },
            id: guard.id().to_string(),
            previous: match guard.previous() {
                Previous::Clean => "clean",
                Previous::Abandoned => "abandoned",
                Previous::Lapsed => "lapsed",
                Previous::Broken => "broken",
                _ => "unknown",
            },
            held: Mutex::new(Some(Arc::new(guard))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<leasehold::Guard>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guard of the library; an exception after its release.
    fn held(&self, py: Python<'_>) -> PyResult<Arc<leasehold::Guard>> {
        self.lock().clone().ok_or_else(|| released(py, self))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub const fn token(&self) -> u64 {
        self.token
    }

    pub const fn locks(&self) -> &Py<Locks> {
        &self.locks
    }

    /// The release of this hold; `None` if it was released before.
    pub fn release(&self, py: Python<'_>) -> Option<Operation> {
        let held = self.lock().take()?;
        let (locks, at_least) = (self.locks.clone_ref(py), self.at_least);
        let release = async move {
            // While another thread confirms or extends the hold, the end of that call releases it.
            let Some(guard) = Arc::into_inner(held) else { return Ok(()) };
            match at_least {
                Some(at_least) => guard.release_at_least(at_least).await,
                None => guard.release().await,
            }
        };
        Some(Operation::new(release, move |py, result| match result {
            Ok(()) => Ok(py.None()),
            Err(error) => Err(exception(py, &error, Some(&locks))),
        }))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.forks != forks() {
            // The hold, with the threads and connections that keep it, belongs to the parent process.
            std::mem::forget(held);
        }
    }
}

#[pymethods]
impl Guard {
    /// Whether the hold is certainly valid now. Asks no server.
    fn check(&self) -> bool {
        self.lock().as_ref().is_some_and(|guard| self.forks == forks() && guard.check())
    }

    /// Whether this guard was released.
    #[getter]
    fn released(&self) -> bool {
        self.lock().is_none()
    }

    /// Seconds for which the hold is certainly valid; `None`: without a limit.
    #[getter]
    fn remaining(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(self.held(py)?.remaining().map(|remaining| remaining.as_secs_f64()))
    }

    /// What was wrong at the last renewal.
    #[getter]
    fn trouble(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.held(py)?.trouble())
    }

    /// Releases the hold, and waits until the engine has confirmed it.
    #[pyo3(name = "release")]
    fn release_blocking(&self, py: Python<'_>) -> PyResult<()> {
        self.release_async(py)?.wait_now(py).map(drop)
    }

    fn release_async(&self, py: Python<'_>) -> PyResult<Operation> {
        self.release(py).ok_or_else(|| released(py, self))
    }

    /// Asks the engine whether the hold is valid, and renews it.
    fn confirm(&self, py: Python<'_>) -> PyResult<()> {
        self.confirm_async(py)?.wait_now(py).map(drop)
    }

    fn confirm_async(&self, py: Python<'_>) -> PyResult<Operation> {
        let (guard, locks) = (self.held(py)?, self.locks.clone_ref(py));
        Ok(Operation::new(async move { guard.confirm().await }, move |py, result| match result {
            Ok(()) => Ok(py.None()),
            Err(error) => Err(exception(py, &error, Some(&locks))),
        }))
    }

    /// Makes the hold last for at least `time` from now on.
    fn extend(&self, py: Python<'_>, time: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.extend_async(py, time)?.wait_now(py)
    }

    fn extend_async(&self, py: Python<'_>, time: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let time = duration("time", Some(time))?.unwrap_or_default();
        let (guard, locks) = (self.held(py)?, self.locks.clone_ref(py));
        Ok(Operation::new(async move { guard.extend(time).await }, move |py, result| match result {
            Ok(deadline) => {
                #[expect(clippy::disallowed_methods, reason = "Python has no such moments: seconds from now")]
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                Ok(left.map(|left| left.as_secs_f64()).into_pyobject(py)?.into_any().unbind())
            }
            Err(error) => Err(exception(py, &error, Some(&locks))),
        }))
    }

    /// The loss of the hold, as an event.
    #[getter]
    fn lost(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        static LOST: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        Ok(LOST.import(py, "leasehold._lost", "Lost")?.call1((slf,))?.unbind())
    }

    /// The operation that results in the reason when the hold is lost. It does not keep the hold.
    fn _lost(&self, py: Python<'_>) -> PyResult<Operation> {
        let lost = self.held(py)?.lost();
        Ok(Operation::new(lost, |py, loss| Ok(loss.as_str().into_pyobject(py)?.into_any().unbind())))
    }

    /// Calls `callback` with the reason when the hold is lost, on a thread for callbacks.
    fn on_lost(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let callback = move |loss: leasehold::Loss| {
            // `None`: the interpreter ends.
            Python::try_attach(|py| {
                if let Err(error) = callback.call1(py, (loss.as_str(),)) {
                    error.write_unraisable(py, Some(callback.bind(py)));
                }
            });
        };
        self.held(py)?.on_lost(callback).map_err(|error| exception(py, &error, Some(&self.locks)))
    }

    fn __repr__(&self) -> String {
        format!("<leasehold.Guard {:?}, token {}>", self.name, self.token)
    }
}
