//! The entry point: a `Locks` on one engine.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    All, CONNECT_TIMEOUT, Engine, Env, Error, Keeper, Name, Observe, Profile, Request, WhenUnreachable,
    contract::{label, process},
    driver::keeper,
    driver::observer::Observer,
    driver::shared::{Parts, Shared, SharedHandle},
    request::Family,
};

/// The name that [`Locks::warm`] acquires.
const WARM_NAME: &str = "leasehold-warm";

/// Locks on one engine. Cheap to clone; all clones share one queue of requests per name and one keeper.
#[derive(Clone)]
pub struct Locks(Arc<SharedHandle>);

/// Configures a [`Locks`].
#[must_use]
pub struct Builder {
    engine: Arc<dyn Engine>,
    env: Env,
    keeper: Keeper,
    observers: Vec<Arc<dyn Observe>>,
    owner: Option<String>,
    connect_timeout: Duration,
    when_unreachable: WhenUnreachable,
    max_waiting: Option<usize>,
}

impl Locks {
    /// A `Locks` on `engine`, with its own keeper thread.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self::builder(engine).build()
    }

    /// A builder for locks on `engine`.
    pub fn builder(engine: Arc<dyn Engine>) -> Builder {
        Builder {
            engine,
            env: Env::system(),
            keeper: Keeper::thread(),
            observers: Vec::new(),
            owner: None,
            connect_timeout: CONNECT_TIMEOUT,
            when_unreachable: WhenUnreachable::Wait,
            max_waiting: None,
        }
    }

    /// A lock that excludes every other holder of `name`.
    pub fn mutex(&self, name: impl AsRef<str>) -> Request {
        Request::new(&self.0, Name::new(name.as_ref()), Family::Exclusive)
    }

    /// A lock that readers share and a writer holds alone. Writers are never starved: readers that come after a waiting
    /// writer wait behind it.
    #[must_use]
    pub fn rw(&self, name: impl AsRef<str>) -> Rw {
        Rw::new(&self.0, Name::new(name.as_ref()))
    }

    /// A semaphore of `limit` permits. All requests for one name must give the same limit.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Request {
        Request::new(&self.0, Name::new(name.as_ref()), Family::Permits { limit })
    }

    /// Several names, acquired all or none: add the names to the request that this returns.
    pub fn all(&self) -> All {
        All::new(&self.0)
    }

    /// The properties of the engine.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// Prepares for the first request with this ttl, so that it costs no more than a later one: connects, and makes
    /// what the engine needs once, such as scripts, tables, a session or a lease. For this it acquires and releases the
    /// name `leasehold-warm` twice, without waiting for it. Returns how long that took.
    ///
    /// # Errors
    /// Those of [`Request::try_acquire`], except `is_taken`; [`is_denied`](crate::Error::is_denied), for example, if
    /// the user has no rights on the name.
    ///
    /// # Cancel safety
    /// As [`Request::acquire`].
    pub async fn warm(&self, ttl: Duration) -> Result<Duration, Error> {
        let begin = self.0.now();
        // A mutex is what most programs lock first, and engines may treat it apart from the other modes.
        let request = self.mutex(WARM_NAME).ttl(ttl);
        // etcd keeps a lease from the second lock of a process on.
        for _ in 0..2 {
            match request.try_acquire().await {
                Ok(guard) => guard.release().await?,
                // Another process is being warmed up; this one has done all that its own claim needs.
                Err(error) if error.is_taken() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.0.now().since(begin))
    }

    /// [`warm`](Self::warm) for code without an executor: blocks the thread.
    ///
    /// # Errors
    /// As [`warm`](Self::warm).
    #[track_caller]
    pub fn warm_blocking(&self, ttl: Duration) -> Result<Duration, Error> {
        self.0.block_on(self.warm(ttl))?
    }

    /// Ends all waits with an error, refuses new requests, and waits, for at most `limit`, until all guards are dropped
    /// and their releases answered. Holds that remain after `limit` are reported lost. Returns the number of these
    /// holds.
    pub async fn close(&self, limit: Duration) -> usize {
        let shared = &self.0;
        if !shared.is_own_process() {
            return 0;
        }
        shared.stop_waiting();
        keeper::close(shared, limit).await
    }

    /// [`close`](Self::close) for code without an executor: blocks the thread for at most `limit`.
    ///
    /// # Panics
    /// Where the call could never end, also where other blocking calls return an error then: see
    /// [`Blocking`](crate::Blocking#calls-that-could-never-end). The `Locks` is closed all the same.
    #[track_caller]
    pub fn close_blocking(&self, limit: Duration) -> usize {
        match self.0.block_on(self.close(limit)) {
            Ok(left) => left,
            Err(error) => panic!("{error}"),
        }
    }

    /// For how long this process, if it ended now, would wait at its exit for answers to its releases. This time is
    /// shorter while the engine is known not to answer. For tests, because how long the end of a process takes does not
    /// show this time reliably.
    #[doc(hidden)]
    #[must_use]
    pub fn exit_wait(&self) -> Duration {
        self.0.exit_wait()
    }

    /// Whether this `Locks` holds `name` by the claim with this id, or waits for it by this claim. For messages about
    /// waiting, which are not to show the program itself as the holder.
    #[doc(hidden)]
    #[must_use]
    pub fn has_claim(&self, name: &Name, id: &str) -> bool {
        self.0.has_claim(name, id)
    }

    /// Begins a blocking call of a binding to another language, whose threads wait in their own way.
    #[doc(hidden)]
    pub fn begin_blocking_call(&self) -> keeper::BlockingCall {
        keeper::BlockingCall::new(self.shared())
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    pub(crate) const fn handle(&self) -> &Arc<SharedHandle> {
        &self.0
    }
}

impl Builder {
    /// The label of the holds and waiters of this `Locks`, unless a request sets its own; `user@host:pid` by default.
    pub fn owner(mut self, label: &str) -> Self {
        self.owner = Some(crate::Owner::new(label).label().to_owned());
        self
    }

    /// Sets the keeper, for example one that another `Locks` uses, or one on a runtime of the caller: see [`Keeper`].
    pub fn keeper(mut self, keeper: Keeper) -> Self {
        self.keeper = keeper;
        self
    }

    /// Adds an observer, which receives every [`Event`](crate::Event).
    pub fn observe(mut self, observer: Arc<dyn Observe>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Replaces the clock and randomness of the system, for tests and simulation.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// For how long a request tries to connect to an engine that was never reached; after that the request fails.
    /// [`CONNECT_TIMEOUT`] by default. The limit is only for connecting: an engine that accepts the connection is
    /// allowed to take longer for its first answer.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// What requests do while the engine cannot be reached; by default they wait.
    pub fn when_unreachable(mut self, what: WhenUnreachable) -> Self {
        self.when_unreachable = what;
        self
    }

    /// How many requests of this `Locks` may wait at the same time, for all names together; by default any number. One
    /// more request is refused at once with [`is_busy`](crate::Error::is_busy), without a request to the engine. A
    /// request waits from its first poll until it is granted or ends, also for a name that is free. Tries
    /// ([`Request::try_acquire`], [`Request::attempts`]) do not count. See also [`Request::max_waiting`].
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = Some(requests);
        self
    }

    /// Builds the `Locks`. Nothing is sent before the first request.
    #[must_use]
    pub fn build(self) -> Locks {
        process::register_hooks(keeper::wait_at_exit);
        let owner = self.owner.unwrap_or_else(label::owner_label);
        let shared = Arc::new(Shared::new(Parts {
            observer: Observer::new(self.engine.profile().engine, self.observers),
            engine: self.engine,
            env: self.env,
            owner: owner.into(),
            keeper: self.keeper,
            connect_timeout: self.connect_timeout,
            when_unreachable: self.when_unreachable,
            max_waiting: self.max_waiting,
        }));
        keeper::register(&shared);
        shared.observe_connections();
        Locks(Arc::new(SharedHandle(shared)))
    }
}

/// A read-write lock on one name.
///
/// ```
/// # let locks = leasehold::Locks::connect("memory:")?;
/// let prices = locks.rw("prices");
/// let one = prices.read().blocking().acquire()?;
/// let two = prices.read().blocking().acquire()?;
/// assert!(prices.write().blocking().try_acquire().unwrap_err().is_taken());
/// # drop((one, two));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Rw {
    handle: Arc<SharedHandle>,
    /// The name, or why it is invalid: reported when a request is used.
    name: Result<Name, String>,
}

impl Rw {
    pub(crate) fn new(handle: &Arc<SharedHandle>, name: Result<Name, Error>) -> Self {
        Self { handle: Arc::clone(handle), name: name.map_err(|error| error.to_string()) }
    }

    /// A lock shared with other readers.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.rw("prices").read().blocking().acquire()?;
    /// assert_eq!(guard.mode(), leasehold::Mode::Shared);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn read(&self) -> Request {
        self.request(Family::Shared)
    }

    /// A lock that excludes every other holder.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.rw("prices").write().blocking().acquire()?;
    /// assert_eq!(guard.mode(), leasehold::Mode::Exclusive);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn write(&self) -> Request {
        self.request(Family::Exclusive)
    }

    fn request(&self, family: Family) -> Request {
        Request::new(&self.handle, self.name.clone().map_err(Error::invalid), family)
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Locks({})", self.0.profile.engine)
    }
}

impl fmt::Debug for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or("", |name| name.as_str());
        write!(f, "Rw({name:?})")
    }
}
