//! The entry points `Locks::connect` and `Connect`: build locks from a URL and options.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use leasehold_core::{Credentials, Error, Keeper, Observe, Password, WhenUnreachable};

use crate::{
    open::{EngineHandle, open},
    url::Url,
};

/// Locks on the engine that a URL names. This type has all methods of [`leasehold_core::Locks`], and those below.
#[derive(Clone)]
pub struct Locks {
    core: leasehold_core::Locks,
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
    handle: EngineHandle,
    warning: Option<&'static str>,
}

/// Options for connecting, in addition to those in the URL.
#[derive(Default)]
#[must_use]
pub struct Connect {
    owner: Option<String>,
    keeper: Option<Keeper>,
    observer: Option<Arc<dyn Observe>>,
    pub(crate) password: Option<Password>,
    pub(crate) connect_timeout: Option<Duration>,
    when_unreachable: Option<WhenUnreachable>,
    max_waiting: Option<usize>,
    /// Options that a URL can have too.
    url_options: Vec<(&'static str, String)>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<leasehold_tls::Tls>,
}

impl Locks {
    /// Locks on the engine that `url` names:
    ///
    /// - `memory:`
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
    /// clients. This function does not connect to a server; the first request does.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the URL is malformed, its scheme or an option is unknown, or
    /// its engine is not compiled in; the error of the file engine if the directory cannot be used. No error shows a
    /// password.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Connect::default().connect(url)
    }

    /// What often does harm in the URL, although it is allowed; `None` for most URLs. Connecting also writes this text
    /// to the log.
    #[must_use]
    pub const fn warning(&self) -> Option<&'static str> {
        self.warning
    }

    /// Duplicates the descriptor by which a hold of the file engine locks its lock file. The lock stays held as long as
    /// the duplicate, or a copy of the duplicate in a child process, is open. `None` if the hold does not exist any
    /// more, and on other engines.
    ///
    /// # Errors
    /// An error of the operating system: it has no descriptor left.
    #[cfg(all(feature = "file", target_os = "linux"))]
    pub fn descriptor(&self, guard: &leasehold_core::Guard) -> std::io::Result<Option<std::os::fd::OwnedFd>> {
        match &self.handle {
            EngineHandle::File(file) => file.descriptor(guard.id()),
            _ => Ok(None),
        }
    }

    /// The fence of `resource` on the Redis that has these locks. `resource` is any text on which all holders agree.
    /// `None` on other engines.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn redis_fence(&self, resource: &str) -> Option<crate::RedisFence> {
        let EngineHandle::Redis(redis) = &self.handle else { return None };
        let fence = leasehold_redis::Fence::new(Arc::clone(redis), resource);
        Some(crate::RedisFence { locks: self.core.clone(), fence, resource: resource.to_owned() })
    }

    /// The fence of `resource` on the etcd that has these locks. `resource` is any text on which all holders agree.
    /// `None` on other engines.
    #[cfg(feature = "etcd")]
    #[must_use]
    pub fn etcd_fence(&self, resource: &str) -> Option<crate::EtcdFence> {
        let EngineHandle::Etcd(etcd) = &self.handle else { return None };
        let fence = leasehold_etcd::Fence::new(etcd, resource);
        Some(crate::EtcdFence { locks: self.core.clone(), fence, resource: resource.to_owned() })
    }

    /// The condition that this hold still exists, for a transaction of any etcd client. `None` if the hold does not
    /// exist, and on other engines.
    #[cfg(feature = "etcd")]
    #[must_use]
    pub fn etcd_compare(&self, guard: &leasehold_core::Guard) -> Option<leasehold_etcd::HeldBy> {
        let EngineHandle::Etcd(etcd) = &self.handle else { return None };
        etcd.held_by(guard.id())
    }

    /// The statements that create the tables of these locks, for users who create the tables themselves. `None` on
    /// engines without tables.
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
    #[must_use]
    pub fn sql_schema(&self) -> Option<&'static str> {
        let EngineHandle::Sql { schema } = self.handle else { return None };
        Some(schema)
    }

    /// The check that this hold still exists, for a `multi` of any ZooKeeper client. `None` if the hold does not exist,
    /// and on other engines.
    #[cfg(feature = "zookeeper")]
    #[must_use]
    pub fn zookeeper_check(&self, guard: &leasehold_core::Guard) -> Option<leasehold_zookeeper::HeldBy> {
        let EngineHandle::Zookeeper(zookeeper) = &self.handle else { return None };
        zookeeper.held_by(guard.id())
    }
}

impl Connect {
    /// The owner text of holds and waiters, unless a request sets another one. By default it is `user@host:pid`.
    pub fn owner(mut self, label: &str) -> Self {
        self.owner = Some(label.to_owned());
        self
    }

    /// The keeper (background worker). Several `Locks` can share one keeper. By default, the keeper is a separate
    /// thread.
    pub fn keeper(mut self, keeper: Keeper) -> Self {
        self.keeper = Some(keeper);
        self
    }

    /// Sends every event to this observer.
    pub fn observe(mut self, observer: Arc<dyn Observe>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The password of the user in the URL, if the URL itself has no password. The password is read each time a
    /// connection is made, so it can change while locks are held. An engine without a server refuses a password.
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
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.url_options.push(("max_connections", connections.to_string()));
        self
    }

    /// The schema of the tables on PostgreSQL, or the database of the tables on MySQL, used if the URL has no option
    /// `schema`. Other engines refuse it.
    pub fn schema(mut self, schema: &str) -> Self {
        self.url_options.push(("schema", schema.to_owned()));
        self
    }

    /// What stands before each name in the keys or tables of the engine, used if the URL has no option `prefix`. What
    /// the prefix of an engine means, and its default, is on the page of the engine. The memory and file engines refuse
    /// it, and so do the tables of other programs, except those of Laravel.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.url_options.push(("prefix", prefix.to_owned()));
        self
    }

    /// The time limit for connecting, used if the URL has no option `connect_timeout`. Until the server is reached for
    /// the first time, attempts to connect are repeated for this long. The default is 5 s; zero means the default. One
    /// attempt takes at most 3 s, or 1.5 s if there are several servers. A request that needs a connection and gets
    /// none in this time fails with [`is_unreachable`](Error::is_unreachable). An open connection is not affected: a
    /// slow server is not given up.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// What requests do while the engine cannot be reached; by default they wait. The URL option `when_unreachable`
    /// says the same (`wait` or `fail`); if the two differ, connecting is refused.
    pub fn when_unreachable(mut self, what: WhenUnreachable) -> Self {
        self.when_unreachable = Some(what);
        self
    }

    /// How many requests may wait at the same time, for all names together, used if the URL has no option
    /// `max_waiting`. One more request is refused at once with [`is_busy`](Error::is_busy). By default any number may
    /// wait. See also [`Request::max_waiting`](leasehold_core::Request::max_waiting).
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = Some(requests);
        self
    }

    /// The TLS configuration of the encrypted connections of a URL, such as `rediss`, `etcds`, `zookeepers` or
    /// `postgres`. It replaces the URL's options for files (`ca`, `cert`, `key` and the like). Connecting is refused if
    /// the URL has one of these options too, or if its connections are not encrypted.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: leasehold_tls::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Locks on the engine that `url` names, as [`Locks::connect`] makes them, with these options.
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
        let mut builder = leasehold_core::Locks::builder(opened.engine);
        if let Some(owner) = &self.owner {
            builder = builder.owner(owner);
        }
        if let Some(keeper) = self.keeper {
            builder = builder.keeper(keeper);
        }
        if let Some(observer) = self.observer {
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
        if let Some(warning) = warning {
            tracing::warn!(engine = url.scheme, "{warning}");
        }
        Ok(Locks { core: builder.build(), handle: opened.handle, warning })
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

impl Deref for Locks {
    type Target = leasehold_core::Locks;

    fn deref(&self) -> &Self::Target {
        &self.core
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.core, f)
    }
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
