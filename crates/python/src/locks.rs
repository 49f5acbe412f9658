//! `Locks`, with what is needed to connect again in a forked child and after `pickle`.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread::ThreadId,
    time::Duration,
};

use leasehold::{Connect, Error, WhenUnreachable};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    arguments::{duration, optional_text, text},
    errors::exception,
    operation::Operation,
};

/// How many forks lead to this process, as `os.register_at_fork` counts them.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in the child after each fork.
#[pyfunction]
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// The locks of one engine.
#[pyclass(subclass, frozen, weakref, module = "leasehold._leasehold")]
pub struct Locks {
    settings: Settings,
    engine: &'static str,
    connected: Mutex<Connected>,
    /// The names inside whose `with` blocks each thread or task is.
    pub entered: Mutex<HashMap<(Entrant, String), Entered>>,
}

/// Who is in a `with` block.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entrant {
    Thread(ThreadId),
    /// The address of the task object, which lives at least as long as the block.
    Task(usize),
}

/// A `with` block that a thread or task is in.
pub struct Entered {
    pub is_exclusive: bool,
    pub depth: usize,
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
        connect.connect(&self.url)
    }
}

impl Locks {
    pub const fn engine(&self) -> &'static str {
        self.engine
    }

    /// The locks of this process. A forked child connects anew: threads and connections stay with its parent.
    pub fn native(&self, py: Python<'_>) -> PyResult<leasehold::Locks> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if connected.forks != forks() {
            let locks = self.settings.connect().map_err(|error| exception(py, &error, None))?;
            let inherited = std::mem::replace(&mut *connected, Connected { forks: forks(), locks });
            // To drop it would act on threads that this process does not have.
            std::mem::forget(inherited);
        }
        Ok(connected.locks.clone())
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
        max_connections: Option<usize>,
        max_waiting: Option<usize>,
        when_unreachable: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let settings = Settings {
            url: text("url", url)?,
            owner: optional_text("owner", owner)?,
            prefix: optional_text("prefix", prefix)?,
            schema: optional_text("schema", schema)?,
            password: optional_text("password", password)?,
            connect_timeout: duration("connect_timeout", connect_timeout)?,
            max_connections,
            max_waiting,
            when_unreachable: optional_text("when_unreachable", when_unreachable)?,
        };
        let locks = settings.connect().map_err(|error| exception(py, &error, None))?;
        let engine = locks.profile().engine;
        let connected = Mutex::new(Connected { forks: forks(), locks });
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
        let this = slf.clone().unbind();
        Ok(Operation::new(async move { locks.ping().await }, move |py, result| match result {
            Ok(()) => Ok(py.None()),
            Err(error) => Err(exception(py, &error, Some(&this))),
        }))
    }

    fn _close(&self, py: Python<'_>, limit: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let limit = duration("limit", Some(limit))?
            .ok_or_else(|| PyValueError::new_err("limit must be a duration, not None"))?;
        let locks = self.native(py)?;
        Ok(Operation::new(async move { locks.close(limit).await }, |py, left| {
            Ok(left.into_pyobject(py)?.into_any().unbind())
        }))
    }
}

/// An identity that takes a lock again while it holds it.
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
