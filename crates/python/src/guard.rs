//! `Guard`: a hold, in Python.

use std::{
    future::ready,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use leasehold::{Error, ErrorKind, Loss, Previous};
use pyo3::{PyTraverseError, PyVisit, prelude::*, sync::PyOnceLock, types::PyTuple};

use crate::{
    arguments::{callable, duration},
    blocks::{leave, not_pickled},
    callbacks::{Losses, Thread},
    errors::{exception, released},
    hold::{Hold, end_all_waits},
    locks::Locks,
    operation::Operation,
    task_blocks::Held,
};

/// A hold of a name.
///
/// >>> import leasehold
/// >>> with leasehold.connect("memory:").mutex("order/17") as guard:
/// ...     guard.name, guard.mode, guard.engine, guard.remaining > 10, guard.released
/// ('order/17', 'exclusive', 'memory', True, False)
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Guard {
    hold: Arc<Hold>,
    locks: Py<Locks>,
    losses: Arc<Losses>,
    name: leasehold::Name,
    token: leasehold::Token,
    /// `exclusive`, `shared` or `permit`.
    #[pyo3(get)]
    mode: &'static str,
    id: leasehold::ClaimId,
    /// How the hold before ended: `clean`, `abandoned`, `lapsed`, `broken` or `unknown`.
    #[pyo3(get)]
    previous: &'static str,
}

impl Guard {
    pub fn new(guard: leasehold::Guard, locks: Py<Locks>, at_least: Option<Duration>) -> Self {
        Self {
            locks,
            losses: Arc::default(),
            name: guard.name().clone(),
            token: guard.token(),
            mode: guard.mode().word(),
            id: guard.id(),
            previous: match guard.previous() {
                Previous::Clean => "clean",
                Previous::Abandoned => "abandoned",
                Previous::Lapsed => "lapsed",
                Previous::Broken => "broken",
                _ => "unknown",
            },
            hold: Hold::new(guard, at_least),
        }
    }

    /// The exception in a process that has not acquired this hold, but was forked from the one that did.
    fn refuse_child(&self, py: Python<'_>) -> PyResult<()> {
        if !self.hold.is_of_parent() {
            return Ok(());
        }
        let message = format!(
            "the hold of {:?} with token {} belongs to the parent process: acquire the name anew in this process",
            self.name(),
            self.token()
        );
        Err(exception(py, &Error::new(ErrorKind::Forked, message), Some(&self.locks)))
    }

    fn register(&self, py: Python<'_>, callback: Py<PyAny>, thread: Thread) -> PyResult<()> {
        self.refuse_child(py)?;
        let call = self.losses.add(py, callable(py, callback)?, thread)?;
        let registered = self.look(py, |guard| guard.on_lost(call))?;
        registered.map_err(|error| exception(py, &error, Some(&self.locks)))
    }

    /// The exception at the begin of a block whose hold has ended.
    pub fn refuse_ended(&self, py: Python<'_>) -> PyResult<()> {
        let (is_valid, lost) = self.look(py, |guard| (guard.check(), guard.lost()))?;
        let mut context = Context::from_waker(Waker::noop());
        let loss = match (pin!(lost).poll(&mut context), is_valid) {
            (Poll::Ready(loss), _) => loss,
            (Poll::Pending, true) => return Ok(()),
            (Poll::Pending, false) => Loss::Lapsed,
        };
        self.losses.tell(py, loss.as_str())?;
        let message =
            format!("the hold of {:?} with token {} was lost before: {loss}", self.name, self.token);
        Err(exception(py, &Error::new(ErrorKind::Lost(loss), message), Some(&self.locks)))
    }

    /// The guard of the library, whose end is the caller's work; `None` after its release, and while another call uses
    /// it.
    pub fn take(&self) -> Option<leasehold::Guard> {
        self.hold.take_guard()
    }

    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    pub const fn token(&self) -> u64 {
        self.token.number
    }

    /// What `look` says of the hold; an exception after its release.
    pub fn look<T>(&self, py: Python<'_>, look: impl FnOnce(&leasehold::Guard) -> T) -> PyResult<T> {
        self.refuse_child(py)?;
        self.hold.look(look).ok_or_else(|| released(py, self))
    }

    pub const fn locks(&self) -> &Py<Locks> {
        &self.locks
    }

    /// The release of this hold; `None` if it was released before. It begins when it is polled, or dropped.
    pub fn release(&self, py: Python<'_>) -> PyResult<Option<Operation>> {
        self.refuse_child(py)?;
        Ok(self.hold.release().map(|release| self.operation(py, release, |py, ()| Ok(py.None()))))
    }

    /// A call about this hold. A loss that it reports is told to all who wait for it.
    fn operation<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
        finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Operation {
        self.losses.call(py, &self.locks, call, finish)
    }

    /// The error of a call that begins after the release.
    pub fn released_error(&self) -> Error {
        let message =
            format!("the hold of {:?} with token {} was released before", self.name(), self.token());
        Error::new(ErrorKind::Invalid, message)
    }
}

impl Held for Guard {
    fn lost(&self, py: Python<'_>) -> PyResult<Operation> {
        let lost = self.look(py, leasehold::Guard::lost)?;
        Ok(Operation::of_loss(self.losses.wait(lost)))
    }

    fn losses(&self) -> Option<&Arc<Losses>> {
        Some(&self.losses)
    }

    fn end(&self, py: Python<'_>) -> PyResult<Option<Operation>> {
        self.release(py)
    }

    /// Without an operation inside an operation.
    fn end_then<F>(&self, py: Python<'_>, next: F) -> PyResult<Operation>
    where
        F: FnOnce(Python<'_>, PyResult<Py<PyAny>>) -> PyResult<Py<PyAny>> + Send + 'static,
    {
        if let Err(error) = self.refuse_child(py) {
            return Ok(Operation::new(ready(()), |py, ()| next(py, Err(error))));
        }
        let Some(release) = self.hold.release() else {
            return Ok(Operation::new(ready(()), |py, ()| next(py, Ok(py.None()))));
        };
        let finish = self.losses.finish(self.locks.clone_ref(py), |py, ()| Ok(py.None()));
        Ok(Operation::new(release, |py, result| next(py, finish(py, result))))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.hold.is_released() || self.hold.is_of_parent() {
            return;
        }
        let is_ending = Python::try_attach(|py| {
            static IS_FINALIZING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            // The guard may be collected because an exception is raised, and no call may see, or end, that exception.
            let raised = PyErr::take(py);
            let ask = || IS_FINALIZING.import(py, "sys", "is_finalizing")?.call0()?.is_truthy();
            let is_finalizing = ask();
            if let Some(raised) = raised {
                raised.restore(py);
            }
            is_finalizing
        });
        if is_ending.is_none_or(|is_ending| is_ending.unwrap_or(true)) {
            end_all_waits();
        }
    }
}

#[pymethods]
impl Guard {
    /// Whether the hold is certainly valid now. Asks no server.
    ///
    /// >>> import leasehold
    /// >>> guard = leasehold.connect("memory:").mutex("order/17").acquire()
    /// >>> guard.check()
    /// True
    /// >>> guard.release()
    /// >>> guard.check()
    /// False
    pub fn check(&self) -> bool {
        self.hold.check()
    }

    /// The name.
    #[getter(name)]
    fn get_name(&self) -> &str {
        self.name()
    }

    /// Grows with each grant: the protected resource refuses writes with a smaller one than it has seen.
    #[getter(token)]
    const fn get_token(&self) -> u64 {
        self.token()
    }

    /// Tokens of two lineages cannot be compared.
    #[getter]
    fn lineage(&self) -> String {
        self.token.lineage.to_string()
    }

    /// The claim id, by which `show` finds the hold.
    #[getter]
    fn id(&self) -> String {
        self.id.to_string()
    }

    /// Whether this guard was released.
    #[getter]
    pub fn released(&self) -> bool {
        self.hold.is_released()
    }

    /// The engine: `redis`, for example.
    #[getter]
    fn engine(&self) -> &'static str {
        self.locks.get().engine()
    }

    /// Seconds for which the hold is certainly valid, 0 after its end; `None`: without a limit.
    #[getter]
    pub fn remaining(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.refuse_child(py)?;
        let remaining = self.hold.look(|guard| guard.remaining().map(|remaining| remaining.as_secs_f64()));
        Ok(remaining.unwrap_or(Some(0.0)))
    }

    /// What was wrong at the last renewal.
    #[getter]
    fn trouble(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.look(py, leasehold::Guard::trouble)
    }

    /// Releases the hold, and waits until the engine has confirmed it.
    ///
    /// >>> import leasehold
    /// >>> guard = leasehold.connect("memory:").mutex("order/17").acquire()
    /// >>> guard.release()
    #[pyo3(name = "release")]
    fn release_blocking(&self, py: Python<'_>) -> PyResult<()> {
        self.release_async(py)?.wait_now(py).map(drop)
    }

    /// `release`, for tasks.
    ///
    /// >>> import asyncio, leasehold
    /// >>> async def main():
    /// ...     guard = await leasehold.connect("memory:").mutex("order/17").acquire_async()
    /// ...     await guard.release_async()
    /// >>> asyncio.run(main())
    fn release_async(&self, py: Python<'_>) -> PyResult<Operation> {
        self.release(py)?.ok_or_else(|| released(py, self))
    }

    /// Asks the engine whether the hold is valid, and renews it.
    ///
    /// >>> import leasehold
    /// >>> guard = leasehold.connect("memory:").mutex("order/17").acquire()
    /// >>> guard.confirm()
    fn confirm(&self, py: Python<'_>) -> PyResult<()> {
        self.confirm_async(py)?.wait_now(py).map(drop)
    }

    /// `confirm`, for tasks.
    ///
    /// >>> import asyncio, leasehold
    /// >>> async def main():
    /// ...     guard = await leasehold.connect("memory:").mutex("order/17").acquire_async()
    /// ...     await guard.confirm_async()
    /// ...     await guard.release_async()
    /// >>> asyncio.run(main())
    fn confirm_async(&self, py: Python<'_>) -> PyResult<Operation> {
        self.look(py, |_| ())?;
        let (hold, released) = (Arc::downgrade(&self.hold), self.released_error());
        let confirm = async move {
            // Borrowed only when the call begins: a call that nobody awaits does not delay the release.
            let Some(held) = hold.upgrade().and_then(|hold| hold.borrow()) else { return Err(released) };
            held.guard().confirm().await
        };
        Ok(self.operation(py, confirm, |py, ()| Ok(py.None())))
    }

    /// Makes the hold last for at least `time` from now on.
    ///
    /// >>> import leasehold
    /// >>> guard = leasehold.connect("memory:").mutex("order/17").acquire()
    /// >>> guard.extend(120) > 60
    /// True
    fn extend(&self, py: Python<'_>, time: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.extend_async(py, time)?.wait_now(py)
    }

    /// `extend`, for tasks.
    ///
    /// >>> import asyncio, leasehold
    /// >>> async def main():
    /// ...     guard = await leasehold.connect("memory:").mutex("order/17").acquire_async()
    /// ...     await guard.extend_async(120)
    /// ...     await guard.release_async()
    /// >>> asyncio.run(main())
    fn extend_async(&self, py: Python<'_>, time: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let time = duration("time", Some(time))?.unwrap_or_default();
        self.look(py, |_| ())?;
        let (hold, released) = (Arc::downgrade(&self.hold), self.released_error());
        let extend = async move {
            let Some(held) = hold.upgrade().and_then(|hold| hold.borrow()) else { return Err(released) };
            held.guard().extend(time).await
        };
        Ok(self.operation(py, extend, |py, deadline| {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            Ok(left.map(|left| left.as_secs_f64()).into_pyobject(py)?.into_any().unbind())
        }))
    }

    /// The loss of the hold, as an event. It does not keep the hold.
    #[getter]
    fn lost(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        slf.get().losses.event(slf.as_any())
    }

    /// Why the hold was lost, as far as a call has reported it.
    #[getter]
    fn _loss(&self) -> Option<String> {
        self.losses.reason()
    }

    /// A block has been told the loss.
    fn _tell_loss(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        self.losses.tell(py, reason)
    }

    /// The operation that results in the reason when the hold is lost. It does not keep the hold.
    fn _lost(&self, py: Python<'_>) -> PyResult<Operation> {
        Held::lost(self, py)
    }

    /// Calls `callback` with the reason when the hold is lost, on a thread for callbacks.
    ///
    /// >>> import leasehold
    /// >>> guard = leasehold.connect("memory:").mutex("order/17").acquire()
    /// >>> guard.on_lost(lambda reason: print("stop:", reason))
    /// >>> guard.release()
    fn on_lost(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.register(py, callback, Thread::Users)
    }

    /// `on_lost` for the event, which does not wait for callbacks of users.
    fn _set_on_loss(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.register(py, callback, Thread::Events)
    }

    /// From now on the end of this guard, or of the process, leaves the hold to the end of its lease, where the engine
    /// can. `release` releases it all the same.
    fn _leave_at_end(&self) {
        self.hold.leave_at_end();
    }

    fn __repr__(&self) -> String {
        format!("<leasehold.Guard {:?}, token {}>", self.name(), self.token())
    }

    /// A guard that was acquired before the block: the end of the block releases it.
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        slf.get().refuse_ended(slf.py())?;
        Ok(slf.clone().unbind())
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        leave(py, self.release(py), exception)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(not_pickled("guard", "request"))
    }

    /// A callback may refer to this guard: without this the hold of a dropped guard would never be released.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.locks)?;
        self.losses.traverse(&visit)
    }

    fn __clear__(&self) {
        self.losses.clear();
    }
}
