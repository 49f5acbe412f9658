//! From a URL to an engine.

use std::{fmt, ops::Deref, sync::Arc};

use leasehold_core::{Engine, Error, Keeper, Observe};

use crate::url::Url;

/// The schemes of URLs whose connections are encrypted.
#[cfg(all(feature = "redis", feature = "tls"))]
const ENCRYPTED: [&str; 1] = ["rediss"];

/// Locks on the engine that a URL names. Everything else is a method of [`leasehold_core::Locks`].
#[derive(Clone)]
pub struct Locks {
    core: leasehold_core::Locks,
    #[cfg(feature = "file")]
    file: Option<Arc<leasehold_core::file::FileEngine>>,
    #[cfg(feature = "redis")]
    redis: Option<Arc<leasehold_redis::RedisEngine>>,
}

/// How to connect, beside the URL.
#[derive(Default)]
#[must_use]
pub struct Connect {
    owner: Option<String>,
    keeper: Option<Keeper>,
    observer: Option<Arc<dyn Observe>>,
    #[cfg(all(feature = "redis", feature = "tls"))]
    tls: Option<leasehold_tls::Tls>,
}

/// An engine made from a URL.
struct Opened {
    engine: Arc<dyn Engine>,
    #[cfg(feature = "file")]
    file: Option<Arc<leasehold_core::file::FileEngine>>,
    #[cfg(feature = "redis")]
    redis: Option<Arc<leasehold_redis::RedisEngine>>,
}

impl Locks {
    /// Locks on the engine that `url` names: `memory:`, `file:` (the default directory), `file:///dir`,
    /// `redis://[user:password@]host[:port][/db]`, `rediss://` (encrypted) or `redis+unix:///path/to/socket`, each with options in its query.
    /// Engines with a server are contacted at the first request, not here.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for a URL that is malformed, unknown or not compiled in;
    /// the file engine's for a directory that cannot be used. No error shows a password.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Connect::default().connect(url)
    }

    /// A duplicate of the descriptor under a hold of the file engine, which keeps the lock held as long as it, or a copy
    /// of it in a child process, is open. `None` on other engines.
    ///
    /// # Errors
    /// The operating system's, when it has no descriptor left.
    #[cfg(feature = "file")]
    pub fn descriptor(&self, guard: &leasehold_core::Guard) -> std::io::Result<Option<std::os::fd::OwnedFd>> {
        self.file.as_ref().map_or(Ok(None), |file| file.descriptor(guard.id()))
    }

    /// The fence around `resource`, any text that all holders agree on, on the Redis that holds these locks. `None` on other
    /// engines.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn redis_fence(&self, resource: &str) -> Option<crate::RedisFence> {
        let fence = leasehold_redis::Fence::new(Arc::clone(self.redis.as_ref()?), resource);
        Some(crate::RedisFence { locks: self.core.clone(), fence, resource: resource.to_owned() })
    }
}

impl Connect {
    /// What holds and waiters are called, unless a request says otherwise; `user@host:pid` by default.
    pub fn owner(mut self, label: &str) -> Self {
        self.owner = Some(label.to_owned());
        self
    }

    /// The background worker, which several `Locks` may share; a thread of its own by default.
    pub fn keeper(mut self, keeper: Keeper) -> Self {
        self.keeper = Some(keeper);
        self
    }

    /// Hears of everything that happens.
    pub fn observe(mut self, observer: Arc<dyn Observe>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// How to encrypt the connection of a `rediss` URL, in place of its options `ca`, `cert` and `key`. With one of these, or
    /// another URL, connecting is refused.
    #[cfg(all(feature = "redis", feature = "tls"))]
    pub fn tls(mut self, tls: leasehold_tls::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// See [`Locks::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(self, url: &str) -> Result<Locks, Error> {
        let mut url = Url::parse(url)?;
        let connect_timeout = url.take_duration("connect_timeout")?;
        #[cfg(all(feature = "redis", feature = "tls"))]
        if self.tls.is_some() && !ENCRYPTED.contains(&url.scheme.as_str()) {
            let (scheme, encrypted) = (&url.scheme, ENCRYPTED.join(" or "));
            return Err(Error::misconfigured(format!(
                "Connect::tls is given, but {scheme} URLs are not encrypted: write {encrypted}, or leave it out"
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
        if let Some(timeout) = connect_timeout {
            builder = builder.connect_timeout(timeout);
        }
        Ok(Locks {
            core: builder.build(),
            #[cfg(feature = "file")]
            file: opened.file,
            #[cfg(feature = "redis")]
            redis: opened.redis,
        })
    }
}

/// Each takes its options and refuses what is left, before anything is made.
fn open(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    match url.scheme.as_str() {
        "memory" => open_memory(url),
        "file" => open_file(url),
        "redis" | "rediss" | "redis+unix" => open_redis(url, connect),
        // The scheme is shown, never more: the rest may hold a password.
        other => Err(Error::misconfigured(format!(
            "the URL scheme {other:?} is unknown: memory, file, redis, rediss and redis+unix are known"
        ))),
    }
}

#[cfg(feature = "memory")]
fn open_memory(url: &Url) -> Result<Opened, Error> {
    use leasehold_core::memory::{MemoryEngine, MemoryStore};
    url.no_more()?;
    let name = crate::url::decode(&url.rest)?;
    let store = MemoryStore::named(&name, &leasehold_core::Env::system());
    Ok(Opened::from(Arc::new(MemoryEngine::new(store)) as Arc<dyn Engine>))
}

#[cfg(not(feature = "memory"))]
fn open_memory(_: &Url) -> Result<Opened, Error> {
    Err(not_compiled_in("memory"))
}

#[cfg(feature = "file")]
fn open_file(url: &Url) -> Result<Opened, Error> {
    url.no_more()?;
    let rest = crate::url::decode(&url.rest)?;
    let dir = match rest.as_str() {
        "" => None,
        path => match path.strip_prefix("//") {
            Some(absolute) if absolute.starts_with('/') => Some(absolute.into()),
            _ => {
                return Err(Error::misconfigured(
                    "a file URL is file: or file:///absolute/directory, with three slashes",
                ));
            }
        },
    };
    let file = Arc::new(leasehold_core::file::FileEngine::open(dir, leasehold_core::Env::system())?);
    let engine: Arc<dyn Engine> = Arc::clone(&file) as _;
    Ok(Opened { file: Some(file), ..Opened::from(engine) })
}

#[cfg(not(feature = "file"))]
fn open_file(_: &Url) -> Result<Opened, Error> {
    Err(not_compiled_in("file"))
}

#[cfg(feature = "redis")]
fn open_redis(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    use leasehold_redis::{Config, RedisEngine};
    let mut config = Config::from_url(&url.scheme, &url.rest)?;
    if let Some(prefix) = url.take("prefix") {
        config = config.prefix(&prefix)?;
    }
    if let Some(gap) = url.take_duration("gap")? {
        config = config.gap(gap);
    }
    if let Some(db) = url.take("db") {
        let db = db.parse().map_err(|_| Error::misconfigured("the URL option db is no number"))?;
        config = config.db(db);
    }
    if url.scheme == "rediss" {
        config = encrypted(config, url, connect)?;
    }
    url.no_more()?;
    let redis = Arc::new(RedisEngine::new(config, &leasehold_core::Env::system()));
    let engine: Arc<dyn Engine> = Arc::clone(&redis) as _;
    Ok(Opened { redis: Some(redis), ..Opened::from(engine) })
}

#[cfg(all(feature = "redis", feature = "tls"))]
fn encrypted(
    config: leasehold_redis::Config,
    url: &mut Url,
    connect: &Connect,
) -> Result<leasehold_redis::Config, Error> {
    Ok(config.tls(tls_of(url, connect)?))
}

#[cfg(all(feature = "redis", not(feature = "tls")))]
fn encrypted(_: leasehold_redis::Config, _: &mut Url, _: &Connect) -> Result<leasehold_redis::Config, Error> {
    Err(tls_not_compiled_in())
}

#[cfg(not(feature = "redis"))]
fn open_redis(_: &mut Url, _: &Connect) -> Result<Opened, Error> {
    Err(not_compiled_in("redis"))
}

/// How to encrypt, by what was given beside the URL or else by its options.
#[cfg(all(feature = "redis", feature = "tls"))]
fn tls_of(url: &mut Url, connect: &Connect) -> Result<leasehold_tls::Tls, Error> {
    let said = [url.take("ca"), url.take("cert"), url.take("key")];
    if let Some(given) = &connect.tls {
        if said.iter().any(Option::is_some) {
            return Err(Error::misconfigured(
                "Connect::tls stands in place of the URL options ca, cert and key: give one or the other",
            ));
        }
        return Ok(given.clone());
    }
    let [roots, certificate, key] = said;
    let mut tls = leasehold_tls::Tls::system();
    if let Some(roots) = roots {
        tls = tls.roots(roots);
    }
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(tls.identity(certificate, key)),
        (None, None) => Ok(tls),
        _ => Err(Error::misconfigured("the URL options cert and key belong together")),
    }
}

#[cfg(all(feature = "redis", not(feature = "tls")))]
fn tls_not_compiled_in() -> Error {
    Error::misconfigured("TLS is not compiled in: build leasehold with its feature \"tls\"")
}

#[cfg(any(feature = "memory", feature = "file", feature = "redis"))]
impl From<Arc<dyn Engine>> for Opened {
    fn from(engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            #[cfg(feature = "file")]
            file: None,
            #[cfg(feature = "redis")]
            redis: None,
        }
    }
}

#[cfg(not(all(feature = "memory", feature = "file", feature = "redis")))]
fn not_compiled_in(feature: &str) -> Error {
    Error::misconfigured(format!(
        "the {feature} engine is not compiled in: build leasehold with its feature {feature:?}"
    ))
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
