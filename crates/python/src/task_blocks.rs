//! The `async with` blocks that run, of all tasks, and what each of them holds. A block's task is cancelled when what
//! the block holds is lost.

use std::{
    collections::HashMap,
    future::ready,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use pyo3::{
    PyClass, PyTraverseError, PyVisit,
    exceptions::{PyGeneratorExit, PyRuntimeError},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyWeakrefMethods, PyWeakrefReference},
};

use crate::{
    callbacks::Losses,
    event_loop::{LoopOfAsyncio, is_in_trio, running_task},
    locks::Inside,
    operation::{Operation, WorkCell},
    wakers::{Callback, Shared},
};

/// What a block holds.
pub trait Held: PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync {
    /// The operation that results in the reason when it is lost.
    fn lost(&self, py: Python<'_>) -> PyResult<Operation>;
    /// Who is told of its loss before the task is cancelled. Several guards have nobody.
    fn losses(&self) -> Option<&Arc<Losses>> {
        None
    }
    /// Its release; `None` if it was released before.
    fn end(&self, py: Python<'_>) -> PyResult<Option<Operation>>;
    /// Its release, unless it was released before, and then `next` with the result.
    fn end_then<F>(&self, py: Python<'_>, next: F) -> PyResult<Operation>
    where
        F: FnOnce(Python<'_>, PyResult<Py<PyAny>>) -> PyResult<Py<PyAny>> + Send + 'static,
    {
        match self.end(py) {
            Ok(Some(release)) => release.then(py, next),
            Ok(None) => Ok(Operation::new(ready(()), |py, ()| next(py, Ok(py.None())))),
            Err(error) => Ok(Operation::new(ready(()), |py, ()| next(py, Err(error)))),
        }
    }
}

/// The blocks of one request. A task leaves its blocks in the opposite order.
pub struct TaskBlocks<T>(Arc<Tasks<T>>);

struct Tasks<T>(Mutex<ByTask<T>>);

/// The blocks by the address of the task.
type ByTask<T> = HashMap<usize, OfTask<T>, BuildHasherDefault<AddressHasher>>;

/// The blocks of one task. They end with the task.
struct OfTask<T> {
    task: Py<PyWeakrefReference>,
    blocks: Vec<Block<T>>,
}

struct Block<T> {
    held: Py<T>,
    /// Ends when it is dropped.
    inside: Option<Inside>,
    of_loop: OfLoop,
}

/// What depends on the event loop.
enum OfLoop {
    /// asyncio: the call that waits for the loss, and what is told of it.
    Asyncio { watch: Arc<WorkCell>, loss: Arc<BlockLoss> },
    /// trio: a block of `leasehold._trio`.
    Trio(Py<PyAny>),
}

/// A task that is about to enter a block.
pub struct Entering<T> {
    tasks: Arc<Tasks<T>>,
    address: usize,
    task: Py<PyWeakrefReference>,
    /// Its loop, if it is certainly one of asyncio.
    running: Option<Arc<Shared>>,
}

/// What a block is told of a loss. The call that waits for the loss has it, so it does not keep the task.
pub struct BlockLoss {
    /// Of the hold. They do not keep it.
    losses: Option<Weak<Losses>>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    reason: Option<Py<PyAny>>,
    /// `None` while the block is being entered.
    task: Option<Py<PyWeakrefReference>>,
}

/// How a block ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockEnd {
    Normal,
    /// By the cancellation of its task; whether somebody else than the block cancels it, too.
    Cancelled {
        by_others: bool,
    },
    Failed,
}

impl<T> Default for TaskBlocks<T> {
    fn default() -> Self {
        Self(Arc::new(Tasks(Mutex::default())))
    }
}

impl<T: Held> TaskBlocks<T> {
    /// `task` of that loop is about to enter a block.
    pub fn entering(
        &self,
        task: &Bound<'_, PyAny>,
        running: Option<&LoopOfAsyncio>,
    ) -> PyResult<Entering<T>> {
        let (py, address) = (task.py(), task.as_ptr() as usize);
        let tasks = Arc::clone(&self.0);
        let running = running.map(|running| Arc::clone(&running.queue));
        let known = tasks.lock().get(&address).map(|known| known.task.clone_ref(py));
        if let Some(known) = known
            && known.bind(py).upgrade().is_some_and(|known| known.is(task))
        {
            return Ok(Entering { tasks, address, task: known, running });
        }
        let ended = TaskEnded { tasks: Arc::downgrade(&tasks) as Weak<dyn Forget + Send + Sync>, address };
        let task = PyWeakrefReference::new_with(task, ended)?.unbind();
        let of_task = OfTask { task: task.clone_ref(py), blocks: Vec::new() };
        let before = tasks.lock().insert(address, of_task);
        drop(before);
        Ok(Entering { tasks, address, task, running })
    }

    /// The operation that acquires by `acquire`, and then enters a block of the running task.
    pub fn acquire_and_enter(&self, py: Python<'_>, acquire: Operation) -> PyResult<Operation> {
        let (task, running) = running_task(py)?;
        let entering = self.entering(&task, running.as_ref())?;
        let enters = acquire.then(py, |py, held| {
            let held = held?;
            entering.enter(py, held.bind(py).cast::<T>()?.as_unbound(), None)?;
            Ok(held)
        })?;
        Ok(enters.awaited_in(running))
    }

    /// The running task leaves the block that it entered last. What it has to await.
    pub fn leave<'py>(
        &self,
        kind: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        traceback: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = kind.py();
        let is_destroyed = kind.is(py.get_type::<PyGeneratorExit>());
        let (task, running) = running_task(py).ok().unzip();
        let Some(block) = self.take(py, task.as_ref(), is_destroyed)? else {
            // The block ended with its task.
            return nothing_to_await(py);
        };
        drop(block.inside);
        let (watch, loss) = match block.of_loop {
            OfLoop::Asyncio { watch, loss } => (watch, loss),
            OfLoop::Trio(of_trio) => {
                return of_trio.bind(py).call_method1(intern!(py, "leave"), (kind, value, traceback));
            }
        };
        watch.cancel();
        if is_destroyed {
            // The task was destroyed: it must not await any more.
            release_unawaited(py, &block.held);
            return nothing_to_await(py);
        }
        let (reason, others) = loss.take_back(py)?;
        let end = if kind.is_none() {
            BlockEnd::Normal
        } else if is_cancellation(kind)? {
            BlockEnd::Cancelled { by_others: others > 0 }
        } else {
            BlockEnd::Failed
        };
        let held = block.held.clone_ref(py);
        let leaves = block.held.get().end_then(py, move |py, released| match (end, reason) {
            (BlockEnd::Failed | BlockEnd::Cancelled { by_others: true }, _)
            | (BlockEnd::Cancelled { .. }, None) => Ok(py.None()),
            (BlockEnd::Normal, None) => released.map(|_| py.None()),
            (BlockEnd::Normal | BlockEnd::Cancelled { .. }, Some(reason)) => {
                let error = match released {
                    Err(error) if is_lost(py, &error)? => error,
                    _ => lost_error(py, held.bind(py).as_any(), &reason)?,
                };
                // It replaces the cancellation.
                error.set_cause(py, None);
                Err(error)
            }
        })?;
        Ok(leaves.awaited_in(running.flatten()).into_pyobject(py)?.into_any())
    }

    /// The last block of the running task, or that of a task that is being destroyed. A framework may leave a block in
    /// another task than it has entered it: the only block there is.
    fn take(
        &self,
        py: Python<'_>,
        current: Option<&Bound<'_, PyAny>>,
        is_destroyed: bool,
    ) -> PyResult<Option<Block<T>>> {
        let destroyed = if is_destroyed { self.destroyed_task(py, current) } else { None };
        let task = destroyed.or(current.map(|current| current.as_ptr() as usize));
        let mut tasks = self.0.lock();
        let last = task.and_then(|task| tasks.get_mut(&task)).and_then(|of_task| of_task.blocks.pop());
        if last.is_some() || is_destroyed {
            return Ok(last);
        }
        let mut others = tasks.values_mut().filter(|of_task| !of_task.blocks.is_empty());
        match (others.next(), others.next()) {
            (Some(other), None) => Ok(other.blocks.pop()),
            _ => Err(PyRuntimeError::new_err(
                "this task is in no `async with` block of this request, but other tasks are in several: make a \
                 request for each block",
            )),
        }
    }

    /// The task whose coroutine runs, and ends, although the task does not run.
    fn destroyed_task(&self, py: Python<'_>, current: Option<&Bound<'_, PyAny>>) -> Option<usize> {
        let tasks = self.0.lock();
        let known: Vec<_> =
            tasks.iter().map(|(address, of_task)| (*address, of_task.task.clone_ref(py))).collect();
        drop(tasks);
        let is_destroyed = |task: &Py<PyWeakrefReference>| {
            let task = task.bind(py).upgrade()?;
            if current.is_some_and(|current| current.is(&task)) {
                return None;
            }
            let coroutine = task.call_method0(intern!(py, "get_coro")).ok()?;
            coroutine.getattr(intern!(py, "cr_running")).ok()?.is_truthy().ok()
        };
        known.iter().find(|(_, task)| is_destroyed(task) == Some(true)).map(|(address, _)| *address)
    }

    /// What is held may have callbacks that refer to the request.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A mutex is locked only while another thread runs, which no thread does now.
        let Ok(tasks) = self.0.0.try_lock() else { return Ok(()) };
        for block in tasks.values().flat_map(|of_task| &of_task.blocks) {
            visit.call(&block.held)?;
            if let OfLoop::Trio(of_trio) = &block.of_loop {
                visit.call(of_trio)?;
            }
        }
        Ok(())
    }

    pub fn clear(&self) {
        let tasks = std::mem::take(&mut *self.0.lock());
        drop(tasks);
    }
}

impl<T: Held> Entering<T> {
    /// The task, which runs now, is in a block that holds `held`.
    pub fn enter(self, py: Python<'_>, held: &Py<T>, inside: Option<Inside>) -> PyResult<()> {
        let of_loop = if self.running.is_none() && is_in_trio(py)? {
            static NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let new = NEW.import(py, "leasehold._trio", "TrioBlock")?;
            OfLoop::Trio(new.call1((held,))?.unbind())
        } else {
            self.watch(py, held)?
        };
        let block = Block { held: held.clone_ref(py), inside, of_loop };
        let mut tasks = self.tasks.lock();
        let none = || OfTask { task: self.task.clone_ref(py), blocks: Vec::new() };
        tasks.entry(self.address).or_insert_with(none).blocks.push(block);
        Ok(())
    }

    /// Begins to wait for the loss, in asyncio.
    fn watch(&self, py: Python<'_>, held: &Py<T>) -> PyResult<OfLoop> {
        let losses = held.get().losses().map(Arc::downgrade);
        let loss = Arc::new(BlockLoss { losses, told: Mutex::default() });
        let watch = held.get().lost(py)?;
        let callback = Callback::Block(Arc::clone(&loss));
        match &self.running {
            Some(queue) => watch.start_in(py, queue, &callback)?,
            None => watch.start_for(py, &callback)?,
        }
        let mut told = loss.lock();
        if let Some(reason) = told.reason.take() {
            drop(told);
            release_unawaited(py, held);
            return Err(lost_error(py, held.bind(py).as_any(), &reason)?);
        }
        told.task = Some(self.task.clone_ref(py));
        drop(told);
        Ok(OfLoop::Asyncio { watch: watch.into_work(), loss })
    }
}

impl<T> Tasks<T> {
    fn lock(&self) -> MutexGuard<'_, ByTask<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockLoss {
    /// Called in the loop of the task.
    pub fn tell(&self, py: Python<'_>, reason: Py<PyAny>) -> PyResult<()> {
        let told = match self.losses.as_ref().and_then(Weak::upgrade) {
            Some(losses) => reason.extract::<String>(py).and_then(|reason| losses.tell(py, &reason)),
            None => Ok(()),
        };
        self.cancel(py, reason)?;
        told
    }

    fn cancel(&self, py: Python<'_>, reason: Py<PyAny>) -> PyResult<()> {
        let mut told = self.lock();
        told.reason = Some(reason);
        let task = told.task.as_ref().map(|task| task.clone_ref(py));
        drop(told);
        match task.and_then(|task| task.bind(py).upgrade()) {
            Some(task) => task.call_method0(intern!(py, "cancel")).map(drop),
            None => Ok(()),
        }
    }

    /// The reason of a loss, after the cancellation by this block is taken back; and how many other cancellations there
    /// are. Before Python 3.11 one cannot tell it from another that comes in the same turn of the loop.
    fn take_back(&self, py: Python<'_>) -> PyResult<(Option<Py<PyAny>>, usize)> {
        let mut told = self.lock();
        let (reason, task) = (told.reason.take(), told.task.take());
        drop(told);
        let task = task.and_then(|task| task.bind(py).upgrade());
        match task {
            Some(task) if reason.is_some() && task.hasattr(intern!(py, "uncancel"))? => {
                Ok((reason, task.call_method0(intern!(py, "uncancel"))?.extract()?))
            }
            _ => Ok((reason, 0)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins the release, unless it has begun, and does not wait for the answer.
fn release_unawaited<T: Held>(py: Python<'_>, held: &Py<T>) {
    // Dropping a release begins it.
    drop(held.get().end(py));
}

fn nothing_to_await(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    Ok(Operation::new(ready(()), |py, ()| Ok(py.None())).into_pyobject(py)?.into_any())
}

fn is_cancellation(kind: &Bound<'_, PyAny>) -> PyResult<bool> {
    static CANCELLED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = kind.py();
    let class = CANCELLED.import(py, "asyncio", "CancelledError")?;
    kind.cast::<pyo3::types::PyType>().map_err(PyErr::from)?.is_subclass(class)
}

fn is_lost(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    static LOST: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    error.value(py).is_instance(LOST.import(py, "leasehold._errors", "LockLost")?)
}

/// The exception of a block whose hold was lost.
fn lost_error(py: Python<'_>, held: &Bound<'_, PyAny>, reason: &Py<PyAny>) -> PyResult<PyErr> {
    static NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Ok(PyErr::from_value(NEW.import(py, "leasehold._errors", "lost_error")?.call1((held, reason))?))
}

/// The hash of an address: its bits, spread over the word. Nobody chooses addresses to make a table slow.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, number: usize) {
        // The golden ratio: no two multiples of a power of two have the same high bits.
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 32;
    }
}

/// Forgets a task with its blocks, which ends what they hold.
trait Forget {
    fn forget(&self, address: usize, task: &Bound<'_, PyAny>);
}

impl<T: Held> Forget for Tasks<T> {
    fn forget(&self, address: usize, task: &Bound<'_, PyAny>) {
        let mut tasks = self.lock();
        // Another task may have its address by now.
        let ended = tasks.get(&address).is_some_and(|of_task| of_task.task.is(task));
        let of_task = if ended { tasks.remove(&address) } else { None };
        drop(tasks);
        drop(of_task);
    }
}

/// Called with the weak reference to a task that was collected.
#[pyclass(frozen, module = "leasehold._leasehold")]
struct TaskEnded {
    tasks: Weak<dyn Forget + Send + Sync>,
    address: usize,
}

#[pymethods]
impl TaskEnded {
    fn __call__(&self, task: &Bound<'_, PyAny>) {
        if let Some(tasks) = self.tasks.upgrade() {
            tasks.forget(self.address, task);
        }
    }
}
