//! `Election`: campaigns, the lead, and who leads.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use leasehold::{Error, ErrorKind, Leader, Leadership};
use pyo3::{PyTraverseError, PyVisit, prelude::*, sync::PyOnceLock, types::PyTuple};

use crate::{
    arguments::{duration, optional_text, text},
    blocks::{Blocks, leave, not_pickled},
    callbacks::{Callbacks, loss_event},
    errors::exception,
    locks::{Locks, fallible, forks},
    operation::Operation,
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
        locks: Py<Locks>,
        name: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, PyAny>>,
        ttl: Option<&Bound<'_, PyAny>>,
        wait: Option<&Bound<'_, PyAny>>,
        renew_every: Option<&Bound<'_, PyAny>>,
        max_hold: Option<&Bound<'_, PyAny>>,
        max_waiting: Option<usize>,
    ) -> PyResult<Self> {
        Ok(Self {
            locks,
            name: text("name", name)?,
            value: optional_text("value", value)?,
            owner: optional_text("owner", owner)?,
            ttl: duration("ttl", ttl)?,
            wait: duration("wait", wait)?,
            renew_every: duration("renew_every", renew_every)?,
            max_hold: duration("max_hold", max_hold)?,
            max_waiting,
            blocks: Blocks::default(),
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
        Ok(Watch { locks: self.locks.clone_ref(py), watch: Arc::new(Mutex::new(Some(watch))) })
    }

    /// Native, so that no signal handler can run between the grant and the beginning of the block.
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Leading>> {
        let leading = self.operation(py, self.wait)?.wait_now(py)?;
        let leading = leading.into_bound(py).cast_into::<Leading>()?.unbind();
        self.blocks.enter(leading.clone_ref(py));
        Ok(leading)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        let (_, leading) = self.blocks.leave()?;
        leave(py, leading.get().end(py), exception)
    }
}

/// The lead of the library; `None`: resigned. Calls in progress share it.
type Held = Mutex<Option<Arc<leasehold::Leading>>>;

/// The leads of this process, some of which have ended.
static LEADS: Mutex<Vec<Weak<Held>>> = Mutex::new(Vec::new());

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

fn leads() -> MutexGuard<'static, Vec<Weak<Held>>> {
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
    held: Arc<Held>,
    /// The event of the loss, made when it is first asked for.
    lost: PyOnceLock<Py<PyAny>>,
    callbacks: Callbacks,
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
            lost: PyOnceLock::new(),
            callbacks: Callbacks::default(),
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

    /// The end of the term; `None` if it was ended before. It begins when it is polled, or dropped.
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
        Ok(Some(fallible(&self.locks, resign, |py, ()| Ok(py.None()))))
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

    /// Seconds for which the lead is certainly valid; `None`: without a limit.
    #[getter]
    fn remaining(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(self.held(py)?.guard().remaining().map(|remaining| remaining.as_secs_f64()))
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
        Ok(fallible(&self.locks, async move { leading.proclaim(value).await }, |py, ()| Ok(py.None())))
    }

    /// The loss of the lead, as an event.
    #[getter]
    fn lost(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        loss_event(slf.as_any(), &slf.get().lost)
    }

    /// An event that is made after the end of the term is told of no loss.
    #[getter]
    const fn _loss(&self) -> Option<&'static str> {
        None
    }

    /// The operation that results in the reason when the lead is lost. It does not keep the lead.
    fn _lost(&self, py: Python<'_>) -> PyResult<Operation> {
        let lost = self.held(py)?.lost();
        Ok(Operation::of_loss(lost))
    }

    /// Calls `callback` with the reason when the lead is lost, on a thread for callbacks.
    ///
    /// >>> import leasehold
    /// >>> leading = leasehold.connect("memory:").election("scheduler", value="10.0.0.7").campaign()
    /// >>> leading.on_lost(lambda reason: print("stop:", reason))
    fn on_lost(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let call = self.callbacks.add(py, callback)?;
        let registered = self.held(py)?.guard().on_lost(call);
        registered.map_err(|error| exception(py, &error, Some(&self.locks)))
    }

    /// A callback may refer to this lead: without this, a lead that was dropped would never end.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.locks)?;
        self.callbacks.traverse(&visit)
    }

    fn __clear__(&self) {
        self.callbacks.clear();
    }

    /// A lead that was won before the block: the end of the block ends it.
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
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

/// Follows who leads.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Watch {
    locks: Py<Locks>,
    /// `None` while a call waits.
    watch: Arc<Mutex<Option<leasehold::LeaderWatch>>>,
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

fn leader_of(py: Python<'_>, leader: Leader) -> PyResult<Py<PyAny>> {
    static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let build = BUILD.import(py, "leasehold._view", "Leader")?;
    Ok(build.call1((leader.value, leader.term.number, leader.term.lineage.to_string()))?.unbind())
}

fn leadership_of(py: Python<'_>, state: &str, leader: Py<PyAny>) -> PyResult<Py<PyAny>> {
    static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Ok(BUILD.import(py, "leasehold._view", "Leadership")?.call1((state, leader))?.unbind())
}
