//! Opens the Redis engine that a URL names: one server, a group watched by Sentinels, or a Cluster.

use std::sync::Arc;

use leasehold_core::Error;
use leasehold_redis::{AddressMap, Config, Layout, RedisEngine, Servers, StaleDeadline};

use crate::{
    connect::Connect,
    open::{EngineHandle, Opened, password, with_tls},
    url::Url,
};

/// The largest value of the option `wait`. No installation has more replicas, so a larger number is a mistake.
const MAX_REPLICAS: u32 = 64;

/// Opens the engine, with the options of the URL and of the caller.
pub(crate) fn open_redis(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    let mut config = Config::from_url(&url.scheme, &url.rest)?;
    if let Some(timeout) = connect.connect_timeout {
        config = config.connect_timeout(timeout);
    }
    if let Some(password) = password(url, connect)? {
        config = config.password(password);
    }
    if let Some(prefix) = url.take("prefix") {
        config = config.prefix(&prefix)?;
    }
    if let Some(gap) = url.take_duration("gap")? {
        config = config.gap(gap);
    }
    match url.take("layout").as_deref() {
        None => {}
        Some("redisson") => config = config.layout(Layout::Redisson)?,
        // The error does not show the value: it may be the end of a password that contains a `?`.
        Some(_) => {
            return Err(Error::misconfigured(
                "the URL option layout is unknown: redisson is known; without it locks are plain strings",
            ));
        }
    }
    match url.take("stale_deadline").as_deref() {
        None | Some("taken") => {}
        Some("reclaim") => config = config.stale_deadline(StaleDeadline::Reclaim)?,
        Some(_) => {
            return Err(Error::misconfigured(
                "the URL option stale_deadline is unknown: reclaim and taken (the default) are known",
            ));
        }
    }
    if let Some(wake) = url.take("wake") {
        config = config.wake(wake.parse()?)?;
    }
    if let Some(wait) = url.take("wait") {
        let wait = wait.parse().ok().filter(|&wait| wait <= MAX_REPLICAS);
        config = config.wait(wait.ok_or_else(|| {
            Error::misconfigured(format!(
                "the URL option wait is not a number of replicas up to {MAX_REPLICAS}"
            ))
        })?);
    }
    let has_sentinels = matches!(config.servers(), Servers::Sentinel(_));
    if !matches!(config.servers(), Servers::One(_))
        && let Some(map) = url.take("map")
    {
        config = config.map(AddressMap::parse(&map)?);
    }
    if let Some(db) = url.take("db") {
        let db = db.parse().map_err(|_| Error::misconfigured("the URL option db is not a number"))?;
        if db != 0 && matches!(config.servers(), Servers::Cluster(_)) {
            return Err(Error::misconfigured(
                "the URL option db names another database than 0, and a Redis Cluster has no other",
            ));
        }
        config = config.db(db);
    }
    if has_sentinels {
        config = with_sentinel_login(url, config)?;
    }
    config = with_encryption(url, connect, config, has_sentinels)?;
    url.check_all_taken()?;
    let redis = Arc::new(RedisEngine::new(config, &leasehold_core::Env::system()));
    Ok(Opened { engine: Arc::clone(&redis) as _, handle: EngineHandle::Redis(redis) })
}

/// Sets the user and the password for connections to the Sentinels.
fn with_sentinel_login(url: &mut Url, config: Config) -> Result<Config, Error> {
    let (user, file) = (url.take("sentinel_user"), url.take("sentinel_password_file"));
    match (user, file) {
        (user, Some(file)) => {
            Ok(config.sentinel_login(user.as_deref(), leasehold_core::Password::file(file)))
        }
        (None, None) => Ok(config),
        (Some(_), None) => Err(Error::misconfigured(
            "the URL option sentinel_user needs sentinel_password_file, \
             the file that contains the password for the Sentinels",
        )),
    }
}

/// Encrypts the connections if the scheme says so. Connections to Sentinels follow the scheme too, unless
/// `sentinel_tls` is set.
fn with_encryption(
    url: &mut Url,
    connect: &Connect,
    config: Config,
    has_sentinels: bool,
) -> Result<Config, Error> {
    let encrypts_servers = url.scheme.starts_with("rediss");
    let encrypts_sentinels = match url.take_if(has_sentinels, "sentinel_tls").as_deref() {
        None => encrypts_servers && has_sentinels,
        Some("on") => true,
        Some("off") => false,
        Some(_) => {
            return Err(Error::misconfigured("the URL option sentinel_tls is unknown: on and off are known"));
        }
    };
    if !encrypts_servers && !encrypts_sentinels {
        return Ok(config);
    }
    Ok(with_tls!(url, connect, config, tls => {
        let config = if encrypts_sentinels { config.sentinel_tls(tls.clone()) } else { config };
        if encrypts_servers { config.tls(tls) } else { config }
    }))
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use crate::Locks;

    #[test]
    fn options_of_each_topology_are_read_and_others_refused() {
        for url in [
            "redis+sentinel://u:hunter2@a:1,b/mymaster/2?sentinel_user=w&sentinel_password_file=/p&map=a:1=b:2&wait=1&db=3",
            "rediss+sentinel://a/mymaster?sentinel_tls=off",
            "redis+sentinel://a/mymaster?sentinel_tls=on&ca=/ca.pem",
            "redis+sentinel://a/mymaster?wake=prl&gap=50ms&connect_timeout=1s&prefix=lock:x:",
            "redis+sentinel://a/mymaster?wake=walrus",
            "redis+cluster://u:hunter2@a,b?map=a=b&wait=2&prefix=x:&db=0&gap=0s&connect_timeout=1s",
            "redis+cluster://a?prefix=registry:&wake=spring",
            "rediss+cluster://a?ca=/ca.pem&cert=/c.pem&key=/k.pem",
            "redis+cluster://a?password_file=/p",
            "redis://a?wait=1",
            "redis://a?stale_deadline=reclaim",
            "redis+sentinel://a/mymaster?stale_deadline=reclaim",
            "redis+cluster://a?stale_deadline=taken",
            "redis://a?layout=redisson&prefix=",
            "redis+sentinel://a/mymaster?layout=redisson&gap=50ms&wait=1",
            "redis+cluster://a?layout=redisson",
        ] {
            Locks::connect(url).unwrap();
        }
        for (url, expected) in [
            ("redis+sentinel://u:hunter2@a/mymaster?sentinel_user=w", "sentinel_password_file"),
            ("redis+sentinel://u:hunter2@a/mymaster?sentinel_tls=yes", "on and off"),
            ("redis+sentinel://u:hunter2@a/mymaster?map=x", "map of addresses"),
            ("redis+sentinel://u:hunter2@a/mymaster?ca=/ca.pem", "\"ca\" is unknown"),
            ("redis+sentinel://u:hunter2@a/mymaster?wait=all", "wait"),
            ("redis+sentinel://u:hunter2@a/mymaster?wait=65", "wait"),
            ("redis+cluster://u:hunter2@a?sentinel_user=w", "\"sentinel_user\" is unknown"),
            ("redis+sentinel://u:hunter2@a/mymaster?layout=rw", "layout is unknown: redisson is known"),
            ("redis://u:hunter2@a?layout=redisson&wake=prl", "different programs"),
            (
                "redis://u:hunter2@a?layout=redisson&stale_deadline=reclaim",
                "stale_deadline=reclaim and layout",
            ),
            ("redis://u:hunter2@a?stale_deadline=", "reclaim and taken"),
            ("redis+cluster://u:hunter2@a?stale_deadline=1", "reclaim and taken"),
            ("redis+sentinel://u:hunter2@a/mymaster?fence=on", "\"fence\" is unknown to redis+sentinel"),
            ("redis+sentinel://u:hunter2@a/mymaster?wake=gong", "prl, walrus and spring"),
            ("redis+sentinel://u:hunter2@a/mymaster?db=x", "db is not a number"),
            ("redis+sentinel://u:hunter2@a/mymaster?password_file=/p", "given twice"),
            ("redis+cluster://u:hunter2@a?db=1", "a Redis Cluster has no other"),
            ("redis+cluster://u:hunter2@a?db=x", "db is not a number"),
            ("redis+cluster://u:hunter2@a?wake=prl", "python-redis-lock does not run on a Redis Cluster"),
            ("redis+cluster://u:hunter2@a?wake=walrus", "walrus does not run on a Redis Cluster"),
            ("redis+cluster://u:hunter2@a?prefix=x&wake=spring", "the registry key and a colon"),
            ("redis+cluster://u:hunter2@a?layout=", "layout is unknown: redisson is known"),
            ("redis+cluster://u:hunter2@a?list=all", "\"list\" is unknown to redis+cluster"),
            ("redis+cluster://u:hunter2@a?wait=-1", "wait"),
            ("redis+cluster://u:hunter2@a?map=a:1=", "map of addresses"),
            ("redis+cluster://u:hunter2@a?ca=/ca.pem", "\"ca\" is unknown"),
            ("rediss+cluster://u:hunter2@a?cert=/c.pem", "cert and key belong together"),
            ("rediss+cluster://u:hunter2@a?sentinel_tls=on", "\"sentinel_tls\" is unknown"),
            ("redis://u:hunter2@a?map=a=b", "\"map\" is unknown"),
            ("redis://u:hunter2@a?sentinel_tls=on", "\"sentinel_tls\" is unknown"),
        ] {
            let error = Locks::connect(url).err().unwrap();
            let text = error.to_string();
            assert!(error.is_misconfigured() && text.contains(expected), "{url}: {text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
