//! `Connect`: builds locks from a URL and options.

use std::{fmt, sync::Arc, time::Duration};

use leasehold_core::{Credentials, Engine, Error, Keeper, Observe, Password, WhenUnreachable};

use crate::{Locks, open::open, url::Url};

/// Options for connecting, in addition to those in the URL.
#[derive(Default)]
#[must_use]
pub struct Connect {
    owner: Option<String>,
    keeper: Option<Keeper>,
    observers: Vec<Arc<dyn Observe>>,
    pub(crate) password: Option<Password>,
    pub(crate) connect_timeout: Option<Duration>,
    when_unreachable: Option<WhenUnreachable>,
    max_waiting: Option<usize>,
    /// Options that a URL can have too.
    url_options: Vec<(&'static str, String)>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<leasehold_tls::Tls>,
}

impl Connect {
    /// The owner text of holds and waiters, unless a request sets another one. By default it is `user@host:pid`.
    ///
    /// ```
    /// use leasehold::Connect;
    /// let locks = Connect::default().owner("shop, node 3").connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// assert_eq!(locks.show_blocking("order/17")?.holders[0].owner, "shop, node 3");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn owner(mut self, label: &str) -> Self {
        self.owner = Some(label.to_owned());
        self
    }

    /// The keeper (background worker). Several `Locks` can share one keeper. By default, the keeper is a separate
    /// thread.
    ///
    /// ```
    /// use leasehold::{Connect, Keeper};
    /// let keeper = Keeper::thread();
    /// let orders = Connect::default().keeper(keeper.clone()).connect("memory:orders")?;
    /// let stock = Connect::default().keeper(keeper).connect("memory:stock")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn keeper(mut self, keeper: Keeper) -> Self {
        self.keeper = Some(keeper);
        self
    }

    /// Sends every [`Event`](crate::Event) to this observer. There can be several observers.
    ///
    /// ```
    /// use leasehold::{Connect, Event, Observe};
    /// use std::sync::Arc;
    ///
    /// struct Losses;
    ///
    /// impl Observe for Losses {
    ///     fn event(&self, event: &Event<'_>) {
    ///         if let Event::Lost { name, loss, .. } = event {
    ///             eprintln!("{name:?} was lost: {loss}");
    ///         }
    ///     }
    /// }
    ///
    /// let locks = Connect::default().observe(Arc::new(Losses)).connect("memory:")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn observe(mut self, observer: Arc<dyn Observe>) -> Self {
        self.observers.push(observer);
        self
    }

    /// The password of the user in the URL, if the URL itself has no password. The password is read each time a
    /// connection is made, so it can change while locks are held. An engine without a server refuses a password.
    ///
    /// ```
    /// use leasehold::{Connect, Password};
    /// # fn connect() -> Result<(), leasehold::Error> {
    /// let password = Password::file("/run/secrets/redis");
    /// let locks = Connect::default().password(password).connect("redis://app@redis.example")?;
    /// # Ok(())
    /// # }
    /// // The memory engine has no users.
    /// assert!(Connect::default().password(Password::file("x")).connect("memory:").is_err());
    /// ```
    pub fn password(mut self, password: impl Into<Password>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The user and the password, which this function returns each time a connection is made: for instance short-lived
    /// tokens of a cloud, or users that Vault creates. The user replaces the user of the URL, which has no password.
    /// Holds stay held when user or password change; only connections that are made later log in with them. For
    /// PostgreSQL, MySQL and Redis; other engines refuse it.
    ///
    /// The function runs on the keeper's runtime and must not block. Its error counts as an outage that may pass, and
    /// must not contain the password. The same as `password(Password::credentials(function))`.
    ///
    /// ```no_run
    /// # async fn token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # fn main() -> Result<(), leasehold::Error> {
    /// let locks = leasehold::Connect::default()
    ///     .credentials(|| async { Ok::<_, std::io::Error>(leasehold::Credentials::new("app", token().await?)) })
    ///     .connect("postgres://db.example/app?sslmode=verify-full");
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, E>(self, function: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.password(Password::credentials(function))
    }

    /// The largest number of connections that these locks have to the server, used if the URL has no option
    /// `max_connections`. For PostgreSQL (at least 3) and MySQL (at least 2); other engines refuse it: they have one or
    /// two connections to each server.
    ///
    /// ```
    /// use leasehold::Connect;
    /// let options = Connect::default().max_connections(4);
    /// # fn connect(options: Connect) -> Result<(), leasehold::Error> {
    /// let locks = options.connect("postgres://db.example/app")?;
    /// # Ok(())
    /// # }
    /// # assert!(options.connect("memory:").is_err());
    /// ```
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.url_options.push(("max_connections", connections.to_string()));
        self
    }

    /// The schema of the tables on PostgreSQL, or the database of the tables on MySQL, used if the URL has no option
    /// `schema`. Other engines refuse it.
    ///
    /// ```
    /// use leasehold::Connect;
    /// let options = Connect::default().schema("locks");
    /// # fn connect(options: Connect) -> Result<(), leasehold::Error> {
    /// let locks = options.connect("postgres://db.example/app")?;
    /// # Ok(())
    /// # }
    /// # assert!(options.connect("memory:").is_err());
    /// ```
    pub fn schema(mut self, schema: &str) -> Self {
        self.url_options.push(("schema", schema.to_owned()));
        self
    }

    /// What stands before each name in the keys or tables of the engine, used if the URL has no option `prefix`. What
    /// the prefix of an engine means, and its default, is on the page of the engine. The memory and file engines refuse
    /// it, and so do the tables of other programs, except those of Laravel.
    ///
    /// ```
    /// use leasehold::Connect;
    /// let options = Connect::default().prefix("shop:");
    /// # fn connect(options: Connect) -> Result<(), leasehold::Error> {
    /// let locks = options.connect("redis://redis.example")?;
    /// # Ok(())
    /// # }
    /// # assert!(options.connect("memory:").is_err());
    /// ```
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.url_options.push(("prefix", prefix.to_owned()));
        self
    }

    /// The time limit for connecting, used if the URL has no option `connect_timeout`. Until the server is reached for
    /// the first time, attempts to connect are repeated for this long. The default is 5 s; zero means the default. One
    /// attempt takes at most 3 s, or 1.5 s if there are several servers. A request that needs a connection and gets
    /// none in this time fails with [`is_unreachable`](Error::is_unreachable). An open connection is not affected: a
    /// slow server is not given up.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::Connect;
    /// let locks = Connect::default().connect_timeout(Duration::from_secs(2)).connect("memory:")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// What requests do while the engine cannot be reached; by default they wait. The URL option `when_unreachable`
    /// says the same (`wait` or `fail`); if the two differ, connecting is refused.
    ///
    /// ```
    /// use leasehold::{Connect, WhenUnreachable};
    /// let locks = Connect::default().when_unreachable(WhenUnreachable::Fail).connect("memory:")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn when_unreachable(mut self, what: WhenUnreachable) -> Self {
        self.when_unreachable = Some(what);
        self
    }

    /// How many requests may wait at the same time, for all names together, used if the URL has no option
    /// `max_waiting`. One more request is refused at once with [`is_busy`](Error::is_busy). By default any number may
    /// wait. See also [`Request::max_waiting`](crate::Request::max_waiting).
    ///
    /// ```
    /// use leasehold::Connect;
    /// let locks = Connect::default().max_waiting(1000).connect("memory:")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = Some(requests);
        self
    }

    /// The TLS configuration of the encrypted connections of a URL, such as `rediss`, `etcds`, `zookeepers` or
    /// `postgres`. It replaces the URL's options for files (`ca`, `cert`, `key` and the like). Connecting is refused if
    /// the URL has one of these options too, or if its connections are not encrypted.
    ///
    /// ```
    /// use leasehold::{Connect, Tls};
    /// let options = Connect::default().tls(Tls::system());
    /// # fn connect(options: Connect) -> Result<(), leasehold::Error> {
    /// let locks = options.connect("rediss://redis.example")?;
    /// # Ok(())
    /// # }
    /// # assert!(options.connect("memory:").is_err());
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: leasehold_tls::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Locks on the engine that `url` names, as [`Locks::connect`] makes them, with these options.
    ///
    /// ```
    /// use leasehold::Connect;
    /// let locks = Connect::default().owner("shop, node 3").connect("memory:")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Locks::connect`], and [`is_misconfigured`](Error::is_misconfigured) if an option cannot be combined
    /// with the URL or its engine.
    pub fn connect(self, url: &str) -> Result<Locks, Error> {
        self.connect_url(Url::parse(url)?)
    }

    /// Locks on the engine of this URL.
    pub(crate) fn connect_url(mut self, mut url: Url) -> Result<Locks, Error> {
        for (key, value) in &self.url_options {
            url.add_default(key, value);
        }
        let warning = prefix_of_another_layout(&url);
        self.connect_timeout = url.take_duration("connect_timeout")?.or(self.connect_timeout);
        // Zero means that the default counts, as in the clients of databases.
        self.connect_timeout.take_if(|timeout| timeout.is_zero());
        let of_url = take_when_unreachable(&mut url)?;
        if of_url.is_some() && self.when_unreachable.is_some() && of_url != self.when_unreachable {
            return Err(Error::misconfigured(
                "the URL option when_unreachable says another thing than the program: leave one of them out",
            ));
        }
        self.when_unreachable = of_url.or(self.when_unreachable);
        self.max_waiting = take_max_waiting(&mut url)?.or(self.max_waiting);
        if self.max_waiting == Some(0) {
            return Err(Error::misconfigured("max_waiting is zero: no request could wait"));
        }
        #[cfg(feature = "tls")]
        crate::tls::check_is_encrypted(&url, &self)?;
        if self.password.is_some() && ["memory", "file", "sqlite"].contains(&url.scheme.as_str()) {
            let scheme = &url.scheme;
            return Err(Error::misconfigured(format!(
                "Connect::password is given, but {scheme} URLs have none"
            )));
        }
        let opened = open(&mut url, &self)?;
        if let Some(warning) = warning {
            tracing::warn!(engine = url.scheme, "{warning}");
        }
        Ok(Locks::new(self.builder(opened.engine).build(), opened.handle, warning))
    }

    /// The name of an option that only an engine with a URL has, if one is set.
    pub(crate) fn option_of_url(&self) -> Option<&'static str> {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return Some("tls");
        }
        match (&self.password, self.url_options.first()) {
            (Some(_), _) => Some("password"),
            (None, Some((option, _))) => Some(option),
            (None, None) => None,
        }
    }

    /// These options, with an owner text if they have none.
    #[cfg(feature = "test")]
    pub(crate) fn owner_unless_set(mut self, label: &str) -> Self {
        self.owner.get_or_insert_with(|| label.to_owned());
        self
    }

    /// Builds locks on `engine` with these options, without those that only an engine with a URL has.
    pub(crate) fn builder(self, engine: Arc<dyn Engine>) -> leasehold_core::Builder {
        let mut builder = leasehold_core::Locks::builder(engine);
        if let Some(owner) = &self.owner {
            builder = builder.owner(owner);
        }
        if let Some(keeper) = self.keeper {
            builder = builder.keeper(keeper);
        }
        for observer in self.observers {
            builder = builder.observe(observer);
        }
        if let Some(timeout) = self.connect_timeout {
            builder = builder.connect_timeout(timeout);
        }
        if let Some(what) = self.when_unreachable {
            builder = builder.when_unreachable(what);
        }
        if let Some(requests) = self.max_waiting {
            builder = builder.max_waiting(requests);
        }
        builder
    }
}

/// A warning if the keys of this URL lie where another layout of the same engine has its keys.
fn prefix_of_another_layout(url: &Url) -> Option<&'static str> {
    match (url.value("layout")?, url.value("prefix")?) {
        ("redisson", "lock:") if url.scheme.starts_with("redis") => Some(
            "prefix=lock: is the prefix of locks that are plain strings: with layout=redisson on it, programs of the two \
             layouts get errors instead of waiting for each other",
        ),
        ("key", "/locks" | "/locks/") if url.scheme.starts_with("etcd") => Some(
            "prefix=/locks is the prefix of the default layout: with layout=key on it, programs of the two layouts exclude \
             each other only in part",
        ),
        _ => None,
    }
}

/// The URL option `when_unreachable`.
fn take_when_unreachable(url: &mut Url) -> Result<Option<WhenUnreachable>, Error> {
    url.take_parsed("when_unreachable", "wait or fail", |value| match value {
        "wait" => Some(WhenUnreachable::Wait),
        "fail" => Some(WhenUnreachable::Fail),
        _ => None,
    })
}

/// The URL option `max_waiting`.
fn take_max_waiting(url: &mut Url) -> Result<Option<usize>, Error> {
    url.take_parsed("max_waiting", "a number of requests, at least 1", |value| value.parse().ok())
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("owner", &self.owner).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use super::*;

    #[test]
    fn wrong_values_of_the_options_of_all_engines_are_named() {
        for (url, reason) in [
            ("memory:?max_waiting=0", "max_waiting is zero"),
            (
                "memory:?max_waiting=-1",
                "the URL option max_waiting is wrong: it must be a number of requests",
            ),
            ("memory:?max_waiting=", "the URL option max_waiting is wrong"),
            (
                "memory:?when_unreachable=later",
                "the URL option when_unreachable is wrong: it must be wait or fail",
            ),
        ] {
            let error = Locks::connect(url).unwrap_err();
            assert!(error.is_misconfigured() && error.to_string().contains(reason), "{url}: {error}");
        }
        let options = Connect::default().when_unreachable(WhenUnreachable::Fail);
        let error = options.connect("memory:?when_unreachable=wait").unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("leave one of them out"), "{error}");
        assert!(Connect::default().max_waiting(0).connect("memory:").unwrap_err().is_misconfigured());
    }

    #[test]
    fn a_prefix_of_another_layout_is_warned_about() {
        for (url, is_warned) in [
            ("redis://h?layout=redisson&prefix=lock:", true),
            ("redis+cluster://h?layout=redisson&prefix=lock%3A", true),
            ("redis://h?layout=redisson&prefix=mine:", false),
            ("redis://h?layout=redisson", false),
            ("redis://h?prefix=lock:", false),
            ("etcd://h?layout=key&prefix=/locks", true),
            ("etcd://h?layout=key&prefix=/lock/", false),
            ("etcd://h?prefix=/locks", false),
        ] {
            assert_eq!(prefix_of_another_layout(&Url::parse(url).unwrap()).is_some(), is_warned, "{url}");
        }
    }

    #[test]
    fn the_url_limits_the_waiting_requests() {
        let locks =
            Connect::default().max_waiting(9).connect("memory:?max_waiting=1&when_unreachable=wait").unwrap();
        let _guard = locks.mutex("a").blocking().acquire().unwrap();
        let mut waiting = Box::pin(locks.mutex("a").acquire());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        assert!(locks.mutex("b").blocking().acquire().unwrap_err().is_busy());
    }
}
