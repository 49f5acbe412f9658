//! Who is told of lost holds: the events and the callbacks of users. Threads that Python has started call them: the
//! interpreter ends its own threads when it ends, and must not end a thread of Rust in the middle of a call.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    task::{Context, Poll, Waker},
};

use leasehold::{Error, ErrorKind, Loss};
use pyo3::{PyTraverseError, PyVisit, intern, prelude::*, sync::PyOnceLock};

use crate::{
    errors::exception,
    locks::{Locks, forks},
    operation::Operation,
};

/// A callback; `None` after its call, or when its guard was collected.
type Callback = Mutex<Option<Py<PyAny>>>;

/// Who is told of the loss of one hold. The garbage collector sees the callbacks: one may refer to the object that has
/// it.
pub struct Losses {
    /// Why the hold was lost, as far as a call has reported it.
    reason: Arc<Reason>,
    /// The event of the loss, made when it is first asked for. It does not refer to the hold.
    event: PyOnceLock<Py<PyAny>>,
    callbacks: Mutex<Vec<Arc<Callback>>>,
}

impl Default for Losses {
    fn default() -> Self {
        Self { reason: Arc::default(), event: PyOnceLock::new(), callbacks: Mutex::default() }
    }
}

/// The reason of a loss that a call has reported. The library tells a loss by itself until the release begins.
#[derive(Default)]
struct Reason(Mutex<Reported>);

#[derive(Default)]
struct Reported {
    reason: Option<String>,
    /// The last number of a wait.
    last: u64,
    /// By their numbers.
    waits: BTreeMap<u64, Waker>,
}

/// A wait for the reason. Its end removes its waker, which may refer to the hold by a callback.
struct Wait {
    reason: Arc<Reason>,
    number: u64,
}

impl Wait {
    fn new(reason: &Arc<Reason>) -> Self {
        let mut reported = lock(&reason.0);
        reported.last += 1;
        Self { reason: Arc::clone(reason), number: reported.last }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<String> {
        let mut reported = lock(&self.reason.0);
        if let Some(reason) = &reported.reason {
            return Poll::Ready(reason.clone());
        }
        let before = reported.waits.insert(self.number, context.waker().clone());
        drop(reported);
        // Outside of the lock: a waker may refer to Python objects.
        drop(before);
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let waker = lock(&self.reason.0).waits.remove(&self.number);
        drop(waker);
    }
}

impl Losses {
    /// What the library is to call at the loss, for `callback`.
    pub fn add(
        &self,
        py: Python<'_>,
        callback: Py<PyAny>,
        thread: Thread,
    ) -> PyResult<impl FnOnce(Loss) + Send + use<>> {
        let calls = calls(py, thread)?;
        let callback: Arc<Callback> = Arc::new(Mutex::new(Some(callback)));
        lock(&self.callbacks).push(Arc::clone(&callback));
        Ok(move |loss: Loss| {
            // The thread ends only with this process.
            let _ = calls.send(Call { callback, reason: loss.as_str().to_owned() });
        })
    }

    /// A call of the user has reported the loss, perhaps before the library tells it, or after the release has begun:
    /// then the library tells it to nobody. The event is set when this returns.
    pub fn tell(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let waits = {
            let mut reported = lock(&self.reason.0);
            reported.reason.get_or_insert_with(|| reason.to_owned());
            mem::take(&mut reported.waits)
        };
        waits.into_values().for_each(Waker::wake);
        let callbacks = lock(&self.callbacks).clone();
        if !callbacks.is_empty() {
            let calls = calls(py, Thread::Users)?;
            for callback in callbacks {
                // One that was called is not called again.
                let _ = calls.send(Call { callback, reason: reason.to_owned() });
            }
        }
        match self.event.get(py) {
            Some(event) => event.call_method1(py, intern!(py, "_tell"), (reason,)).map(drop),
            None => Ok(()),
        }
    }

    /// A call about the hold. A loss that it reports is told.
    pub fn call<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        locks: &Py<Locks>,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
        finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Operation {
        Operation::new(call, self.finish(locks.clone_ref(py), finish)).on(locks.clone_ref(py))
    }

    /// What turns the result of a call about the hold into a Python object. A loss that it reports is told.
    pub fn finish<T: Send + 'static>(
        self: &Arc<Self>,
        locks: Py<Locks>,
        finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> impl FnOnce(Python<'_>, Result<T, Error>) -> PyResult<Py<PyAny>> + Send + 'static {
        // A callback may refer to the hold, which a call that nobody awaits must not keep.
        let losses = Arc::downgrade(self);
        move |py, result| match result {
            Ok(result) => finish(py, result),
            Err(error) => {
                if let (ErrorKind::Lost(loss), Some(losses)) = (error.kind(), losses.upgrade()) {
                    losses.tell(py, loss.as_str())?;
                }
                Err(exception(py, &error, Some(&locks)))
            }
        }
    }

    pub fn reason(&self) -> Option<String> {
        lock(&self.reason.0).reason.clone()
    }

    /// Resolves to the reason when the library tells the loss (`lost`), or a call has reported it. Does not keep the
    /// callbacks.
    pub fn wait<L>(&self, lost: L) -> impl Future<Output = String> + Send + use<L>
    where
        L: Future<Output = Loss> + Send + 'static,
    {
        let (wait, mut lost) = (Wait::new(&self.reason), Box::pin(lost));
        poll_fn(move |context| {
            if let Poll::Ready(loss) = lost.as_mut().poll(context) {
                return Poll::Ready(loss.as_str().to_owned());
            }
            wait.poll(context)
        })
    }

    /// The event of the loss of `held`, which has these losses.
    pub fn event(&self, held: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        static LOST: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = held.py();
        let new_event =
            || Ok::<_, PyErr>(LOST.import(py, "leasehold._lost", "Lost")?.call1((held,))?.unbind());
        Ok(self.event.get_or_try_init(py, new_event)?.clone_ref(py))
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A mutex is locked only while another thread runs Python code, which no thread does now.
        let Ok(callbacks) = self.callbacks.try_lock() else { return Ok(()) };
        for callback in &*callbacks {
            if let Ok(callback) = callback.try_lock() {
                visit.call(callback.as_ref())?;
            }
        }
        Ok(())
    }

    pub fn clear(&self) {
        let callbacks = mem::take(&mut *lock(&self.callbacks));
        for callback in callbacks {
            let callback = lock(&callback).take();
            drop(callback);
        }
    }
}

/// A callback to be called with the reason of a loss.
struct Call {
    callback: Arc<Callback>,
    reason: String,
}

/// A thread that calls.
#[derive(Clone, Copy)]
pub enum Thread {
    /// Sets events. It never waits for a callback of a user.
    Events,
    /// Calls the callbacks of users, one after another.
    Users,
}

/// The ways to the threads, in this process.
static THREADS: [Mutex<Option<Way>>; 2] = [Mutex::new(None), Mutex::new(None)];

struct Way {
    /// Of the process that has the thread. A forked child starts its own.
    forks: u32,
    calls: Sender<Call>,
}

/// The way to a thread, which starts when its first callback is registered.
fn calls(py: Python<'_>, thread: Thread) -> PyResult<Sender<Call>> {
    let place = &THREADS[thread as usize];
    static START: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let of_this_process = || {
        let way = lock(place);
        way.as_ref().filter(|way| way.forks == forks()).map(|way| way.calls.clone())
    };
    if let Some(calls) = of_this_process() {
        return Ok(calls);
    }
    let (calls, to_call) = channel();
    START.import(py, "leasehold._lost", "start_callbacks")?.call1((LossCalls(Mutex::new(to_call)),))?;
    // If another thread has started one, too, that one ends.
    Ok(of_this_process().unwrap_or_else(|| {
        let way = Way { forks: forks(), calls: calls.clone() };
        let before = lock(place).replace(way);
        // That of the parent process: its thread is not here.
        mem::forget(before);
        calls
    }))
}

/// What the thread for callbacks has to call.
#[pyclass(frozen, module = "leasehold._leasehold")]
pub struct LossCalls(Mutex<Receiver<Call>>);

#[pymethods]
impl LossCalls {
    /// Blocks the thread until a callback is to be called: the callback, which may be gone, with the reason. `None`:
    /// none comes any more.
    fn next(&self, py: Python<'_>) -> Option<(Option<Py<PyAny>>, String)> {
        let call = py.detach(|| lock(&self.0).recv()).ok()?;
        let callback = lock(&call.callback).take();
        Some((callback, call.reason))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
