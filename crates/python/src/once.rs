//! `Once`: the turn of work that is done one time for a key, and the record of its result.

use std::time::Duration;

use pyo3::{prelude::*, types::PyBytes};

use crate::{
    arguments::{count, duration, optional_text, text, wrong_value},
    errors::released,
    guard::Guard,
    locks::{Locks, fallible},
    operation::Operation,
    options::Lease,
};

/// Work that is done one time for a key.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Once {
    locks: Py<Locks>,
    /// The key.
    #[pyo3(get)]
    key: String,
    ttl: Option<Duration>,
    keep: Option<Duration>,
    wait: Option<Duration>,
    digest: Option<[u8; 32]>,
    owner: Option<String>,
    renew_every: Option<Duration>,
    max_hold: Option<Duration>,
    max_waiting: Option<usize>,
}

impl Once {
    fn native(&self, py: Python<'_>) -> PyResult<leasehold::Once> {
        let mut once = self.locks.get().native(py)?.once(&self.key);
        if let Some(ttl) = self.ttl {
            once = once.ttl(ttl);
        }
        if let Some(keep) = self.keep {
            once = once.keep(keep);
        }
        if let Some(digest) = self.digest {
            once = once.digest(digest);
        }
        if let Some(owner) = &self.owner {
            once = once.owner(owner);
        }
        if let Some(interval) = self.renew_every {
            once = once.renew_every(interval);
        }
        if let Some(max_hold) = self.max_hold {
            once = once.max_hold(max_hold);
        }
        if let Some(most) = self.max_waiting {
            once = once.max_waiting(most);
        }
        Ok(once)
    }
}

#[pymethods]
impl Once {
    #[new]
    #[pyo3(signature = (
        locks, key, *, ttl = None, keep = None, wait = None, digest = None, owner = None, renew_every = None,
        max_hold = None, max_waiting = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        locks: Py<Locks>,
        key: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        keep: Option<&Bound<'_, PyAny>>,
        wait: Option<&Bound<'_, PyAny>>,
        digest: Option<&[u8]>,
        owner: Option<&Bound<'_, PyAny>>,
        renew_every: Option<&Bound<'_, PyAny>>,
        max_hold: Option<&Bound<'_, PyAny>>,
        max_waiting: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let digest = digest.map(<[u8; 32]>::try_from).transpose().map_err(|_| {
            wrong_value(py, "digest must have 32 bytes, as hashlib.sha256(...).digest() has".into())
        })?;
        let (key, ttl) = (text("key", key)?, duration("ttl", ttl)?);
        let (max_hold, max_waiting) = (duration("max_hold", max_hold)?, count("max_waiting", max_waiting)?);
        let renew_every = duration("renew_every", renew_every)?;
        Lease { ttl, renew_every, max_hold, max_waiting }.check(py, &locks, &key)?;
        Ok(Self {
            locks,
            key,
            ttl,
            keep: duration("keep", keep)?,
            wait: duration("wait", wait)?,
            digest,
            owner: optional_text("owner", owner)?,
            renew_every,
            max_hold,
            max_waiting,
        })
    }

    /// The operation that results in the stored result as bytes, or in the guard under which the work is to run.
    fn _begin(&self, py: Python<'_>) -> PyResult<Operation> {
        let (once, locks) = (self.native(py)?, self.locks.clone_ref(py));
        Ok(fallible(&self.locks, once.begin(self.wait), move |py, turn| match turn {
            leasehold::OnceTurn::Stored(bytes) => Ok(PyBytes::new(py, &bytes).into_any().unbind()),
            leasehold::OnceTurn::Run(guard) => Ok(Py::new(py, Guard::new(guard, locks, None))?.into_any()),
            _ => unreachable!("there are two cases"),
        }))
    }

    /// The operation that releases the hold of a run and stores its result in the same step.
    fn _store(&self, py: Python<'_>, guard: &Bound<'_, Guard>, result: Vec<u8>) -> PyResult<Operation> {
        let once = self.native(py)?;
        let guard = guard.get().take().ok_or_else(|| released(py, guard.get()))?;
        Ok(fallible(&self.locks, async move { once.store(guard, result).await }, |py, ()| Ok(py.None())))
    }

    /// The operation that releases the hold of a run that failed, whose next run begins without a warning.
    fn _give_up(&self, guard: &Bound<'_, Guard>) -> Operation {
        let held = guard.get().take();
        let release = async move {
            match held {
                Some(guard) => leasehold::Once::give_up(guard).await,
                None => Ok(()),
            }
        };
        fallible(&self.locks, release, |py, ()| Ok(py.None()))
    }

    /// The operation that results in the stored result, or `None`.
    fn _stored(&self, py: Python<'_>) -> PyResult<Operation> {
        let once = self.native(py)?;
        Ok(fallible(&self.locks, async move { once.stored().await }, |py, stored| {
            let bytes = stored.map(|bytes| PyBytes::new(py, &bytes));
            Ok(bytes.into_pyobject(py)?.into_any().unbind())
        }))
    }
}
