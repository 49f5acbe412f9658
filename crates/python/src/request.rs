//! `Request`: what to acquire, and how.

use std::{
    collections::hash_map::Entry,
    sync::{Mutex, PoisonError},
    thread::ThreadId,
    time::Duration,
};

use leasehold::Error;
use pyo3::{exceptions::PyTypeError, prelude::*, types::PyTuple};

use crate::{
    arguments::{duration, text},
    errors::exception,
    guard::Guard,
    locks::{Entered, Entrant, Locks, Owner},
    operation::Operation,
};

/// A request for a name. It holds nothing, so it can be used any number of times.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Request {
    locks: Py<Locks>,
    name: String,
    kind: Kind,
    options: Options,
    /// The guards of the `with` blocks that run, of all threads.
    blocks: Mutex<Vec<(ThreadId, Py<Guard>)>>,
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

/// The owner of each hold.
enum OwnerOption {
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
        if !outer.is_exclusive && self.kind == Kind::Read {
            return Ok(());
        }
        let who = match entrant {
            Entrant::Thread(_) => "thread",
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
        let block = entered.entry((entrant, self.name.clone())).or_insert(Entered { is_exclusive, depth: 0 });
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

#[expect(clippy::disallowed_methods, reason = "the calling thread is the user's")]
fn this_thread() -> ThreadId {
    std::thread::current().id()
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

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Acquires: blocks this thread. `wait` replaces the wait of the request.
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

    fn _enter(&self, task: usize) {
        self.enter(Entrant::Task(task));
    }

    fn _leave(&self, task: usize) {
        self.leave(Entrant::Task(task));
    }

    /// Native, so that no signal handler can run between the grant and the beginning of the block.
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Py<Guard>> {
        let (py, this, thread) = (slf.py(), slf.get(), this_thread());
        this.refuse_nested(py, Entrant::Thread(thread))?;
        let guard = Self::operation(slf, this.default_wait())?.wait_now(py)?;
        let guard = guard.into_bound(py).cast_into::<Guard>()?.unbind();
        let mut blocks = this.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.push((thread, guard.clone_ref(py)));
        drop(blocks);
        this.enter(Entrant::Thread(thread));
        Ok(guard)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        let thread = this_thread();
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let block = blocks.iter().rposition(|(of, _)| *of == thread).map(|index| blocks.remove(index).1);
        drop(blocks);
        let Some(guard) = block else {
            return Err(PyTypeError::new_err("this thread is not in a `with` block of this request"));
        };
        self.leave(Entrant::Thread(thread));
        // The block may have released the hold itself.
        let Some(release) = guard.get().release(py) else { return Ok(false) };
        let released = release.wait_now(py);
        // An exception of the block is worth more than that of the release, which follows from it or comes too late.
        if exception.get_item(0).is_ok_and(|kind| !kind.is_none()) {
            return Ok(false);
        }
        released.map(|_| false)
    }
}

fn owner_of(owner: &Bound<'_, PyAny>) -> PyResult<OwnerOption> {
    if let Ok(owner) = owner.cast::<Owner>() {
        return Ok(OwnerOption::Identity(owner.get().0.clone()));
    }
    text("owner", owner)
        .map(OwnerOption::Label)
        .map_err(|_| PyTypeError::new_err("owner must be a str or a leasehold.Owner"))
}
