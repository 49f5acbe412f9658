//! Where keepers run: on a thread of their own, started when first needed, or on a runtime of the caller.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot};

use super::run_here::CallersRuntime;
use crate::{BoxFuture, Error, ErrorKind, contract::process, driver::observer::is_in_observer};

/// A runtime other than tokio, for a [`Keeper`]: the simulation uses its own.
pub trait Runtime: Send + Sync + 'static {
    /// Runs `task` to its end, concurrently with the other tasks. A panic of the task is passed through: this runtime
    /// has to report it.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Resolves when `duration` has passed by the clock of the keeper's [`Env`](crate::Env).
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Blocks the calling thread until `future` is done. A runtime that has no thread of its own runs its tasks here.
    fn block_on(&self, future: Pin<&mut dyn Future<Output = ()>>) {
        pollster::block_on(future);
    }

    /// Whether the calling thread is running a task of this runtime, so that a blocking call would wait for itself.
    fn is_running_task_here(&self) -> bool {
        false
    }
}

/// Runs the background work of one or several `Locks`. Cheap to clone; all clones are one keeper.
#[derive(Clone)]
pub struct Keeper {
    inner: Arc<Inner>,
    /// Whether callbacks of users run in tasks of the keeper, and not on a thread of their own.
    calls_back_in_tasks: bool,
    /// The process to which the threads belong: see [`process::generation`].
    generation: u32,
}

/// Where a keeper runs.
enum Inner {
    /// On a thread that starts at the first task.
    Thread(Mutex<Option<Running>>),
    /// On a thread that starts when `begin` is called.
    Deferred(Mutex<Deferred>),
    /// On a tokio runtime of the caller.
    Tokio(Handle),
    /// On another runtime of the caller.
    Other(Arc<dyn Runtime>),
}

/// A thread that has perhaps not started yet, with the tasks that it is to run after its start.
#[derive(Default)]
struct Deferred {
    running: Option<Running>,
    tasks: Vec<BoxFuture<'static, ()>>,
}

/// How a blocking call waits for the keeper.
pub(super) enum BlockingWait<'a> {
    /// As the runtime of the caller blocks a thread.
    OnRuntime(&'a dyn Runtime),
    /// The keeper runs on a thread of its own.
    UntilDone,
    /// The keeper runs on this runtime of the caller, whose tasks run only while a thread runs the runtime.
    WhileItRuns(&'a Handle),
    /// The call comes from a task of the keeper, or from an observer, which the keeper may call. It would wait for
    /// itself.
    Never,
}

/// A keeper thread that runs.
pub(super) struct Running {
    pub(super) handle: Handle,
    /// Lets threads of callers run the runtime of the thread.
    pub(super) callers: Arc<CallersRuntime>,
    /// Dropped with the last clone of the keeper: ends the thread.
    _alive: oneshot::Sender<()>,
}

impl Running {
    /// Whether this thread runs the runtime: the keeper thread does, and at times the thread of a caller.
    fn is_inside(&self) -> bool {
        Handle::try_current().is_ok_and(|current| current.id() == self.handle.id())
    }
}

impl Keeper {
    /// A keeper with its own thread, so that nothing in user code can stop renewals. The thread starts when it is first
    /// needed and ends when no `Locks` uses it any more.
    ///
    /// ```
    /// use leasehold::{Connect, Keeper};
    /// // Two engines, one background thread.
    /// let keeper = Keeper::thread();
    /// let orders = Connect::default().keeper(keeper.clone()).connect("memory:orders")?;
    /// let stock = Connect::default().keeper(keeper).connect("memory:stock")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn thread() -> Self {
        Self::new(Inner::Thread(Mutex::new(None)))
    }

    /// As [`thread`](Self::thread), for a short-lived process with an engine inside it: the thread starts with the
    /// first request that the engine does not answer at once, or by [`begin`](Self::begin). Until then no hold is
    /// watched, and none is reported lost. So a program that holds a lock for longer than a moment must call `begin`.
    ///
    /// ```
    /// use leasehold::{Connect, Keeper};
    /// let keeper = Keeper::deferred();
    /// let locks = Connect::default().keeper(keeper.clone()).connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().try_acquire()?;
    /// // The work takes long after all: watch the hold.
    /// keeper.begin()?;
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn deferred() -> Self {
        Self::new(Inner::Deferred(Mutex::default()))
    }

    /// Starts the thread of a [`deferred`](Self::deferred) keeper, unless it runs. Other keepers do not need this.
    ///
    /// ```
    /// leasehold::Keeper::deferred().begin()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when the system cannot start a thread; [`ErrorKind::Forked`] in a child that was forked
    /// from the process that made the keeper.
    pub fn begin(&self) -> Result<(), Error> {
        let Inner::Deferred(deferred) = &*self.inner else { return Ok(()) };
        let mut deferred = deferred.lock().unwrap_or_else(PoisonError::into_inner);
        if deferred.running.is_some() {
            return Ok(());
        }
        self.check_process()?;
        let running = start_thread()?;
        for task in deferred.tasks.drain(..) {
            running.handle.spawn(task);
        }
        deferred.running = Some(running);
        Ok(())
    }

    /// A keeper on a tokio runtime of the caller: faster to reach from tasks of that runtime, but blocked when the
    /// runtime is blocked. Blocking calls in tasks of that runtime can end with an error or a panic: see
    /// [`Blocking`](crate::Blocking). When the runtime is dropped, holds are reported lost and waits end with an error.
    /// The runtime needs its time and I/O drivers.
    ///
    /// ```
    /// use leasehold::{Connect, Keeper};
    /// let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    /// let keeper = Keeper::on(runtime.handle().clone());
    /// let locks = Connect::default().keeper(keeper).connect("memory:")?;
    /// runtime.block_on(async { locks.mutex("order/17").acquire().await?.release().await })?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn on(handle: Handle) -> Self {
        Self::new(Inner::Tokio(handle))
    }

    /// A keeper on a runtime other than tokio.
    #[doc(hidden)]
    #[must_use]
    pub fn with(runtime: Arc<dyn Runtime>) -> Self {
        Self::new(Inner::Other(runtime))
    }

    /// Runs the callbacks of [`Guard::on_lost`](crate::Guard::on_lost) in tasks of this keeper, and not on a thread of
    /// their own: so their order among the other tasks is always the same. They must not block.
    #[doc(hidden)]
    #[must_use]
    pub fn calling_back_in_tasks(mut self) -> Self {
        self.calls_back_in_tasks = true;
        self
    }

    /// Whether callbacks of users run in tasks of this keeper.
    pub(super) const fn calls_back_in_tasks(&self) -> bool {
        self.calls_back_in_tasks
    }

    fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner), calls_back_in_tasks: false, generation: process::generation() }
    }

    /// An error in a child of the process that made the keeper.
    fn check_process(&self) -> Result<(), Error> {
        if self.generation == process::generation() {
            return Ok(());
        }
        let message = "this Keeper belongs to the parent process: make another one after fork";
        Err(Error::new(ErrorKind::Forked, message))
    }

    /// Runs a task, after starting the keeper's thread if need be.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        self.check_process()?;
        match &*self.inner {
            Inner::Tokio(handle) => {
                handle.spawn(task);
            }
            Inner::Other(runtime) => runtime.spawn(Box::pin(task)),
            Inner::Deferred(deferred) => {
                let mut deferred = deferred.lock().unwrap_or_else(PoisonError::into_inner);
                match &deferred.running {
                    Some(running) => drop(running.handle.spawn(task)),
                    None => deferred.tasks.push(Box::pin(task)),
                }
            }
            Inner::Thread(running) => {
                let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
                if running.is_none() {
                    *running = Some(start_thread()?);
                }
                if let Some(running) = &*running {
                    running.handle.spawn(task);
                }
            }
        }
        Ok(())
    }

    /// How many requests that are answered already may still count as pending; `None` if no task of this keeper may be
    /// started on this thread.
    pub(crate) fn answered_still_pending(&self) -> Option<usize> {
        let answered_count = match &*self.inner {
            Inner::Thread(running) => {
                let running = running.lock().unwrap_or_else(PoisonError::into_inner);
                running.as_ref().filter(|running| !running.is_inside())?;
                // The keeper thread may still be finishing its last answer while the caller that waited for it is
                // already here.
                1
            }
            Inner::Tokio(_) => 0,
            Inner::Deferred(_) | Inner::Other(_) => return None,
        };
        // A thread that is ending has already destroyed the thread-local that entering the keeper's runtime needs.
        let is_ending = Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        (!is_ending).then_some(answered_count)
    }

    /// Calls `work` in the context of the keeper's runtime, with its timers, tasks and connections.
    pub(crate) fn in_runtime<T>(&self, work: impl FnOnce() -> T) -> T {
        let handle = match &*self.inner {
            Inner::Thread(running) => {
                let running = running.lock().unwrap_or_else(PoisonError::into_inner);
                running.as_ref().map(|running| running.handle.clone())
            }
            Inner::Tokio(handle) => Some(handle.clone()),
            Inner::Deferred(_) | Inner::Other(_) => None,
        };
        let _entered = handle.as_ref().map(Handle::enter);
        work()
    }

    /// How a blocking call on this thread has to wait for the keeper.
    pub(super) fn blocking_wait(&self) -> BlockingWait<'_> {
        if is_in_observer() {
            return BlockingWait::Never;
        }
        // The thread of a caller that runs the runtime is inside it, too.
        let is_this_thread = |running: &Option<Running>| {
            let current = Handle::try_current().ok();
            let is_inside =
                |running: &Running| current.is_some_and(|inside| inside.id() == running.handle.id());
            running.as_ref().is_some_and(is_inside)
        };
        let is_own_thread = match &*self.inner {
            Inner::Thread(running) => is_this_thread(&running.lock().unwrap_or_else(PoisonError::into_inner)),
            Inner::Deferred(deferred) => {
                is_this_thread(&deferred.lock().unwrap_or_else(PoisonError::into_inner).running)
            }
            Inner::Tokio(handle) => return BlockingWait::WhileItRuns(handle),
            Inner::Other(runtime) if !runtime.is_running_task_here() => {
                return BlockingWait::OnRuntime(&**runtime);
            }
            Inner::Other(_) => true,
        };
        if is_own_thread { BlockingWait::Never } else { BlockingWait::UntilDone }
    }

    /// The keeper thread's runtime, for blocking calls; `None` before the thread has started, without a keeper thread,
    /// and in a forked child.
    pub(crate) fn callers_runtime(&self) -> Option<Arc<CallersRuntime>> {
        if self.check_process().is_err() {
            return None;
        }
        let of = |running: &Option<Running>| running.as_ref().map(|running| Arc::clone(&running.callers));
        match &*self.inner {
            Inner::Thread(running) => of(&running.lock().unwrap_or_else(PoisonError::into_inner)),
            Inner::Deferred(deferred) => of(&deferred.lock().unwrap_or_else(PoisonError::into_inner).running),
            Inner::Tokio(_) | Inner::Other(_) => None,
        }
    }

    /// Whether the runtime itself reports panics of tasks. If not, the keeper's tasks must catch them.
    pub(crate) fn reports_panics(&self) -> bool {
        matches!(&*self.inner, Inner::Other(_))
    }

    /// Sleeps for `duration`, in a task of this keeper.
    pub(crate) async fn sleep(&self, duration: Duration) {
        match &*self.inner {
            Inner::Thread(_) | Inner::Deferred(_) | Inner::Tokio(_) => super::env::sleep(duration).await,
            Inner::Other(runtime) => runtime.sleep(duration).await,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "part of the keeper")]
/// Starts a keeper thread.
pub(super) fn start_thread() -> Result<Running, Error> {
    let start_error = |error: std::io::Error| {
        Error::new(
            ErrorKind::Refused,
            format!(
                "cannot start the keeper thread: {error}: raise the limit of threads (ulimit -u) or open files \
                 (ulimit -n)"
            ),
        )
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(start_error)?;
    let handle = runtime.handle().clone();
    let runtime = Arc::new(runtime);
    let callers = Arc::new(CallersRuntime::new(&runtime));
    let (alive, gone) = oneshot::channel::<()>();
    let callers_of_thread = Arc::clone(&callers);
    let run = move || {
        // Running tasks keep the keeper alive through the `Locks` that they serve: when the keeper is gone, no task is
        // left.
        callers_of_thread.run_until(&runtime, async { drop(gone.await) });
    };
    std::thread::Builder::new().name("leasehold".into()).spawn(run).map_err(start_error)?;
    Ok(Running { handle, callers, _alive: alive })
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.inner {
            Inner::Thread(_) | Inner::Deferred(_) => "Keeper(own thread)",
            Inner::Tokio(_) | Inner::Other(_) => "Keeper(runtime of the caller)",
        })
    }
}
