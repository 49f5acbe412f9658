//! `Request`: what to acquire, and how.

use std::{collections::hash_map::Entry, sync::PoisonError, time::Duration};

use leasehold::Error;
use pyo3::{prelude::*, types::PyTuple};

use crate::{
    arguments::text,
    blocks::{Blocks, leave, this_thread},
    errors::exception,
    guard::Guard,
    locks::{Entered, Entrant, Locks, fallible, forks},
    operation::Operation,
    options::Options,
};

/// A request for a name. It holds nothing, so it can be used any number of times.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Request {
    locks: Py<Locks>,
    name: String,
    kind: Kind,
    options: Options,
    blocks: Blocks<Guard>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mutex,
    Read,
    Write,
    Permits { count: u32, limit: u32 },
}

impl Request {
    fn native(&self, py: Python<'_>) -> PyResult<leasehold::Request> {
        let locks = self.locks.get().native(py)?;
        let request = match self.kind {
            Kind::Mutex => locks.mutex(&self.name),
            Kind::Read => locks.rw(&self.name).read(),
            Kind::Write => locks.rw(&self.name).write(),
            Kind::Permits { count, limit } => locks.semaphore(&self.name, limit).permits(count),
        };
        Ok(self.options.one_name(request))
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
        Ok(fallible(&self.locks, acquire, move |py, guard| {
            Ok(Py::new(py, Guard::new(guard, locks, at_least))?.into_any())
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
        if self.options.takes_again() || matches!(self.kind, Kind::Permits { .. }) {
            return Ok(());
        }
        let entered = self.locks.get().entered.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(outer) = entered.get(&(entrant, self.name.clone())) else { return Ok(()) };
        if outer.forks != forks() || (!outer.is_exclusive && self.kind == Kind::Read) {
            return Ok(());
        }
        let who = match entrant {
            Entrant::Thread(_) => "thread, or a task of its event loop,",
            Entrant::Task(_) => "task",
        };
        let message = format!(
            "this {who} is inside a `with` block of {:?} already, and would wait for itself: pass the guard of that \
             block on, or give both requests the same owner=leasehold.Owner(...)",
            self.name
        );
        Err(exception(py, &Error::misconfigured(message), Some(&self.locks)))
    }

    fn enter(&self, entrant: Entrant) {
        if matches!(self.kind, Kind::Permits { .. }) {
            return;
        }
        let mut entered = self.locks.get().entered.lock().unwrap_or_else(PoisonError::into_inner);
        let is_exclusive = self.kind != Kind::Read;
        let none = || Entered { is_exclusive, depth: 0, forks: forks() };
        let block = entered.entry((entrant, self.name.clone())).or_insert_with(none);
        if block.forks != forks() {
            *block = none();
        }
        block.depth += 1;
        block.is_exclusive |= is_exclusive;
    }

    fn leave(&self, entrant: Entrant) {
        let mut entered = self.locks.get().entered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut block) = entered.entry((entrant, self.name.clone())) {
            block.get_mut().depth -= 1;
            if block.get().depth == 0 {
                block.remove();
            }
        }
    }
}

#[pymethods]
impl Request {
    /// `kind`: `mutex`, `read`, `write`, or the pair of count and limit of a semaphore.
    #[new]
    #[pyo3(signature = (
        locks, kind, name, *, ttl = None, wait = None, at_least = None, owner = None, renew = true,
        renew_every = None, max_hold = None, attempts = None, max_waiting = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        locks: Py<Locks>,
        kind: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        wait: Option<&Bound<'_, PyAny>>,
        at_least: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, PyAny>>,
        renew: bool,
        renew_every: Option<&Bound<'_, PyAny>>,
        max_hold: Option<&Bound<'_, PyAny>>,
        attempts: Option<u32>,
        max_waiting: Option<usize>,
    ) -> PyResult<Self> {
        let kind = match kind.extract::<(u32, u32)>() {
            Ok((count, limit)) => Kind::Permits { count, limit },
            Err(_) => match text("kind", kind)?.as_str() {
                "read" => Kind::Read,
                "write" => Kind::Write,
                _ => Kind::Mutex,
            },
        };
        let options =
            Options::new(ttl, wait, at_least, owner, renew, renew_every, max_hold, attempts, max_waiting)?;
        Ok(Self { locks, name: text("name", name)?, kind, options, blocks: Blocks::default() })
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
        let arguments = (&this.locks, kind, &this.name).into_pyobject(py)?;
        let new = py.import("copyreg")?.getattr("__newobj_ex__")?;
        Ok((new, (slf.get_type(), arguments, options).into_pyobject(py)?.into_any()))
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

    /// The operation that acquires. `task`: the address of the task that awaits it.
    #[pyo3(signature = (wait, task))]
    fn _acquire(&self, py: Python<'_>, wait: Option<&Bound<'_, PyAny>>, task: usize) -> PyResult<Operation> {
        let wait = self.options.wait_or(wait)?;
        self.unnested(py, wait, Entrant::Task(task))
    }

    /// The operation that tries once.
    fn _try_acquire(&self, py: Python<'_>) -> PyResult<Operation> {
        self.operation(py, Some(Duration::ZERO))
    }

    /// Records that a task entered a block. Its thread must not block either: then the task could not leave.
    fn _enter(&self, task: usize) {
        self.enter(Entrant::Task(task));
        self.enter(Entrant::Thread(this_thread()));
    }

    fn _leave(&self, task: usize) {
        self.leave(Entrant::Task(task));
        self.leave(Entrant::Thread(this_thread()));
    }

    /// Native, so that no signal handler can run between the grant and the beginning of the block.
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Guard>> {
        let thread = Entrant::Thread(this_thread());
        let guard = self.unnested(py, self.options.wait, thread)?.wait_now(py)?;
        let guard = guard.into_bound(py).cast_into::<Guard>()?.unbind();
        self.blocks.enter(guard.clone_ref(py));
        self.enter(thread);
        Ok(guard)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        let (thread, guard) = self.blocks.leave()?;
        self.leave(Entrant::Thread(thread));
        leave(py, guard.get().release(py), exception)
    }
}
