//! Who leads an election, now and later.

use std::sync::{Arc, Mutex, PoisonError};

use leasehold::{Error, Leader, Leadership};
use pyo3::{prelude::*, sync::PyOnceLock};

use crate::{
    errors::exception,
    locks::{Locks, fallible},
    operation::Operation,
};

/// Follows who leads.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Watch {
    locks: Py<Locks>,
    /// `None` while a call waits.
    watch: Arc<Mutex<Option<leasehold::LeaderWatch>>>,
}

impl Watch {
    pub fn new(locks: Py<Locks>, watch: leasehold::LeaderWatch) -> Self {
        Self { locks, watch: Arc::new(Mutex::new(Some(watch))) }
    }
}

#[pymethods]
impl Watch {
    /// The operation that results in who leads as soon as that changes.
    fn _changed(&self, py: Python<'_>) -> PyResult<Operation> {
        let taken = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(watch) = taken else {
            let error = Error::invalid("another thread or task waits for this watch: give each its own");
            return Err(exception(py, &error, Some(&self.locks)));
        };
        let mut lent = Lent { watch: Some(watch), back: Arc::clone(&self.watch) };
        let changed = async move {
            let watch = lent.watch.as_mut().expect("it is taken only by the drop");
            watch.changed().await
        };
        Ok(fallible(&self.locks, changed, |py, leadership| match leadership {
            Leadership::Held(leader) => {
                let leader = leader_of(py, leader)?;
                leadership_of(py, "held", leader)
            }
            Leadership::Vacant => leadership_of(py, "vacant", py.None()),
            _ => leadership_of(py, "unsure", py.None()),
        }))
    }
}

/// A watch that goes back when the call ends, or is cancelled.
struct Lent {
    watch: Option<leasehold::LeaderWatch>,
    back: Arc<Mutex<Option<leasehold::LeaderWatch>>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.back.lock().unwrap_or_else(PoisonError::into_inner) = self.watch.take();
    }
}

pub fn leader_of(py: Python<'_>, leader: Leader) -> PyResult<Py<PyAny>> {
    static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let build = BUILD.import(py, "leasehold._view", "Leader")?;
    Ok(build.call1((leader.value, leader.term.number, leader.term.lineage.to_string()))?.unbind())
}

fn leadership_of(py: Python<'_>, state: &str, leader: Py<PyAny>) -> PyResult<Py<PyAny>> {
    static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Ok(BUILD.import(py, "leasehold._view", "Leadership")?.call1((state, leader))?.unbind())
}
