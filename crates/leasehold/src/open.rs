//! Opens the engine that a URL names.

use std::sync::Arc;

use leasehold_core::{Engine, Error};

use crate::{connect::Connect, url::Url};

/// An engine opened from a URL.
pub(crate) struct Opened {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) handle: EngineHandle,
}

/// The engine itself, if it has methods other than those of the trait `Engine`.
#[derive(Clone)]
pub(crate) enum EngineHandle {
    Nothing,
    #[cfg(all(feature = "file", target_os = "linux"))]
    File(Arc<leasehold_core::file::FileEngine>),
    #[cfg(feature = "redis")]
    Redis(Arc<leasehold_redis::RedisEngine>),
    #[cfg(feature = "etcd")]
    Etcd(Arc<leasehold_etcd::EtcdEngine>),
    #[cfg(feature = "zookeeper")]
    Zookeeper(Arc<leasehold_zookeeper::ZookeeperEngine>),
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
    Sql {
        schema: &'static str,
    },
}

/// Evaluates to the engine that `$opened` opens. If `$feature` is not compiled in, evaluates to an error.
macro_rules! if_compiled_in {
    ($feature:literal, $connect:expr, $opened:expr) => {{
        #[cfg(feature = $feature)]
        let opened = $opened;
        #[cfg(not(feature = $feature))]
        let opened = not_compiled_in($feature, $connect);
        opened
    }};
}

/// Evaluates to `$with_tls`, a configuration with `$tls`: the TLS settings of the URL or of the caller. If TLS is not
/// compiled in, returns an error from the calling function.
#[cfg(any(feature = "redis", feature = "etcd", feature = "zookeeper"))]
macro_rules! with_tls {
    ($url:expr, $connect:expr, $config:ident, $tls:ident => $with_tls:expr) => {{
        #[cfg(feature = "tls")]
        let $tls = crate::tls::of_url($url, $connect)?;
        #[cfg(feature = "tls")]
        let config = $with_tls;
        #[cfg(not(feature = "tls"))]
        let config = crate::open::not_encrypted($config, $connect)?;
        config
    }};
}
#[cfg(feature = "redis")]
pub(crate) use with_tls;

/// Opens the engine that a URL names. If the URL has a frequent mistake, the error explains it.
pub(crate) fn open(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    open_scheme(url, connect).map_err(|error| url.explain(error))
}

/// Opens the engine of the URL's scheme. Each engine takes its options out of the URL. Before an engine creates
/// anything, it refuses the options that it does not know.
fn open_scheme(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    match url.scheme.as_str() {
        "memory" => if_compiled_in!("memory", connect, open_memory(url)),
        "file" => if_compiled_in!("file", connect, open_file(url)),
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
        | "rediss+cluster" => if_compiled_in!("redis", connect, crate::redis_url::open_redis(url, connect)),
        "redlock" => if_compiled_in!("redis", connect, crate::redlock_url::open_redlock(url, connect)),
        "etcd" | "etcds" => if_compiled_in!("etcd", connect, open_etcd(url, connect)),
        "zookeeper" | "zookeepers" => if_compiled_in!("zookeeper", connect, open_zookeeper(url, connect)),
        "postgres" | "postgresql" => {
            if_compiled_in!("postgres", connect, crate::sql_url::open_postgres(url, connect))
        }
        "mysql" | "mariadb" => if_compiled_in!("mysql", connect, crate::sql_url::open_mysql(url, connect)),
        "sqlite" => if_compiled_in!("sqlite", connect, crate::sql_url::open_sqlite(url)),
        // The error shows only the scheme, because the rest of the URL may contain a password.
        other => Err(Error::misconfigured(match scheme_for(other) {
            Some(ours) => {
                format!("the URL scheme {other:?} is unknown, and that of another library: write {ours}://")
            }
            None => format!(
                "the URL scheme {other:?} is unknown: memory, file, redis, rediss, redis+unix, redis+sentinel, \
                 rediss+sentinel, redis+cluster, rediss+cluster, redlock, etcd, etcds, zookeeper, zookeepers, \
                 postgres, mysql and sqlite are known"
            ),
        })),
    }
}

/// The scheme for what other libraries name otherwise: redis-py a socket, SQLAlchemy a database with its driver.
fn scheme_for(scheme: &str) -> Option<&'static str> {
    match scheme.split_once('+').map_or(scheme, |(database, _)| database) {
        "unix" => Some("redis+unix"),
        "postgres" | "postgresql" => Some("postgres"),
        "mysql" | "mariadb" => Some("mysql"),
        "sqlite" => Some("sqlite"),
        _ => None,
    }
}

/// The password from the file that the URL names, or from the caller; `None` if neither is given. Returns an error if
/// the password is given twice, for instance also in the login of the URL.
#[cfg(any(
    feature = "redis",
    feature = "etcd",
    feature = "zookeeper",
    feature = "postgres",
    feature = "mysql"
))]
pub(crate) fn password(url: &mut Url, connect: &Connect) -> Result<Option<leasehold_core::Password>, Error> {
    let is_in_url = url.rest.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'));
    let from_file = url.take("password_file").map(leasehold_core::Password::file);
    let from_caller = connect.password.clone();
    if from_caller.as_ref().is_some_and(leasehold_core::Password::names_user)
        && ["etcd", "etcds", "zookeeper", "zookeepers"].contains(&url.scheme.as_str())
    {
        return Err(Error::misconfigured(format!(
            "Connect::credentials is given, but the user of {} URLs is in the URL: give Connect::password",
            url.scheme
        )));
    }
    if [is_in_url, from_file.is_some(), from_caller.is_some()]
        .into_iter()
        .filter(|&is_given| is_given)
        .count()
        > 1
    {
        return Err(Error::misconfigured(
            "the password is given twice: in the URL, by its option password_file, or by Connect::password",
        ));
    }
    Ok(from_file.or(from_caller))
}

#[cfg(feature = "memory")]
fn open_memory(url: &Url) -> Result<Opened, Error> {
    use leasehold_core::memory::{MemoryEngine, MemoryStore};
    url.check_all_taken()?;
    let name = crate::url::decode(&url.rest)?;
    let store = MemoryStore::named(&name, &leasehold_core::Env::system());
    Ok(Opened { engine: Arc::new(MemoryEngine::new(store)), handle: EngineHandle::Nothing })
}

#[cfg(all(feature = "file", target_os = "linux"))]
fn open_file(url: &Url) -> Result<Opened, Error> {
    url.check_all_taken()?;
    let rest = crate::url::decode(&url.rest)?;
    // By RFC 8089, the directory may come directly after the scheme, or after the name of this host.
    let path = rest.strip_prefix("//localhost").filter(|path| path.starts_with('/'));
    let path = path.or_else(|| rest.strip_prefix("//")).unwrap_or(&rest);
    let dir = match rest.as_str() {
        "" => None,
        _ if path.starts_with('/') => Some(path.into()),
        _ => {
            return Err(Error::misconfigured(
                "a file URL is file:, file:/directory or file:///directory, with an absolute path",
            ));
        }
    };
    let file = Arc::new(leasehold_core::file::FileEngine::open(dir, leasehold_core::Env::system())?);
    Ok(Opened { engine: Arc::clone(&file) as _, handle: EngineHandle::File(file) })
}

#[cfg(all(feature = "file", not(target_os = "linux")))]
fn open_file(_: &Url) -> Result<Opened, Error> {
    Err(Error::misconfigured(
        "the file engine needs Linux, whose kernel locks it uses: on this system use an engine with a server",
    ))
}

#[cfg(feature = "etcd")]
fn open_etcd(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    use leasehold_etcd::{Config, EtcdEngine, Layout};
    let mut config = Config::from_url(&url.scheme, &url.rest)?;
    if let Some(timeout) = connect.connect_timeout {
        config = config.connect_timeout(timeout);
    }
    if let Some(password) = password(url, connect)? {
        config = config.password(password)?;
    }
    match url.take("layout").as_deref() {
        None | Some("directory") => {}
        // The layout is set before the prefix, because only with this layout may the prefix be empty.
        Some("key") => config = config.layout(Layout::Key)?,
        Some("election") => config = config.layout(Layout::Election)?,
        // The error does not show the value: it may be the end of a password that contains a `?`.
        Some(_) => {
            return Err(Error::misconfigured(
                "the URL option layout is unknown: directory (the default), key and election are known",
            ));
        }
    }
    if let Some(prefix) = url.take("prefix") {
        config = config.prefix(&prefix)?;
    }
    config = config.hand_over(hand_over(url)?);
    if url.scheme == "etcds" {
        config = with_tls!(url, connect, config, tls => config.tls(tls));
    }
    url.check_all_taken()?;
    let etcd = Arc::new(EtcdEngine::new(config, &leasehold_core::Env::system()));
    Ok(Opened { engine: Arc::clone(&etcd) as _, handle: EngineHandle::Etcd(etcd) })
}

/// The URL option `hand_over`: whether a hold is handed over between tasks of this process.
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
fn hand_over(url: &mut Url) -> Result<bool, Error> {
    match url.take("hand_over").as_deref() {
        None | Some("on") => Ok(true),
        Some("off") => Ok(false),
        // The error does not show the value: it may be the end of a password that contains a `?`.
        Some(_) => Err(Error::misconfigured(
            "the URL option hand_over is unknown: on (the default) and off are known",
        )),
    }
}

#[cfg(feature = "zookeeper")]
fn open_zookeeper(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    use leasehold_zookeeper::{Config, Layout, ZookeeperEngine};
    let mut config = Config::from_url(&url.scheme, &url.rest)?;
    if let Some(timeout) = connect.connect_timeout {
        config = config.connect_timeout(timeout);
    }
    if let Some(password) = password(url, connect)? {
        config = config.password(password)?;
    }
    let (prefix, path) = (url.take("prefix"), url.take("path"));
    if let Some(prefix) = &prefix {
        config = config.prefix(prefix)?;
    }
    config = config.hand_over(hand_over(url)?);
    let layout = match url.take("layout").as_deref() {
        None | Some("mutex") => Layout::Mutex,
        Some("rw") => Layout::ReadWrite,
        Some("latch") => Layout::Latch,
        Some("plain") => Layout::Plain,
        // The error does not show the value: it may be the end of a password that contains a `?`.
        Some(_) => {
            return Err(Error::misconfigured(
                "the URL option layout is unknown: mutex (the default), rw, latch and plain are known",
            ));
        }
    };
    config = config.layout(layout);
    if let Some(path) = path {
        if layout != Layout::Plain || prefix.is_some() {
            return Err(Error::misconfigured(
                "the URL option path names the directory of one lock: it needs layout=plain, and no prefix=",
            ));
        }
        config = config.path(&path)?;
    }
    if let Some(acl) = url.take("acl") {
        config = config.acl(&acl)?;
    }
    if url.scheme == "zookeepers" {
        config = with_tls!(url, connect, config, tls => config.tls(tls));
    }
    url.check_all_taken()?;
    let zookeeper = Arc::new(ZookeeperEngine::new(config, &leasehold_core::Env::system()));
    Ok(Opened { engine: Arc::clone(&zookeeper) as _, handle: EngineHandle::Zookeeper(zookeeper) })
}

#[cfg(all(
    any(feature = "redis", feature = "etcd", feature = "zookeeper", feature = "postgres", feature = "mysql"),
    not(feature = "tls")
))]
/// The error for encryption that is not compiled in.
pub(crate) fn not_encrypted<T>(_: T, _: &Connect) -> Result<T, Error> {
    Err(Error::misconfigured("TLS is not compiled in: build leasehold with its feature \"tls\""))
}

#[cfg(not(all(
    feature = "memory",
    feature = "file",
    feature = "redis",
    feature = "etcd",
    feature = "zookeeper",
    feature = "postgres",
    feature = "mysql",
    feature = "sqlite"
)))]
/// The error for an engine that is not compiled in.
fn not_compiled_in(feature: &str, _: &Connect) -> Result<Opened, Error> {
    Err(Error::misconfigured(format!(
        "the {feature} engine is not compiled in: build leasehold with its feature {feature:?}"
    )))
}
