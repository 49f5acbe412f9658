//! `Request`: what to acquire, and how.

use std::{
    collections::hash_map::Entry,
    sync::{Mutex, MutexGuard, PoisonError},
    thread::ThreadId,
    time::Duration,
};

use leasehold::Error;
use pyo3::{
    exceptions::{PyRuntimeError, PyTypeError},
    prelude::*,
    types::{PyDict, PyTuple},
};

use crate::{
    arguments::{duration, text},
    blocks::{leave, this_thread},
    errors::exception,
    guard::Guard,
    locks::{Entered, Entrant, Locks, Owner, forks},
    operation::Operation,
};

/// A request for a name. It holds nothing, so it can be used any number of times.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Request {
    locks: Py<Locks>,
    name: String,
    kind: Kind,
    options: Options,
    /// The `with` blocks that run, of all threads.
    blocks: Mutex<Vec<Block>>,
}

/// A `with` block that runs.
struct Block {
    /// The thread that entered it.
    thread: ThreadId,
    guard: Py<Guard>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mutex,
    Read,
    Write,
    Permits { count: u32, limit: u32 },
}

struct Options {
    ttl: Option<Duration>,
    wait: Option<Duration>,
    at_least: Option<Duration>,
    renew: bool,
    renew_every: Option<Duration>,
    max_hold: Option<Duration>,
    attempts: Option<u32>,
    max_waiting: Option<usize>,
    owner: Option<OwnerOption>,
}

impl Options {
    /// The keywords that give these options.
    fn keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let keywords = PyDict::new(py);
        let durations = [
            ("ttl", self.ttl),
            ("wait", self.wait),
            ("at_least", self.at_least),
            ("renew_every", self.renew_every),
            ("max_hold", self.max_hold),
        ];
        for (key, duration) in durations {
            if let Some(duration) = duration {
                keywords.set_item(key, duration.as_secs_f64())?;
            }
        }
        keywords.set_item("renew", self.renew)?;
        keywords.set_item("attempts", self.attempts)?;
        keywords.set_item("max_waiting", self.max_waiting)?;
        match &self.owner {
            Some(OwnerOption::Label(label)) => keywords.set_item("owner", label)?,
            Some(OwnerOption::Identity(_)) => {
                return Err(PyTypeError::new_err(
                    "a leasehold.Owner is of one process: a request with it cannot be pickled; give owner= a str",
                ));
            }
            None => {}
        }
        Ok(keywords)
    }
}

/// The owner of each hold.
pub enum OwnerOption {
    /// A new identity for each hold, with this text.
    Label(String),
    Identity(leasehold::Owner),
}

/// How long a request waits.
#[derive(Clone, Copy)]
enum Wait {
    /// One try.
    No,
    Within(Duration),
    Forever,
}

impl Request {
    fn native(&self, py: Python<'_>) -> PyResult<leasehold::Request> {
        let locks = self.locks.get().native(py)?;
        let mut request = match self.kind {
            Kind::Mutex => locks.mutex(&self.name),
            Kind::Read => locks.rw(&self.name).read(),
            Kind::Write => locks.rw(&self.name).write(),
            Kind::Permits { count, limit } => locks.semaphore(&self.name, limit).permits(count),
        };
        let options = &self.options;
        request = request.renew(options.renew);
        if let Some(ttl) = options.ttl {
            request = request.ttl(ttl);
        }
        if let Some(interval) = options.renew_every {
            request = request.renew_every(interval);
        }
        if let Some(max_hold) = options.max_hold {
            request = request.max_hold(max_hold);
        }
        if let Some(attempts) = options.attempts {
            request = request.attempts(attempts);
        }
        if let Some(most) = options.max_waiting {
            request = request.max_waiting(most);
        }
        match &options.owner {
            Some(OwnerOption::Label(label)) => request = request.owner(leasehold::Owner::new(label)),
            Some(OwnerOption::Identity(owner)) => request = request.owner(owner.clone()),
            None => {}
        }
        Ok(request)
    }

    fn operation(slf: &Bound<'_, Self>, wait: Wait) -> PyResult<Operation> {
        let py = slf.py();
        let this = slf.get();
        let request = this.native(py)?;
        let acquire = match wait {
            Wait::No => request.try_acquire(),
            Wait::Within(limit) => request.acquire_within(limit),
            Wait::Forever => request.acquire(),
        };
        let request = slf.clone().unbind();
        Ok(Operation::new(acquire, move |py, result| {
            let this = request.get();
            match result {
                Ok(guard) => {
                    let guard = Guard::new(guard, this.locks.clone_ref(py), this.options.at_least);
                    Ok(Py::new(py, guard)?.into_any())
                }
                Err(error) => Err(exception(py, &error, Some(&this.locks))),
            }
        }))
    }

    const fn default_wait(&self) -> Wait {
        match self.options.wait {
            None => Wait::Forever,
            Some(Duration::ZERO) => Wait::No,
            Some(limit) => Wait::Within(limit),
        }
    }

    fn wait_of(&self, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Wait> {
        Ok(match duration("wait", wait)? {
            None => self.default_wait(),
            Some(Duration::ZERO) => Wait::No,
            Some(limit) => Wait::Within(limit),
        })
    }

    /// Refuses a wait for a name inside whose `with` block `entrant` is: it would wait for itself.
    fn refuse_nested(&self, py: Python<'_>, entrant: Entrant) -> PyResult<()> {
        // An owner takes its lock again.
        let takes_again = matches!(self.options.owner, Some(OwnerOption::Identity(_)));
        if takes_again || matches!(self.kind, Kind::Permits { .. }) {
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
        let options = Options {
            ttl: duration("ttl", ttl)?,
            wait: duration("wait", wait)?,
            at_least: duration("at_least", at_least)?,
            renew,
            renew_every: duration("renew_every", renew_every)?,
            max_hold: duration("max_hold", max_hold)?,
            attempts,
            max_waiting,
            owner: owner.filter(|owner| !owner.is_none()).map(owner_of).transpose()?,
        };
        Ok(Self { locks, name: text("name", name)?, kind, options, blocks: Mutex::default() })
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
    fn acquire(slf: &Bound<'_, Self>, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let wait = slf.get().wait_of(wait)?;
        if !matches!(wait, Wait::No) {
            slf.get().refuse_nested(slf.py(), Entrant::Thread(this_thread()))?;
        }
        Self::operation(slf, wait)?.wait_now(slf.py())
    }

    /// The operation that acquires. `task`: the address of the task that awaits it.
    #[pyo3(signature = (wait, task))]
    fn _acquire(slf: &Bound<'_, Self>, wait: Option<&Bound<'_, PyAny>>, task: usize) -> PyResult<Operation> {
        let wait = slf.get().wait_of(wait)?;
        if !matches!(wait, Wait::No) {
            slf.get().refuse_nested(slf.py(), Entrant::Task(task))?;
        }
        Self::operation(slf, wait)
    }

    /// The operation that tries once.
    fn _try_acquire(slf: &Bound<'_, Self>) -> PyResult<Operation> {
        Self::operation(slf, Wait::No)
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
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Py<Guard>> {
        let (py, this, thread) = (slf.py(), slf.get(), this_thread());
        let wait = this.default_wait();
        if !matches!(wait, Wait::No) {
            this.refuse_nested(py, Entrant::Thread(thread))?;
        }
        let guard = Self::operation(slf, wait)?.wait_now(py)?;
        let guard = guard.into_bound(py).cast_into::<Guard>()?.unbind();
        this.lock_blocks().push(Block { thread, guard: guard.clone_ref(py) });
        this.enter(Entrant::Thread(thread));
        Ok(guard)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        let Block { thread, guard } = self.take_block()?;
        self.leave(Entrant::Thread(thread));
        leave(py, guard.get().release(py), exception)
    }
}

impl Request {
    fn lock_blocks(&self) -> MutexGuard<'_, Vec<Block>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the last `with` block of this thread. A framework may leave a block in another thread than it has entered
    /// it: the only block there is.
    fn take_block(&self) -> PyResult<Block> {
        let mut blocks = self.lock_blocks();
        let thread = this_thread();
        let last = blocks.iter().rposition(|block| block.thread == thread);
        let index = last.or_else(|| (blocks.len() == 1).then_some(0)).ok_or_else(|| {
            PyRuntimeError::new_err(
                "this thread is in no `with` block of this request, but other threads are in several: make a \
                 request for each block",
            )
        })?;
        Ok(blocks.remove(index))
    }
}

pub fn owner_of(owner: &Bound<'_, PyAny>) -> PyResult<OwnerOption> {
    if let Ok(owner) = owner.cast::<Owner>() {
        return Ok(OwnerOption::Identity(owner.get().0.clone()));
    }
    text("owner", owner)
        .map(OwnerOption::Label)
        .map_err(|_| PyTypeError::new_err("owner must be a str or a leasehold.Owner"))
}
