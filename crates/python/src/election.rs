//! `Election`: campaigns, the lead, and who leads.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use leasehold::{Error, ErrorKind};
use pyo3::{PyTraverseError, PyVisit, prelude::*, types::PyTuple};

use crate::{
    arguments::{callable, count, duration, optional_text, text},
    blocks::{Blocks, leave, not_pickled},
    callbacks::{Losses, Thread},
    errors::exception,
    leader_watch::{Watch, leader_of},
    locks::{Locks, fallible, forks},
    operation::Operation,
    options::Lease,
    task_blocks::{Held, TaskBlocks},
};

/// A leader election.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Election {
    locks: Py<Locks>,
    /// The name.
    #[pyo3(get)]
    name: String,
    value: Option<String>,
    owner: Option<String>,
    ttl: Option<Duration>,
    wait: Option<Duration>,
    renew_every: Option<Duration>,
    max_hold: Option<Duration>,
    max_waiting: Option<usize>,
    blocks: Blocks<Leading>,
    task_blocks: TaskBlocks<Leading>,
}

impl Election {
    fn native(&self, py: Python<'_>) -> PyResult<leasehold::Election> {
        let mut election = self.locks.get().native(py)?.election(&self.name);
        if let Some(value) = &self.value {
            election = election.value(value);
        }
        if let Some(owner) = &self.owner {
            election = election.owner(owner);
        }
        if let Some(ttl) = self.ttl {
            election = election.ttl(ttl);
        }
        if let Some(interval) = self.renew_every {
            election = election.renew_every(interval);
        }
        if let Some(max_hold) = self.max_hold {
            election = election.max_hold(max_hold);
        }
        if let Some(most) = self.max_waiting {
            election = election.max_waiting(most);
        }
        Ok(election)
    }

    /// The operation that campaigns. `wait` of zero: one try.
    fn operation(&self, py: Python<'_>, wait: Option<Duration>) -> PyResult<Operation> {
        let (election, locks, name) = (self.native(py)?, self.locks.clone_ref(py), self.name.clone());
        let campaign = async move {
            match wait {
                Some(Duration::ZERO) => election.try_campaign().await,
                Some(limit) => election.campaign_within(limit).await,
                None => election.campaign().await,
            }
        };
        Ok(fallible(&self.locks, campaign, move |py, leading| {
            Ok(Py::new(py, Leading::new(leading, locks, name))?.into_any())
        }))
    }
}

#[pymethods]
impl Election {
    #[new]
    #[pyo3(signature = (
        locks, name, *, value = None, owner = None, ttl = None, wait = None, renew_every = None,
        max_hold = None, max_waiting = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        locks: Py<Locks>,
        name: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, PyAny>>,
        ttl: Option<&Bound<'_, PyAny>>,
        wait: Option<&Bound<'_, PyAny>>,
        renew_every: Option<&Bound<'_, PyAny>>,
        max_hold: Option<&Bound<'_, PyAny>>,
        max_waiting: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (name, wait) = (text("name", name)?, duration("wait", wait)?);
        let (ttl, renew_every) = (duration("ttl", ttl)?, duration("renew_every", renew_every)?);
        let (max_hold, max_waiting) = (duration("max_hold", max_hold)?, count("max_waiting", max_waiting)?);
        Lease { ttl, renew_every, max_hold, max_waiting }.check(py, &locks, &name)?;
        Ok(Self {
            locks,
            name,
            value: optional_text("value", value)?,
            owner: optional_text("owner", owner)?,
            ttl,
            wait,
            renew_every,
            max_hold,
            max_waiting,
            blocks: Blocks::default(),
            task_blocks: TaskBlocks::default(),
        })
    }

    /// Waits until this candidate leads: blocks this thread.
    ///
    /// >>> import leasehold
    /// >>> leading = leasehold.connect("memory:").election("scheduler", value="10.0.0.7").campaign()
    /// >>> leading.check()
    /// True
    #[pyo3(signature = (wait = None))]
    fn campaign(&self, py: Python<'_>, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        self._campaign(py, wait)?.wait_now(py)
    }

    #[pyo3(signature = (wait = None))]
    fn _campaign(&self, py: Python<'_>, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Operation> {
        let wait = duration("wait", wait)?.or(self.wait);
        self.operation(py, wait)
    }

    /// The operation that reads who leads.
    fn _leader(&self, py: Python<'_>) -> PyResult<Operation> {
        let election = self.native(py)?;
        Ok(fallible(&self.locks, async move { election.leader().await }, |py, leader| {
            leader.map_or_else(|| Ok(py.None()), |leader| leader_of(py, leader))
        }))
    }

    /// Follows who leads.
    fn _observe(&self, py: Python<'_>) -> PyResult<Watch> {
        let watch = self.native(py)?.observe().map_err(|error| exception(py, &error, Some(&self.locks)))?;
        Ok(Watch::new(self.locks.clone_ref(py), watch))
    }

    /// The operation that campaigns and enters the block. Native, as `__enter__`.
    fn __aenter__(&self, py: Python<'_>) -> PyResult<Operation> {
        self.task_blocks.acquire_and_enter(py, self.operation(py, self.wait)?)
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
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Leading>> {
        let leading = self.operation(py, self.wait)?.wait_now(py)?;
        let leading = leading.into_bound(py).cast_into::<Leading>()?.unbind();
        self.blocks.enter(py, leading.clone_ref(py));
        Ok(leading)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        let (_, leading) = self.blocks.leave(py)?;
        leave(py, leading.get().end(py), exception)
    }
}

/// The lead of the library; `None`: resigned. Calls in progress share it.
type SharedLead = Mutex<Option<Arc<leasehold::Leading>>>;

/// The leads of this process, some of which have ended.
static LEADS: Mutex<Vec<Weak<SharedLead>>> = Mutex::new(Vec::new());

/// Resigns all leads, in the background: the interpreter ends.
pub fn end_all() {
    for lead in std::mem::take(&mut *leads()) {
        if let Some(held) = lead.upgrade() {
            drop(held.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// In a forked child: the leads are those of its parent.
pub fn forget_all() {
    // The fork was called with the lock of the interpreter, as all that changes the leads is.
    if let Ok(mut leads) = LEADS.try_lock() {
        leads.clear();
    }
}

fn leads() -> MutexGuard<'static, Vec<Weak<SharedLead>>> {
    LEADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lead: one term.
///
/// >>> import leasehold
/// >>> leading = leasehold.connect("memory:").election("scheduler", value="10.0.0.7").campaign()
/// >>> leading.name, leading.term > 0, leading.check(), leading.released
/// ('scheduler', True, True, False)
/// >>> leading.resign()
#[pyclass(frozen, weakref, module = "leasehold._leasehold")]
pub struct Leading {
    held: Arc<SharedLead>,
    losses: Arc<Losses>,
    /// Of the process that it belongs to.
    forks: u32,
    locks: Py<Locks>,
    /// The name of the election.
    #[pyo3(get)]
    name: String,
    /// The token of the hold: send it with every order, and let receivers refuse a smaller one.
    #[pyo3(get)]
    term: u64,
    /// Terms of two lineages cannot be compared.
    #[pyo3(get)]
    lineage: String,
}

impl Leading {
    fn new(leading: leasehold::Leading, locks: Py<Locks>, name: String) -> Self {
        let term = leading.term();
        let held = Arc::new(Mutex::new(Some(Arc::new(leading))));
        let mut leads = leads();
        // Few processes lead more than a few elections, so this list is short.
        leads.retain(|lead| lead.strong_count() > 0);
        leads.push(Arc::downgrade(&held));
        drop(leads);
        Self {
            held,
            losses: Arc::default(),
            forks: forks(),
            locks,
            name,
            term: term.number,
            lineage: term.lineage.to_string(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<leasehold::Leading>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The exception in a process that does not lead, but was forked from the one that does.
    fn refuse_child(&self, py: Python<'_>) -> PyResult<()> {
        if self.forks == forks() {
            return Ok(());
        }
        let message = format!(
            "the lead of {:?} belongs to the parent process: campaign anew in this process",
            self.name
        );
        Err(exception(py, &Error::new(ErrorKind::Forked, message), Some(&self.locks)))
    }

    /// The lead of the library; an exception after its end.
    fn held(&self, py: Python<'_>) -> PyResult<Arc<leasehold::Leading>> {
        self.refuse_child(py)?;
        self.lock().clone().ok_or_else(|| self.ended(py))
    }

    fn ended(&self, py: Python<'_>) -> PyErr {
        let message = format!("the lead of {:?} in term {} was resigned before", self.name, self.term);
        exception(py, &Error::invalid(message), Some(&self.locks))
    }

    fn register(&self, py: Python<'_>, callback: Py<PyAny>, thread: Thread) -> PyResult<()> {
        let call = self.losses.add(py, callable(py, callback)?, thread)?;
        let registered = self.held(py)?.guard().on_lost(call);
        registered.map_err(|error| exception(py, &error, Some(&self.locks)))
    }
}

impl Held for Leading {
    fn lost(&self, py: Python<'_>) -> PyResult<Operation> {
        let lost = self.held(py)?.lost();
        Ok(Operation::of_loss(self.losses.wait(lost)))
    }

    fn losses(&self) -> Option<&Arc<Losses>> {
        Some(&self.losses)
    }

    /// It begins when it is polled, or dropped.
    fn end(&self, py: Python<'_>) -> PyResult<Option<Operation>> {
        self.refuse_child(py)?;
        let Some(held) = self.lock().take() else { return Ok(None) };
        let resign = async move {
            // While another thread proclaims a value, the end of that call ends the term.
            match Arc::into_inner(held) {
                Some(leading) => leading.resign().await,
                None => Ok(()),
            }
        };
        Ok(Some(self.losses.call(py, &self.locks, resign, |py, ()| Ok(py.None()))))
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        let held = self.lock().take();
        if self.forks != forks() {
            // The hold, with the threads and connections that keep it, belongs to the parent process.
            std::mem::forget(held);
        }
    }
}

#[pymethods]
impl Leading {
    /// The engine: `redis`, for example.
    #[getter]
    fn engine(&self) -> &'static str {
        self.locks.get().engine()
    }

    /// The term, under its name as a token.
    #[getter]
    const fn token(&self) -> u64 {
        self.term
    }

    /// Whether this candidate certainly leads now. Asks no server.
    ///
    /// >>> import leasehold
    /// >>> leading = leasehold.connect("memory:").election("scheduler", value="10.0.0.7").campaign()
    /// >>> leading.check()
    /// True
    fn check(&self) -> bool {
        self.lock().as_ref().is_some_and(|leading| self.forks == forks() && leading.check())
    }

    /// Whether it resigned.
    #[getter]
    fn released(&self) -> bool {
        self.lock().is_none()
    }

    /// Seconds for which the lead is certainly valid, 0 after its end; `None`: without a limit.
    #[getter]
    fn remaining(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.refuse_child(py)?;
        let held = self.lock().clone();
        Ok(held.map_or(Some(0.0), |held| held.guard().remaining().map(|remaining| remaining.as_secs_f64())))
    }

    /// Ends the term, and waits until the engine has confirmed it.
    ///
    /// >>> import leasehold
    /// >>> leading = leasehold.connect("memory:").election("scheduler", value="10.0.0.7").campaign()
    /// >>> leading.resign()
    fn resign(&self, py: Python<'_>) -> PyResult<()> {
        self.resign_async(py)?.wait_now(py).map(drop)
    }

    /// `resign`, for tasks.
    ///
    /// >>> import asyncio, leasehold
    /// >>> async def main():
    /// ...     leading = await leasehold.connect("memory:").election("scheduler").campaign_async()
    /// ...     await leading.resign_async()
    /// >>> asyncio.run(main())
    fn resign_async(&self, py: Python<'_>) -> PyResult<Operation> {
        self.end(py)?.ok_or_else(|| self.ended(py))
    }

    /// The name of `resign_async` for the end of an `async with` block.
    ///
    /// >>> import asyncio, leasehold
    /// >>> async def main():
    /// ...     leading = await leasehold.connect("memory:").election("scheduler").campaign_async()
    /// ...     await leading.release_async()
    /// >>> asyncio.run(main())
    fn release_async(&self, py: Python<'_>) -> PyResult<Operation> {
        self.resign_async(py)
    }

    /// Publishes another value in this term.
    ///
    /// >>> import leasehold
    /// >>> leading = leasehold.connect("memory:").election("scheduler", value="10.0.0.7").campaign()
    /// >>> leading.proclaim("10.0.0.8")
    fn proclaim(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.proclaim_async(py, value)?.wait_now(py).map(drop)
    }

    /// `proclaim`, for tasks.
    ///
    /// >>> import asyncio, leasehold
    /// >>> async def main():
    /// ...     leading = await leasehold.connect("memory:").election("scheduler").campaign_async()
    /// ...     await leading.proclaim_async("10.0.0.8")
    /// ...     await leading.resign_async()
    /// >>> asyncio.run(main())
    fn proclaim_async(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let (leading, value) = (self.held(py)?, text("value", value)?);
        let proclaim = async move { leading.proclaim(value).await };
        Ok(self.losses.call(py, &self.locks, proclaim, |py, ()| Ok(py.None())))
    }

    /// The loss of the lead, as an event.
    #[getter]
    fn lost(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        slf.get().losses.event(slf.as_any())
    }

    /// Why the lead was lost, as far as a call has reported it.
    #[getter]
    fn _loss(&self) -> Option<String> {
        self.losses.reason()
    }

    /// A block has been told the loss.
    fn _tell_loss(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        self.losses.tell(py, reason)
    }

    /// The operation that results in the reason when the lead is lost. It does not keep the lead.
    fn _lost(&self, py: Python<'_>) -> PyResult<Operation> {
        Held::lost(self, py)
    }

    /// Calls `callback` with the reason when the lead is lost, on a thread for callbacks.
    ///
    /// >>> import leasehold
    /// >>> leading = leasehold.connect("memory:").election("scheduler", value="10.0.0.7").campaign()
    /// >>> leading.on_lost(lambda reason: print("stop:", reason))
    fn on_lost(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.register(py, callback, Thread::Users)
    }

    fn _set_on_loss(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.register(py, callback, Thread::Events)
    }

    /// A callback may refer to this lead: without this, a lead that was dropped would never end.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.locks)?;
        self.losses.traverse(&visit)
    }

    fn __clear__(&self) {
        self.losses.clear();
    }

    /// A lead that was won before the block: the end of the block ends it.
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        slf.get().held(slf.py())?;
        Ok(slf.clone().unbind())
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        leave(py, self.end(py), exception)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(not_pickled("lead", "election"))
    }

    fn __repr__(&self) -> String {
        format!("<leasehold.Leading {:?}, term {}>", self.name, self.term)
    }
}
