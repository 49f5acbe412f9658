//! `Locks`: the locks of one engine. A method that belongs to one subject is in the file of that subject, in an `impl`
//! block of its own, and passes on to `self.core`: `inspect.rs` has the methods for operators and health checks, and
//! the file of an engine has the methods that only this engine has.

use std::{fmt, time::Duration};

use leasehold_core::{
    All, Due, Election, Error, Latch, Once, Profile, Request, Rw, Schedule, Striped, TickRequest, Timetable,
};

use crate::{connect::Connect, open::EngineHandle};

/// The locks of one engine. [`connect`](Self::connect) makes them from a URL, [`Connect`] from a URL and options.
///
/// Cheap to clone. All clones share one queue of requests for each name, and one background worker, which renews and
/// releases: the [keeper](crate::Keeper). Make one `Locks` for each engine at the start of the program, and pass
/// clones of it to tasks and threads.
///
/// ```
/// # fn main() -> Result<(), leasehold::Error> {
/// # pollster::block_on(async {
/// let locks = leasehold::Locks::connect("memory:")?;
/// let guard = locks.mutex("order/17").acquire().await?;
/// assert!(guard.check());
/// guard.release().await
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct Locks {
    pub(crate) core: leasehold_core::Locks,
    #[cfg_attr(
        not(any(
            all(feature = "file", target_os = "linux"),
            feature = "redis",
            feature = "etcd",
            feature = "zookeeper",
            feature = "postgres",
            feature = "mysql",
            feature = "sqlite"
        )),
        expect(dead_code, reason = "no engine has more than the verbs")
    )]
    /// The engine itself, for methods that only some engines have.
    pub(crate) handle: EngineHandle,
    warning: Option<&'static str>,
}

impl Locks {
    /// Locks on the engine that `url` names:
    ///
    /// - `memory:`, or `memory:name` for one of several that do not see each other: in this process only, for tests
    /// - `file:` (the default directory), `file:///dir` or `file:/dir`
    /// - `redis://[user:password@]host[:port][/db]`, `rediss://` (encrypted) or `redis+unix:///path/to/socket`
    /// - `redis+sentinel://[user:password@]sentinel[:port],sentinel[:port].../master[/db]` or `rediss+sentinel://`
    ///   (encrypted)
    /// - `redis+cluster://[user:password@]node[:port],node[:port]...` or `rediss+cluster://` (encrypted)
    /// - `redlock://[user:password@]node[:port][/db],node...`: an odd number of independent masters, encrypted for
    ///   each node with the prefix `rediss://`
    /// - `etcd://[user:password@]host[:port],host[:port]...` or `etcds://` (encrypted)
    /// - `zookeeper://[user:password@]host[:port],host[:port].../chroot` or `zookeepers://` (encrypted)
    /// - `postgres://[user:password@]host[:port],host[:port].../database`
    /// - `mysql://[user[:password]@]host[:port]/database`
    /// - `sqlite:///path/to/file.db` or `sqlite:file.db`
    ///
    /// Each URL can have options in its query. The options of databases have the same meaning as in the databases' own
    /// clients.
    ///
    /// This function checks the URL and its options. It contacts no server, creates no file,
    /// starts no thread and does not wait: a server that cannot be reached is an error of the first request, and an
    /// engine that is a server may be started later than the program. To know at the start of the program whether the
    /// server can be reached and accepts the login, call [`ping`](Self::ping) or [`warm`](Self::warm).
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// let locks = leasehold::Locks::connect("memory:")?;
    /// locks.ping_blocking()?;
    ///
    /// let refused = leasehold::Locks::connect("memory:?colour=blue").unwrap_err();
    /// assert!(refused.is_misconfigured());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the URL is malformed, its scheme or an option is unknown, or
    /// its engine is not compiled in. No error shows a password.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Connect::default().connect(url)
    }

    pub(crate) const fn new(
        core: leasehold_core::Locks,
        handle: EngineHandle,
        warning: Option<&'static str>,
    ) -> Self {
        Self { core, handle, warning }
    }

    /// What often does harm in the URL, although it is allowed; `None` for most URLs. Connecting also writes this text
    /// to the log.
    ///
    /// ```
    /// assert_eq!(leasehold::Locks::connect("memory:")?.warning(), None);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub const fn warning(&self) -> Option<&'static str> {
        self.warning
    }

    /// A lock that excludes every other holder of `name`: 1 to [`MAX_NAME_BYTES`](crate::MAX_NAME_BYTES) bytes of UTF-8
    /// without control characters. An invalid name is an error of the request.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let stock = locks.mutex("stock/4711").blocking();
    /// let guard = stock.acquire()?;
    /// assert!(stock.try_acquire().unwrap_err().is_taken());
    /// guard.release_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn mutex(&self, name: impl AsRef<str>) -> Request {
        self.core.mutex(name)
    }

    /// A lock that readers share and a writer holds alone. Writers are never starved: readers that come after a waiting
    /// writer wait behind it. [`mutex`](Self::mutex) and `rw(name).write()` of one name are the same lock.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let prices = locks.rw("prices");
    /// let readers = [prices.read().blocking().acquire()?, prices.read().blocking().acquire()?];
    /// assert!(prices.write().blocking().try_acquire().unwrap_err().is_taken());
    /// drop(readers);
    /// prices.write().blocking().acquire()?.release_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn rw(&self, name: impl AsRef<str>) -> Rw {
        self.core.rw(name)
    }

    /// A semaphore of `limit` permits. All requests for one name must give the same limit.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let uploads = locks.semaphore("uploads", 3);
    /// let one = uploads.blocking().acquire()?;
    /// let two = uploads.clone().permits(2).blocking().acquire()?;
    /// assert!(uploads.blocking().try_acquire().unwrap_err().is_taken());
    /// # drop((one, two));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Request {
        self.core.semaphore(name, limit)
    }

    /// Locks for any number of keys on `stripes` names: [`Striped`] says how a key is mapped to its name, and which two
    /// rules its users follow.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let accounts = locks.striped("account", 1024);
    /// let guard = accounts.for_key(17).blocking().acquire()?;
    /// assert_eq!(guard.name().as_str(), "account~1024/2");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn striped(&self, base: impl AsRef<str>, stripes: u32) -> Striped {
        self.core.striped(base, stripes)
    }

    /// Several names, acquired all or none: add the names to the request that this returns. See [`All`].
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guards = locks.all().mutex("order/17").read("prices").blocking().acquire()?;
    /// assert!(guards.check());
    /// guards.release_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn all(&self) -> All {
        self.core.all()
    }

    /// The leader election of `name`: one leader at a time, with a term and a value that everyone can observe. See
    /// [`Election`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:locks-election")?;
    /// let leading = locks.election("scheduler").value("10.0.0.7:8080").campaign().await?;
    /// let leader = locks.election("scheduler").leader().await?.expect("there is one");
    /// assert_eq!((leader.value.as_deref(), leader.term), (Some("10.0.0.7:8080"), leading.term()));
    /// leading.resign().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        self.core.election(name)
    }

    /// Work that is done one time for `key`: repeats receive its stored result. See [`Once`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:locks-once")?;
    /// # async fn charge(order: u32, token: leasehold::Token) -> Result<String, std::io::Error> { Ok("paid".into()) }
    /// let order = locks.once("order-17");
    /// let first = order.run(async |guard| charge(17, guard.token()).await).await?;
    /// let repeat = order.run(async |guard| charge(17, guard.token()).await).await?;
    /// assert!(repeat.is_replayed() && repeat.bytes() == first.bytes());
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn once(&self, key: impl AsRef<str>) -> Once {
        self.core.once(key)
    }

    /// Work that runs one time for each tick of a timetable, in one of all the processes that have this schedule: see
    /// [`Schedule`]. The timetable is [`Every`](crate::Every), `Cron` (with the feature `cron`), or one of the program.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:locks-schedule")?;
    /// # async fn make_report(token: leasehold::Token) -> Result<(), std::io::Error> { Ok(()) }
    /// use leasehold::Every;
    /// let hourly = Every::new(std::time::Duration::from_secs(3600));
    /// let stop = async { /* for instance until SIGTERM */ };
    /// locks.schedule("report", hourly).run_until(stop, async |tick| make_report(tick.token()).await).await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    pub fn schedule(&self, name: impl AsRef<str>, timetable: impl Timetable) -> Schedule {
        self.core.schedule(name, timetable)
    }

    /// One tick of the work `name`, for programs that are started by a timer of their own: it runs for each due time
    /// one time in all processes. See [`TickRequest`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:locks-tick")?;
    /// use leasehold::{Due, Ticked};
    /// let tick = locks.tick("report", Due::from_unix_secs(1_767_225_600));
    /// assert_eq!(tick.run(async |_| Ok::<_, std::io::Error>(())).await.unwrap(), Ticked::Ran);
    /// assert_eq!(tick.run(async |_| Ok::<_, std::io::Error>(())).await.unwrap(), Ticked::Done);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    pub fn tick(&self, name: impl AsRef<str>, due: impl Into<Due>) -> TickRequest {
        self.core.tick(name, due)
    }

    /// A latch that opens when `count` parties have counted down, and stays open. See [`Latch`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:locks-latch")?;
    /// let import = locks.latch("import", 2);
    /// import.count_down("shard-a").await?;
    /// import.count_down("shard-b").await?;
    /// import.wait().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Latch {
        self.core.latch(name, count)
    }

    /// The properties of the engine: for instance whether its queue is first come, first served, and which ttls it
    /// accepts.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// assert_eq!(locks.profile().engine, "memory");
    /// assert!(locks.profile().ttl.contains(&Duration::from_secs(30)));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.core.profile()
    }

    /// Prepares for the first request with this ttl, so that it costs no more than a later one: connects, and makes
    /// what the engine needs once, such as scripts, tables, a session or a lease. For this it acquires and releases the
    /// name `leasehold-warm` twice, without waiting for it. Returns how long that took.
    ///
    /// ```
    /// use std::time::Duration;
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let took = locks.warm(Duration::from_secs(30)).await?;
    /// println!("the engine was ready after {took:?}");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Request::try_acquire`], except `is_taken`; [`is_denied`](Error::is_denied), for example, if the user
    /// has no rights on the name.
    ///
    /// # Cancel safety
    /// As [`Request::acquire`].
    pub async fn warm(&self, ttl: Duration) -> Result<Duration, Error> {
        self.core.warm(ttl).await
    }

    /// [`warm`](Self::warm) for code without an executor: blocks the thread.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// locks.warm_blocking(std::time::Duration::from_secs(30))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`warm`](Self::warm).
    #[track_caller]
    pub fn warm_blocking(&self, ttl: Duration) -> Result<Duration, Error> {
        self.core.warm_blocking(ttl)
    }

    /// Ends all waits with an error, refuses new requests, and waits, for at most `limit`, until all guards are dropped
    /// and their releases answered. Holds that remain after `limit` are reported lost. Returns the number of these
    /// holds. For the end of a program, after its tasks were told to stop.
    ///
    /// ```
    /// use std::time::Duration;
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").acquire().await?;
    /// drop(guard);
    /// assert_eq!(locks.close(Duration::from_secs(10)).await, 0, "every guard was dropped in time");
    /// assert!(locks.mutex("order/18").acquire().await.unwrap_err().is_closed());
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// New requests stay refused if the future is dropped; the rest of the work goes on in the background.
    pub async fn close(&self, limit: Duration) -> usize {
        self.core.close(limit).await
    }

    /// [`close`](Self::close) for code without an executor: blocks the thread for at most `limit`.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// assert_eq!(locks.close_blocking(std::time::Duration::from_secs(10)), 0);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Panics
    /// Where the call could never end, also where other blocking calls return an error then: see
    /// [`Blocking`](crate::Blocking#calls-that-could-never-end). The `Locks` is closed all the same.
    #[track_caller]
    pub fn close_blocking(&self, limit: Duration) -> usize {
        self.core.close_blocking(limit)
    }

    /// The locks without the methods of this crate, for the tests and bindings of this project.
    #[doc(hidden)]
    #[must_use]
    pub const fn core(&self) -> &leasehold_core::Locks {
        &self.core
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.core, f)
    }
}
