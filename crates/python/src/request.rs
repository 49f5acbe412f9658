//! `Request`: what to acquire, and how.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use leasehold::Error;
use pyo3::{PyTraverseError, PyVisit, prelude::*, types::PyTuple};

use crate::{
    arguments::{permits_of, text},
    blocks::{Blocks, leave, this_thread},
    errors::exception,
    event_loop::running_task,
    guard::Guard,
    locks::{Entrant, Inside, Locks, fallible, forks},
    operation::Operation,
    options::{Options, check},
    task_blocks::TaskBlocks,
};

/// A request for a name. It holds nothing, so it can be used any number of times.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Request {
    locks: Py<Locks>,
    name: Arc<str>,
    kind: Kind,
    options: Options,
    blocks: Blocks<Guard>,
    task_blocks: TaskBlocks<Guard>,
    native: OnceLock<Native>,
}

/// The request of the library, made at the first use.
struct Native {
    request: leasehold::Request,
    /// Of the process that made it.
    forks: u32,
}

impl Drop for Native {
    fn drop(&mut self) {
        if self.forks != forks() {
            // To drop the last reference would act on threads that this process does not have.
            std::mem::forget(self.request.clone());
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mutex,
    Read,
    Write,
    Permits { count: u32, limit: u32 },
}

impl Request {
    /// Calls `start` with the request of the library.
    fn with_native<T>(&self, py: Python<'_>, start: impl FnOnce(&leasehold::Request) -> T) -> PyResult<T> {
        if let Some(native) = self.native.get()
            && native.forks == forks()
        {
            return Ok(start(&native.request));
        }
        let request = self.new_native(py)?;
        // An owner with a label is another one for each hold. A forked child makes requests of its own.
        if self.options.owner_is_fixed() && self.native.get().is_none() {
            let native = self.native.get_or_init(|| Native { request, forks: forks() });
            return Ok(start(&native.request));
        }
        Ok(start(&request))
    }

    fn new_native(&self, py: Python<'_>) -> PyResult<leasehold::Request> {
        let locks = self.locks.get().native(py)?;
        let request = match self.kind {
            Kind::Mutex => locks.mutex(&self.name),
            Kind::Read => locks.rw(&self.name).read(),
            Kind::Write => locks.rw(&self.name).write(),
            Kind::Permits { count, limit } => locks.semaphore(&self.name, limit).permits(count),
        };
        Ok(self.options.one_name(request))
    }

    /// Whether [`check`] is certain to find nothing. A request is often made for one use, so this is quick.
    fn is_certainly_right(&self) -> bool {
        let name = self.name.as_bytes();
        let is_name = (1..=100).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic);
        is_name && self.options.are_defaults() && !matches!(self.kind, Kind::Permits { .. })
    }

    /// The operation that acquires. `wait` of zero: one try.
    fn operation(&self, py: Python<'_>, wait: Option<Duration>) -> PyResult<Operation> {
        self.operation_with(py, wait, |_, guard| Ok(guard.into_any()))
    }

    /// The operation that acquires and then calls `then`.
    fn operation_with(
        &self,
        py: Python<'_>,
        wait: Option<Duration>,
        then: impl FnOnce(Python<'_>, Py<Guard>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Operation> {
        let acquire = self.with_native(py, |request| match wait {
            Some(Duration::ZERO) => request.try_acquire(),
            Some(limit) => request.acquire_within(limit),
            None => request.acquire(),
        })?;
        let (locks, at_least) = (self.locks.clone_ref(py), self.options.at_least);
        Ok(fallible(&self.locks, acquire, move |py, guard| {
            then(py, Py::new(py, Guard::new(guard, locks, at_least))?)
        }))
    }

    /// [`operation`](Self::operation), unless it would wait for a block that `entrant` is in.
    fn unnested(&self, py: Python<'_>, wait: Option<Duration>, entrant: Entrant) -> PyResult<Operation> {
        if wait != Some(Duration::ZERO) {
            self.refuse_nested(py, entrant)?;
        }
        self.operation(py, wait)
    }

    /// Refuses a wait for a name inside whose `with` block `entrant` is: it would wait for itself.
    fn refuse_nested(&self, py: Python<'_>, entrant: Entrant) -> PyResult<()> {
        // An owner takes its lock again.
        if self.options.takes_again() || self.takes_permits() {
            return Ok(());
        }
        if !self.locks.get().is_nested(entrant, &self.name, self.is_exclusive()) {
            return Ok(());
        }
        let who = match entrant {
            Entrant::Thread(_) => "thread, or a task of its event loop,",
            Entrant::Task(_) => "task",
        };
        let tasks = match entrant {
            Entrant::Thread(_) => "; a coroutine uses `async with`",
            Entrant::Task(_) => "",
        };
        let message = format!(
            "this {who} is inside a `with` block of {:?} already, and would wait for itself: pass the guard of that \
             block on, or give both requests the same owner=leasehold.Owner(...){tasks}",
            self.name
        );
        Err(exception(py, &Error::misconfigured(message), Some(&self.locks)))
    }

    fn is_exclusive(&self) -> bool {
        self.kind != Kind::Read
    }

    fn takes_permits(&self) -> bool {
        matches!(self.kind, Kind::Permits { .. })
    }
}

#[pymethods]
impl Request {
    /// `kind`: `mutex`, `read`, `write`, or the pair of count and limit of a semaphore.
    #[new]
    #[pyo3(signature = (
        locks, kind, name, *, ttl = None, wait = None, at_least = None, owner = None, renew = None,
        renew_every = None, max_hold = None, attempts = None, max_waiting = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        locks: Py<Locks>,
        kind: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
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
        let kind = match kind.cast::<PyTuple>() {
            Ok(permits) => {
                let (count, limit) = permits_of(permits)?;
                Kind::Permits { count, limit }
            }
            Err(_) => match text("kind", kind)?.as_str() {
                "read" => Kind::Read,
                "write" => Kind::Write,
                _ => Kind::Mutex,
            },
        };
        let options =
            Options::new(ttl, wait, at_least, owner, renew, renew_every, max_hold, attempts, max_waiting)?;
        let request = Self {
            locks,
            name: text("name", name)?.into(),
            kind,
            options,
            blocks: Blocks::default(),
            task_blocks: TaskBlocks::default(),
            native: OnceLock::new(),
        };
        if !request.is_certainly_right() {
            request.with_native(py, |native| check(py, &request.locks, native))??;
        }
        Ok(request)
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// A pickled request connects by the URL and options of its locks.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, this) = (slf.py(), slf.get());
        let options = this.options.keywords(py)?;
        let kind = match this.kind {
            Kind::Mutex => "mutex".into_pyobject(py)?.into_any(),
            Kind::Read => "read".into_pyobject(py)?.into_any(),
            Kind::Write => "write".into_pyobject(py)?.into_any(),
            Kind::Permits { count, limit } => (count, limit).into_pyobject(py)?.into_any(),
        };
        let arguments = (&this.locks, kind, &*this.name).into_pyobject(py)?;
        let new = py.import("copyreg")?.getattr("__newobj_ex__")?;
        Ok((new, (slf.get_type(), arguments, options).into_pyobject(py)?.into_any()))
    }

    fn __repr__(&self) -> String {
        let kind = match self.kind {
            Kind::Mutex => "mutex".to_owned(),
            Kind::Read => "read".to_owned(),
            Kind::Write => "write".to_owned(),
            Kind::Permits { count, limit } => format!("permits {count} of {limit}"),
        };
        format!("<leasehold.Request {kind} {:?} on {}>", self.name, self.locks.get().engine())
    }

    /// It never changes.
    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, memo: &Bound<'_, PyAny>) -> Py<Self> {
        let _ = memo;
        slf
    }

    /// Acquires: blocks this thread. `wait` replaces the wait of the request.
    ///
    /// >>> import leasehold
    /// >>> guard = leasehold.connect("memory:").mutex("order/17").acquire()
    /// >>> guard.release()
    #[pyo3(signature = (wait = None))]
    fn acquire(&self, py: Python<'_>, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let wait = self.options.wait_or(wait)?;
        self.unnested(py, wait, Entrant::Thread(this_thread()))?.wait_now(py)
    }

    /// The operation that acquires, for the task that runs.
    #[pyo3(signature = (wait = None))]
    fn _acquire(&self, py: Python<'_>, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Operation> {
        let wait = self.options.wait_or(wait)?;
        let (task, running) = running_task(py)?;
        Ok(self.unnested(py, wait, Entrant::Task(task.as_ptr() as usize))?.awaited_in(running))
    }

    /// The operation that tries once.
    fn _try_acquire(&self, py: Python<'_>) -> PyResult<Operation> {
        self.operation(py, Some(Duration::ZERO))
    }

    /// The operation that acquires and enters the block. Native, as `__enter__`.
    fn __aenter__(&self, py: Python<'_>) -> PyResult<Operation> {
        let (task, running) = running_task(py)?;
        let address = task.as_ptr() as usize;
        if self.options.wait != Some(Duration::ZERO) {
            self.refuse_nested(py, Entrant::Task(address))?;
        }
        let entering = self.task_blocks.entering(&task, running.as_ref())?;
        let locks = (!self.takes_permits()).then(|| self.locks.clone_ref(py));
        let (name, is_exclusive) = (Arc::clone(&self.name), self.is_exclusive());
        let acquire = self.operation_with(py, self.options.wait, move |py, guard| {
            let inside = locks.map(|locks| Inside::new(locks, name, is_exclusive, address));
            entering.enter(py, &guard, inside)?;
            Ok(guard.into_any())
        })?;
        Ok(acquire.awaited_in(running))
    }

    fn __aexit__<'py>(
        &self,
        kind: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        traceback: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.task_blocks.leave(kind, value, traceback)
    }

    /// Native, so that no signal handler can run between the grant and the beginning of the block.
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Guard>> {
        let thread = this_thread();
        let guard = self.unnested(py, self.options.wait, Entrant::Thread(thread))?.wait_now(py)?;
        let guard = guard.into_bound(py).cast_into::<Guard>()?.unbind();
        self.blocks.enter(py, guard.clone_ref(py));
        if !self.takes_permits() {
            self.locks.get().enter(&self.name, thread, None, self.is_exclusive());
        }
        Ok(guard)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        let (thread, guard) = self.blocks.leave(py)?;
        self.locks.get().leave(&self.name, thread, None);
        leave(py, guard.get().release(py), exception)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.locks)?;
        self.task_blocks.traverse(&visit)
    }

    fn __clear__(&self) {
        self.task_blocks.clear();
    }
}
