//! `All`: a request for several names, all or none; `Guards`: what it acquired.

use std::{task::Poll, time::Duration};

use leasehold::Error;
use pyo3::{PyTraverseError, PyVisit, exceptions::PyKeyError, prelude::*, types::PyTuple};

use crate::{
    arguments::{permits_of, text},
    blocks::{Blocks, leave, not_pickled},
    errors::exception,
    guard::Guard,
    locks::{Locks, fallible},
    operation::{Finish, Operation, Work},
    options::{Options, check},
    task_blocks::{Held, TaskBlocks},
};

/// A request for several names.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct All {
    locks: Py<Locks>,
    entries: Vec<Entry>,
    options: Options,
    blocks: Blocks<Guards>,
    task_blocks: TaskBlocks<Guards>,
}

/// One name of a request.
enum Entry {
    Mutex(String),
    Read(String),
    Permits(String, u32, u32),
}

impl Entry {
    /// The pair of kind and name; the kind is a word, or the pair of count and limit of a semaphore.
    fn new((kind, name): (Bound<'_, PyAny>, Bound<'_, PyAny>)) -> PyResult<Self> {
        let name = text("name", &name)?;
        if let Ok(permits) = kind.cast::<PyTuple>() {
            let (count, limit) = permits_of(permits)?;
            return Ok(Self::Permits(name, count, limit));
        }
        Ok(if text("kind", &kind)? == "read" { Self::Read(name) } else { Self::Mutex(name) })
    }
}

impl All {
    fn native(&self, py: Python<'_>) -> PyResult<leasehold::All> {
        let mut request = self.locks.get().native(py)?.all();
        for entry in &self.entries {
            request = match entry {
                Entry::Mutex(name) => request.mutex(name),
                Entry::Read(name) => request.read(name),
                Entry::Permits(name, count, limit) => request.permits(name, *count, *limit),
            };
        }
        Ok(self.options.several_names(request))
    }

    /// The operation that acquires. `wait` of zero: one try.
    fn operation(&self, py: Python<'_>, wait: Option<Duration>) -> PyResult<Operation> {
        let request = self.native(py)?;
        let acquire = match wait {
            Some(Duration::ZERO) => request.try_acquire(),
            Some(limit) => request.acquire_within(limit),
            None => request.acquire(),
        };
        let (locks, at_least) = (self.locks.clone_ref(py), self.options.at_least);
        Ok(fallible(&self.locks, acquire, move |py, guards| {
            let guards = guards
                .split()
                .into_iter()
                .map(|guard| Py::new(py, Guard::new(guard, locks.clone_ref(py), at_least)))
                .collect::<PyResult<Vec<_>>>()?;
            Ok(Py::new(py, Guards { locks, guards })?.into_any())
        }))
    }
}

#[pymethods]
impl All {
    #[new]
    #[pyo3(signature = (
        locks, entries, *, ttl = None, wait = None, at_least = None, owner = None, renew = None,
        renew_every = None, max_hold = None, attempts = None, max_waiting = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        locks: Py<Locks>,
        entries: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        ttl: Option<&Bound<'_, PyAny>>,
        wait: Option<&Bound<'_, PyAny>>,
        at_least: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, PyAny>>,
        renew: Option<&Bound<'_, PyAny>>,
        renew_every: Option<&Bound<'_, PyAny>>,
        max_hold: Option<&Bound<'_, PyAny>>,
        attempts: Option<&Bound<'_, PyAny>>,
        max_waiting: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let entries = entries.into_iter().map(Entry::new).collect::<PyResult<Vec<_>>>()?;
        let options =
            Options::new(ttl, wait, at_least, owner, renew, renew_every, max_hold, attempts, max_waiting)?;
        let all =
            Self { locks, entries, options, blocks: Blocks::default(), task_blocks: TaskBlocks::default() };
        // The names before were checked when they were added.
        if let Some(added) = all.entries.last() {
            let native = all.locks.get().native(py)?;
            let request = match added {
                Entry::Mutex(name) => native.mutex(name),
                Entry::Read(name) => native.rw(name).read(),
                Entry::Permits(name, count, limit) => native.semaphore(name, *limit).permits(*count),
            };
            check(py, &all.locks, &all.options.one_name(request))?;
        }
        Ok(all)
    }

    /// Acquires: blocks this thread. `wait` replaces the wait of the request.
    ///
    /// >>> import leasehold
    /// >>> guards = leasehold.connect("memory:").all().mutex("a").mutex("b").acquire()
    /// >>> guards.check()
    /// True
    #[pyo3(signature = (wait = None))]
    fn acquire(&self, py: Python<'_>, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        self._acquire(py, wait)?.wait_now(py)
    }

    #[pyo3(signature = (wait = None))]
    fn _acquire(&self, py: Python<'_>, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Operation> {
        let wait = self.options.wait_or(wait)?;
        self.operation(py, wait)
    }

    /// The operation that acquires and enters the block. Native, as `__enter__`.
    fn __aenter__(&self, py: Python<'_>) -> PyResult<Operation> {
        self.task_blocks.acquire_and_enter(py, self.operation(py, self.options.wait)?)
    }

    fn __aexit__<'py>(
        &self,
        kind: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        traceback: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.task_blocks.leave(kind, value, traceback)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.locks)?;
        self.task_blocks.traverse(&visit)
    }

    fn __clear__(&self) {
        self.task_blocks.clear();
    }

    /// Native, so that no signal handler can run between the grant and the beginning of the block.
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Guards>> {
        let guards = self.operation(py, self.options.wait)?.wait_now(py)?;
        let guards = guards.into_bound(py).cast_into::<Guards>()?.unbind();
        self.blocks.enter(py, guards.clone_ref(py));
        Ok(guards)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        let (_, guards) = self.blocks.leave(py)?;
        leave(py, guards.get().end(py), exception)
    }
}

/// The holds of several names, in the byte order of the names.
///
/// >>> import leasehold
/// >>> guards = leasehold.connect("memory:").all().mutex("a").mutex("b").acquire()
/// >>> guards["a"].name, guards.keys(), "b" in guards, len(guards), guards.released
/// ('a', ['a', 'b'], True, 2, False)
/// >>> guards.release()
#[pyclass(frozen, weakref, mapping, module = "leasehold._leasehold")]
pub struct Guards {
    locks: Py<Locks>,
    guards: Vec<Py<Guard>>,
}

impl Held for Guards {
    fn lost(&self, py: Python<'_>) -> PyResult<Operation> {
        let mut losses = Vec::new();
        for guard in &self.guards {
            losses.push(Box::pin(guard.get().look(py, leasehold::Guard::lost)?));
        }
        let lost = std::future::poll_fn(move |cx| {
            let lost = losses.iter_mut().find_map(|loss| match loss.as_mut().poll(cx) {
                Poll::Ready(loss) => Some(loss.as_str().to_owned()),
                Poll::Pending => None,
            });
            lost.map_or(Poll::Pending, Poll::Ready)
        });
        Ok(Operation::of_loss(lost))
    }

    /// The release of all holds at once.
    fn end(&self, py: Python<'_>) -> PyResult<Option<Operation>> {
        let mut works = Vec::with_capacity(self.guards.len());
        for guard in &self.guards {
            if let Some(release) = guard.get().release(py)? {
                works.push(release.take(py)?);
            }
        }
        if works.is_empty() {
            return Ok(None);
        }
        Ok(Some(Operation::new(all_of(works), |py, ends| {
            let errors = ends.into_iter().filter_map(|end| end(py).err());
            // A loss says more than an unknown end. The first of equals is the least.
            let worst = errors.min_by_key(|error| !is_lost(py, error));
            worst.map_or_else(|| Ok(py.None()), Err)
        })))
    }
}

fn is_lost(py: Python<'_>, error: &PyErr) -> bool {
    let kind = error.value(py).getattr("kind").and_then(|kind| kind.extract::<String>());
    kind.is_ok_and(|kind| kind == "lost")
}

/// Runs all to their ends, at the same time.
async fn all_of(works: Vec<Work>) -> Vec<Finish> {
    let mut works: Vec<_> = works.into_iter().map(|work| (work, None)).collect();
    std::future::poll_fn(|cx| {
        for (work, done) in works.iter_mut().filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(finish) = work.as_mut().poll(cx) {
                *done = Some(finish);
            }
        }
        if works.iter().all(|(_, done)| done.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    works.into_iter().filter_map(|(_, done)| done).collect()
}

#[pymethods]
impl Guards {
    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<Guard>> {
        let guard = self.guards.iter().find(|guard| guard.get().name() == name);
        guard.map(|guard| guard.clone_ref(py)).ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    fn __contains__(&self, name: &str) -> bool {
        self.guards.iter().any(|guard| guard.get().name() == name)
    }

    fn __len__(&self) -> usize {
        self.guards.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.keys().into_pyobject(py)?.try_iter().map(Bound::into_any)
    }

    /// The names.
    ///
    /// >>> import leasehold
    /// >>> guards = leasehold.connect("memory:").all().mutex("a").mutex("b").acquire()
    /// >>> guards.keys()
    /// ['a', 'b']
    fn keys(&self) -> Vec<&str> {
        self.guards.iter().map(|guard| guard.get().name()).collect()
    }

    /// The guards.
    ///
    /// >>> import leasehold
    /// >>> guards = leasehold.connect("memory:").all().mutex("a").mutex("b").acquire()
    /// >>> [guard.name for guard in guards.values()]
    /// ['a', 'b']
    fn values(&self, py: Python<'_>) -> Vec<Py<Guard>> {
        self.guards.iter().map(|guard| guard.clone_ref(py)).collect()
    }

    /// The pairs of name and guard.
    ///
    /// >>> import leasehold
    /// >>> guards = leasehold.connect("memory:").all().mutex("a").mutex("b").acquire()
    /// >>> [name for name, guard in guards.items() if guard.check()]
    /// ['a', 'b']
    fn items(&self, py: Python<'_>) -> Vec<(&str, Py<Guard>)> {
        self.guards.iter().map(|guard| (guard.get().name(), guard.clone_ref(py))).collect()
    }

    /// The names, as one text.
    #[getter]
    fn name(&self) -> String {
        self.keys().join(", ")
    }

    /// The engine: `redis`, for example.
    #[getter]
    fn engine(&self) -> &'static str {
        self.locks.get().engine()
    }

    /// The token of the first name: each guard has its own.
    #[getter]
    fn token(&self) -> u64 {
        self.guards[0].get().token()
    }

    /// Whether every hold is certainly valid now. Asks no server.
    ///
    /// >>> import leasehold
    /// >>> guards = leasehold.connect("memory:").all().mutex("a").mutex("b").acquire()
    /// >>> guards.check()
    /// True
    fn check(&self) -> bool {
        self.guards.iter().all(|guard| guard.get().check())
    }

    /// Seconds for which all holds are certainly valid, 0 after the end of one; `None`: without a limit.
    #[getter]
    fn remaining(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let mut least: Option<f64> = None;
        for guard in &self.guards {
            if let Some(remaining) = guard.get().remaining(py)? {
                least = Some(least.map_or(remaining, |least| least.min(remaining)));
            }
        }
        Ok(least)
    }

    /// Whether all holds were released.
    #[getter]
    fn released(&self) -> bool {
        self.guards.iter().all(|guard| guard.get().released())
    }

    /// Releases all holds, and waits until the engine has confirmed it.
    ///
    /// >>> import leasehold
    /// >>> guards = leasehold.connect("memory:").all().mutex("a").mutex("b").acquire()
    /// >>> guards.release()
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.release_async(py)?.wait_now(py).map(drop)
    }

    /// `release`, for tasks.
    ///
    /// >>> import asyncio, leasehold
    /// >>> async def main():
    /// ...     guards = await leasehold.connect("memory:").all().mutex("a").acquire_async()
    /// ...     await guards.release_async()
    /// >>> asyncio.run(main())
    fn release_async(&self, py: Python<'_>) -> PyResult<Operation> {
        self.end(py)?.ok_or_else(|| {
            let error = Error::invalid(format!("the holds of {} were released before", self.name()));
            exception(py, &error, Some(&self.locks))
        })
    }

    /// The operation that results in the reason when one of the holds is lost. It does not keep the holds.
    fn _lost(&self, py: Python<'_>) -> PyResult<Operation> {
        Held::lost(self, py)
    }

    fn __repr__(&self) -> String {
        format!("<leasehold.Guards {:?}>", self.keys())
    }

    /// Guards that were acquired before the block: the end of the block releases them.
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        for guard in &slf.get().guards {
            guard.get().refuse_ended(slf.py())?;
        }
        Ok(slf.clone().unbind())
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        leave(py, self.end(py), exception)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(not_pickled("guard", "request"))
    }
}
