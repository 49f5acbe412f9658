//! The door: a `Locks` on one engine.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Broken, Engine, EngineError, Env, Error, ErrorKind, Guarantee, Keeper, Name, Observe, Profile, Request,
    View, caught,
    keeper::{self, Work, poll_once},
    observe::Observer,
    process,
    request::Family,
    shared::{Lifeline, Parts, Shared},
};

/// How long an engine that was never reached is tried, unless the builder says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Locks on one engine. Cheap to clone; all clones share one line of waiting requests per name and one keeper.
#[derive(Clone)]
pub struct Locks(Arc<Lifeline>);

/// Sets up a [`Locks`].
#[must_use]
pub struct Builder {
    engine: Arc<dyn Engine>,
    env: Env,
    keeper: Keeper,
    observer: Observer,
    owner: Option<String>,
    connect_timeout: Duration,
}

impl Locks {
    /// Locks on `engine`, with a keeper thread of their own.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self::builder(engine).build()
    }

    /// Locks on `engine`, to be set up.
    pub fn builder(engine: Arc<dyn Engine>) -> Builder {
        Builder {
            engine,
            env: Env::system(),
            keeper: Keeper::thread(),
            observer: Observer::default(),
            owner: None,
            connect_timeout: CONNECT_TIMEOUT,
        }
    }

    /// A lock that excludes every other holder of `name`.
    pub fn mutex(&self, name: impl AsRef<str>) -> Request {
        Request::new(&self.0, Name::new(name.as_ref()), Family::Exclusive)
    }

    /// A lock that readers share and a writer has alone. Writers are never starved: readers that come after a waiting
    /// writer wait behind it.
    #[must_use]
    pub fn rw(&self, name: impl AsRef<str>) -> Rw {
        Rw { life: Arc::clone(&self.0), name: name.as_ref().to_owned() }
    }

    /// A place among `limit` of them. All users of a name must give the same limit.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Request {
        Request::new(&self.0, Name::new(name.as_ref()), Family::Permits { limit })
    }

    /// The facts about the engine.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// What the engine, as configured now, promises.
    ///
    /// # Errors
    /// The engine's, if it had to be asked.
    pub async fn guarantee(&self) -> Result<Guarantee, Error> {
        self.inspect("", |engine| Box::pin(async move { engine.guarantee().await })).await
    }

    /// The names that begin with `prefix` and have a holder or a waiter.
    ///
    /// # Errors
    /// The engine's.
    pub async fn list(&self, prefix: &str) -> Result<Vec<View>, Error> {
        let owned = prefix.to_owned();
        let views = self.inspect(prefix, |engine| Box::pin(async move { engine.list(&owned).await })).await?;
        Ok(views.into_iter().map(View::cut).collect())
    }

    /// Who holds `name`, and who waits.
    ///
    /// # Errors
    /// The engine's; [`is_invalid`](Error::is_invalid) for a name that cannot be.
    pub async fn show(&self, name: &str) -> Result<View, Error> {
        let parsed = Name::new(name)?;
        let view = self.inspect(name, |engine| Box::pin(async move { engine.show(&parsed).await })).await?;
        Ok(view.cut())
    }

    /// Ends the hold of `name` whose tokens contain `token`. `force` does not wait for the holder's lease: then only a
    /// fence protects the resource.
    ///
    /// # Errors
    /// The engine's; [`is_denied`](Error::is_denied) where it cannot break this hold.
    pub async fn break_hold(&self, name: &str, token: u64, force: bool) -> Result<Broken, Error> {
        let parsed = Name::new(name)?;
        let work = move |engine: Arc<dyn Engine>| -> crate::BoxFuture<'static, _> {
            Box::pin(async move { engine.break_hold(&parsed, token, force).await })
        };
        self.inspect(name, work).await
    }

    /// Ends all waits with an error, refuses new requests, and waits until all guards are dropped and their releases
    /// answered, at most for `limit`. Holds that are left then are told lost; how many, is the answer.
    pub async fn close(&self, limit: Duration) -> usize {
        let shared = &self.0;
        if !shared.is_home() {
            return 0;
        }
        shared.stop_waiting();
        keeper::close(shared, limit).await
    }

    /// Runs something of an engine's crate, like a fence, where the engine's connections live, so that it works under any
    /// executor. `about` is the name that errors show.
    ///
    /// # Errors
    /// What it answers.
    pub async fn beside_engine<T: Send + 'static>(
        &self,
        about: &str,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, Error> {
        self.inspect(about, |_| Box::pin(work)).await
    }

    /// Runs a question to the engine where its connections live.
    async fn inspect<T: Send + 'static>(
        &self,
        about: &str,
        question: impl FnOnce(Arc<dyn Engine>) -> crate::BoxFuture<'static, Result<T, EngineError>>,
    ) -> Result<T, Error> {
        self.0.check_open()?;
        let mut question = question(Arc::clone(&self.0.engine));
        let engine = self.0.profile.engine;
        let sorted = |error: EngineError| match Name::new(about) {
            Ok(name) => Error::from_engine(error, &name, engine),
            Err(_) => Error::from_engine_alone(error, engine),
        };
        if self.0.profile.inline
            && let Some(answer) = poll_once(question.as_mut())
        {
            return answer.map_err(sorted);
        }
        self.0.ready()?;
        let (tx, rx) = tokio::sync::oneshot::channel();
        let pending = self.0.pending.one();
        self.0.give(Work::Spawn(Box::pin(async move {
            let _pending = pending;
            let answer = caught(question).await;
            let _ = tx.send(answer.unwrap_or_else(|panicked| Err(panicked.into_error())));
        })));
        match rx.await {
            Ok(answer) => answer.map_err(sorted),
            Err(_) => {
                Err(Error::new(ErrorKind::Closed, "this Locks was closed, or its keeper's runtime is gone"))
            }
        }
    }
}

impl Builder {
    /// What holds and waiters of this `Locks` are called, unless a request says otherwise; `user@host:pid` by default.
    pub fn owner(mut self, label: &str) -> Self {
        self.owner = Some(crate::Owner::new(label).label().to_owned());
        self
    }

    /// Shares the background worker of another `Locks`, or runs on a runtime of the caller's: see [`Keeper`].
    pub fn keeper(mut self, keeper: Keeper) -> Self {
        self.keeper = keeper;
        self
    }

    /// Hears of everything that happens.
    pub fn observe(mut self, observer: Arc<dyn Observe>) -> Self {
        self.observer = Observer(Some(observer));
        self
    }

    /// Another clock and randomness than the system's, for tests and simulation.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// How long an engine that was never reached is tried before requests fail; 5 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The `Locks`. Nothing is sent before the first request.
    #[must_use]
    pub fn build(self) -> Locks {
        process::watch(keeper::farewell);
        let owner = self.owner.unwrap_or_else(process::label);
        let shared = Arc::new(Shared::new(Parts {
            engine: self.engine,
            env: self.env,
            observer: self.observer,
            owner: owner.into(),
            keeper: self.keeper,
            connect_timeout: self.connect_timeout,
        }));
        keeper::register(&shared);
        Locks(Arc::new(Lifeline(shared)))
    }
}

/// A read-write lock on one name.
#[derive(Clone)]
pub struct Rw {
    life: Arc<Lifeline>,
    name: String,
}

impl Rw {
    /// Shared with other readers.
    pub fn read(&self) -> Request {
        Request::new(&self.life, Name::new(&self.name), Family::Shared)
    }

    /// Alone.
    pub fn write(&self) -> Request {
        Request::new(&self.life, Name::new(&self.name), Family::Exclusive)
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Locks({})", self.0.profile.engine)
    }
}

impl fmt::Debug for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rw({:?})", self.name)
    }
}
