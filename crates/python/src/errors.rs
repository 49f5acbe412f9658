//! Errors of the library as Python exceptions. Their classes are in `python/leasehold/_errors.py`.

use leasehold::{Error, ErrorKind};
use pyo3::{prelude::*, sync::PyOnceLock};

use crate::locks::Locks;

/// The exception for an error of a call on `locks`.
pub fn exception(py: Python<'_>, error: &Error, locks: Option<&Py<Locks>>) -> PyErr {
    static FROM_NATIVE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let build = || {
        let from_native = FROM_NATIVE.import(py, "leasehold._errors", "from_native")?;
        let reason = match error.kind() {
            ErrorKind::Lost(loss) => Some(loss.as_str()),
            _ => None,
        };
        let name = error.name().map(|name| name.as_str());
        let engine = locks.map(|locks| locks.get().engine());
        from_native.call1((error.kind().as_str(), error.to_string(), name, engine, reason, locks))
    };
    match build() {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}

/// The exception for a use of a guard that was released.
pub fn released(py: Python<'_>, guard: &crate::guard::Guard) -> PyErr {
    exception(py, &guard.released_error(), Some(guard.locks()))
}
