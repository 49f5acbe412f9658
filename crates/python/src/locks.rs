//! `Locks`, with what is needed to connect again in a forked child and after `pickle`.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Waker},
    thread::ThreadId,
    time::Duration,
};

use leasehold::{Connect, Error, WhenUnreachable};
use pyo3::{exceptions::PyTypeError, prelude::*};

use crate::{
    arguments::{count, duration, optional_text, text, wrong_value},
    blocks::this_thread,
    errors::exception,
    hold::forget_holds,
    metrics::Recorder,
    operation::Operation,
};

/// For how long the locks of an interpreter that ends wait for releases before they report the holds lost: longer than
/// the process lives after that.
const LAST_RELEASES: Duration = Duration::from_secs(10);

/// How many forks lead to this process, as `os.register_at_fork` counts them.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in the child after each fork.
#[pyfunction]
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    forget_holds();
}

pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// The locks of one engine.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Locks {
    settings: Settings,
    engine: &'static str,
    connected: Arc<Mutex<Connected>>,
    /// The `with` blocks that threads and tasks are in, by name.
    entered: Mutex<HashMap<Arc<str>, Vec<Entered>>>,
}

/// Who is in a `with` block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Entrant {
    Thread(ThreadId),
    /// The address of the task object, which lives at least as long as the block.
    Task(usize),
}

/// A `with` block that a thread or task is in.
struct Entered {
    thread: ThreadId,
    /// The address of the task; `None`: the block of a thread.
    task: Option<usize>,
    is_exclusive: bool,
    /// Of the process that entered it. A forked child is in no block of its parent.
    forks: u32,
}

/// A task is in an `async with` block. Its thread must not block either: then the task could not leave.
pub struct Inside {
    locks: Py<Locks>,
    name: Arc<str>,
    thread: ThreadId,
    task: usize,
}

impl Inside {
    /// The task with this address, which runs now, enters a block of `name`.
    pub fn new(locks: Py<Locks>, name: Arc<str>, is_exclusive: bool, task: usize) -> Self {
        let thread = this_thread();
        locks.get().enter(&name, thread, Some(task), is_exclusive);
        Self { locks, name, thread, task }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.locks.get().leave(&self.name, self.thread, Some(self.task));
    }
}

struct Connected {
    forks: u32,
    locks: leasehold::Locks,
}

#[derive(Clone)]
struct Settings {
    url: String,
    owner: Option<String>,
    prefix: Option<String>,
    schema: Option<String>,
    password: Option<String>,
    connect_timeout: Option<Duration>,
    max_connections: Option<usize>,
    max_waiting: Option<usize>,
    when_unreachable: Option<String>,
}

impl Settings {
    fn connect(&self) -> Result<leasehold::Locks, Error> {
        let mut connect = Connect::default();
        if let Some(owner) = &self.owner {
            connect = connect.owner(owner);
        }
        if let Some(prefix) = &self.prefix {
            connect = connect.prefix(prefix);
        }
        if let Some(schema) = &self.schema {
            connect = connect.schema(schema);
        }
        if let Some(password) = &self.password {
            connect = connect.password(password.as_str());
        }
        if let Some(timeout) = self.connect_timeout {
            connect = connect.connect_timeout(timeout);
        }
        if let Some(most) = self.max_connections {
            connect = connect.max_connections(most);
        }
        if let Some(most) = self.max_waiting {
            connect = connect.max_waiting(most);
        }
        connect = match self.when_unreachable.as_deref() {
            Some("fail") => connect.when_unreachable(WhenUnreachable::Fail),
            Some("wait") => connect.when_unreachable(WhenUnreachable::Wait),
            Some(other) => {
                let message = format!("when_unreachable must be 'fail' or 'wait', not {other:?}");
                return Err(Error::invalid(message));
            }
            None => connect,
        };
        if let Some(recorder) = Recorder::new() {
            connect = connect.observe(recorder);
        }
        connect.connect(&self.url)
    }
}

impl Locks {
    /// The thread, or the task on it, enters a block of `name`.
    pub fn enter(&self, name: &Arc<str>, thread: ThreadId, task: Option<usize>, is_exclusive: bool) {
        let entered = Entered { thread, task, is_exclusive, forks: forks() };
        self.entered().entry(Arc::clone(name)).or_default().push(entered);
    }

    /// The thread, or the task on it, leaves the block of `name` that it entered last.
    pub fn leave(&self, name: &Arc<str>, thread: ThreadId, task: Option<usize>) {
        let mut entered = self.entered();
        let Some(blocks) = entered.get_mut(name) else { return };
        if let Some(last) = blocks.iter().rposition(|block| (block.thread, block.task) == (thread, task)) {
            blocks.remove(last);
        }
        if blocks.is_empty() {
            entered.remove(name);
        }
    }

    /// Whether a request of `entrant` would wait for a block of `name` that `entrant` is in.
    pub fn is_nested(&self, entrant: Entrant, name: &Arc<str>, is_exclusive: bool) -> bool {
        let entered = self.entered();
        entered.get(name).is_some_and(|blocks| {
            blocks.iter().any(|block| {
                let is_same = match entrant {
                    Entrant::Thread(thread) => block.thread == thread,
                    Entrant::Task(_) => block.task.is_some_and(|task| Entrant::Task(task) == entrant),
                };
                is_same && block.forks == forks() && (block.is_exclusive || is_exclusive)
            })
        })
    }

    fn entered(&self) -> MutexGuard<'_, HashMap<Arc<str>, Vec<Entered>>> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub const fn engine(&self) -> &'static str {
        self.engine
    }

    /// The locks of this process. A forked child connects anew: threads and connections stay with its parent.
    pub fn native(&self, py: Python<'_>) -> PyResult<leasehold::Locks> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if connected.forks != forks() {
            let locks = self.settings.connect().map_err(|error| exception(py, &error, None))?;
            *connected = Connected { forks: forks(), locks };
        }
        Ok(connected.locks.clone())
    }
}

/// A call on `locks`, whose errors become exceptions.
pub fn fallible<T: Send + 'static>(
    locks: &Py<Locks>,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
    finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> Operation {
    let (locks, called) = Python::attach(|py| (locks.clone_ref(py), locks.clone_ref(py)));
    let call = Operation::new(work, move |py, result| match result {
        Ok(value) => finish(py, value),
        Err(error) => Err(exception(py, &error, Some(&locks))),
    });
    call.on(called)
}

impl Drop for Connected {
    fn drop(&mut self) {
        if self.forks != forks() {
            // To drop the last reference would act on threads that this process does not have.
            std::mem::forget(self.locks.clone());
        }
    }
}

/// All locks of this process, for its end.
static CONNECTED: Mutex<Vec<Weak<Mutex<Connected>>>> = Mutex::new(Vec::new());

fn register(connected: &Arc<Mutex<Connected>>) {
    let mut all = CONNECTED.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|other| other.strong_count() > 0);
    all.push(Arc::downgrade(connected));
}

/// Whether this process has locks.
pub fn is_any_connected() -> bool {
    let all = CONNECTED.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().any(|connected| connected.strong_count() > 0)
}

/// Ends all waits of this process, which ends: nobody would use what they are granted.
pub fn end_waits() {
    let all = std::mem::take(&mut *CONNECTED.lock().unwrap_or_else(PoisonError::into_inner));
    for connected in all.iter().filter_map(Weak::upgrade) {
        let connected = connected.lock().unwrap_or_else(PoisonError::into_inner);
        if connected.forks == forks() {
            // The first poll ends the waits. The rest, to wait for the releases, is done at the exit of the process.
            let mut close = Box::pin(connected.locks.close(LAST_RELEASES));
            let _ = close.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

#[pymethods]
impl Locks {
    #[new]
    #[pyo3(signature = (
        url, *, owner = None, prefix = None, schema = None, password = None, connect_timeout = None,
        max_connections = None, max_waiting = None, when_unreachable = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        url: &Bound<'_, PyAny>,
        owner: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        schema: Option<&Bound<'_, PyAny>>,
        password: Option<&Bound<'_, PyAny>>,
        connect_timeout: Option<&Bound<'_, PyAny>>,
        max_connections: Option<&Bound<'_, PyAny>>,
        max_waiting: Option<&Bound<'_, PyAny>>,
        when_unreachable: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let settings = Settings {
            url: text("url", url)?,
            owner: optional_text("owner", owner)?,
            prefix: optional_text("prefix", prefix)?,
            schema: optional_text("schema", schema)?,
            password: optional_text("password", password)?,
            connect_timeout: duration("connect_timeout", connect_timeout)?,
            max_connections: count("max_connections", max_connections)?,
            max_waiting: count("max_waiting", max_waiting)?,
            when_unreachable: optional_text("when_unreachable", when_unreachable)?,
        };
        for (argument, value) in
            [("max_connections", settings.max_connections), ("max_waiting", settings.max_waiting)]
        {
            if value == Some(0) {
                return Err(wrong_value(py, format!("{argument} is out of range: 0")));
            }
        }
        let locks = settings.connect().map_err(|error| exception(py, &error, None))?;
        let engine = locks.profile().engine;
        let connected = Arc::new(Mutex::new(Connected { forks: forks(), locks }));
        register(&connected);
        Ok(Self { settings, engine, connected, entered: Mutex::default() })
    }

    /// What makes an equal object: the URL and the options.
    fn _settings<'py>(&self, py: Python<'py>) -> PyResult<(String, Bound<'py, pyo3::types::PyDict>)> {
        let settings = self.settings.clone();
        let options = pyo3::types::PyDict::new(py);
        let timeout = settings.connect_timeout.map(|timeout| timeout.as_secs_f64());
        for (key, value) in [
            ("owner", settings.owner),
            ("prefix", settings.prefix),
            ("schema", settings.schema),
            ("password", settings.password),
            ("when_unreachable", settings.when_unreachable),
        ] {
            if let Some(value) = value {
                options.set_item(key, value)?;
            }
        }
        if let Some(timeout) = timeout {
            options.set_item("connect_timeout", timeout)?;
        }
        for (key, value) in
            [("max_connections", settings.max_connections), ("max_waiting", settings.max_waiting)]
        {
            if let Some(value) = value {
                options.set_item(key, value)?;
            }
        }
        Ok((settings.url, options))
    }

    /// The engine: `redis`, for example.
    #[getter(engine)]
    fn engine_name(&self) -> &'static str {
        self.engine
    }

    fn _ping(slf: &Bound<'_, Self>) -> PyResult<Operation> {
        let locks = slf.get().native(slf.py())?;
        Ok(fallible(slf.as_unbound(), async move { locks.ping().await }, |py, ()| Ok(py.None())))
    }

    fn _close(&self, py: Python<'_>, limit: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let limit = duration("limit", Some(limit))?
            .ok_or_else(|| PyTypeError::new_err("limit must be a duration, not None"))?;
        let locks = self.native(py)?;
        Ok(Operation::new(async move { locks.close(limit).await }, |py, left| {
            Ok(left.into_pyobject(py)?.into_any().unbind())
        }))
    }
}

/// An owner of holds. A request whose owner holds the name already is granted at once, and shares the hold.
///
/// >>> import leasehold
/// >>> owner, locks = leasehold.Owner("worker"), leasehold.connect("memory:")
/// >>> with locks.mutex("a", owner=owner), locks.mutex("a", owner=owner) as again:
/// ...     again.check(), owner.label
/// (True, 'worker')
#[pyclass(frozen, module = "leasehold")]
pub struct Owner(pub leasehold::Owner);

#[pymethods]
impl Owner {
    #[new]
    fn new(label: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(leasehold::Owner::new(&text("label", label)?)))
    }

    /// The text that others see.
    #[getter]
    fn label(&self) -> &str {
        self.0.label()
    }

    fn __repr__(&self) -> String {
        format!("leasehold.Owner({:?})", self.0.label())
    }
}
