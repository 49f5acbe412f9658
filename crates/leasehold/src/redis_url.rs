//! The Redis engine that a URL names: one server, a group that Sentinels watch, or a Cluster.

use std::sync::Arc;

use leasehold_core::Error;
use leasehold_redis::{AddressMap, Config, RedisEngine, Servers};

use crate::{
    connect::Connect,
    open::{Opened, Own, password},
    url::Url,
};

/// More replicas than anybody has: a number by mistake.
const MOST_REPLICAS: u32 = 64;

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
    if let Some(bell) = url.take("bell") {
        config = config.bell(bell.parse()?)?;
    }
    if let Some(wait) = url.take("wait") {
        let wait = wait.parse().ok().filter(|&wait| wait <= MOST_REPLICAS);
        config = config.wait(wait.ok_or_else(|| {
            Error::misconfigured(format!(
                "the URL option wait is no number of replicas up to {MOST_REPLICAS}"
            ))
        })?);
    }
    let sentinel = matches!(config.servers(), Servers::Sentinel(_));
    if matches!(config.servers(), Servers::Cluster(_)) {
        config = map(url, config)?;
    } else if let Some(db) = url.take("db") {
        let db = db.parse().map_err(|_| Error::misconfigured("the URL option db is no number"))?;
        config = config.db(db);
    }
    if sentinel {
        config = sentinels(url, map(url, config)?)?;
    }
    config = encrypted(url, connect, config, sentinel)?;
    url.no_more()?;
    let redis = Arc::new(RedisEngine::new(config, &leasehold_core::Env::system()));
    Ok(Opened { engine: Arc::clone(&redis) as _, own: Own::Redis(redis) })
}

fn map(url: &mut Url, config: Config) -> Result<Config, Error> {
    match url.take("map") {
        Some(map) => Ok(config.map(AddressMap::parse(&map)?)),
        None => Ok(config),
    }
}

/// Who we are to Sentinels.
fn sentinels(url: &mut Url, config: Config) -> Result<Config, Error> {
    let (user, file) = (url.take("sentinel_user"), url.take("sentinel_password_file"));
    match (user, file) {
        (user, Some(file)) => {
            Ok(config.sentinel_login(user.as_deref(), leasehold_core::Password::file(file)))
        }
        (None, None) => Ok(config),
        (Some(_), None) => Err(Error::misconfigured(
            "the URL option sentinel_user needs sentinel_password_file, the file that holds the password for the Sentinels",
        )),
    }
}

/// Encrypts as the scheme says; the connections to Sentinels as well, unless an option says otherwise.
fn encrypted(url: &mut Url, connect: &Connect, config: Config, sentinel: bool) -> Result<Config, Error> {
    let servers = url.scheme.starts_with("rediss");
    let watchers = match url.take_if(sentinel, "sentinel_tls").as_deref() {
        None => servers && sentinel,
        Some("on") => true,
        Some("off") => false,
        Some(_) => {
            return Err(Error::misconfigured("the URL option sentinel_tls is unknown: on and off are known"));
        }
    };
    if !servers && !watchers {
        return Ok(config);
    }
    #[cfg(feature = "tls")]
    {
        let tls = crate::tls::of(url, connect)?;
        let config = if watchers { config.sentinel_tls(tls.clone()) } else { config };
        Ok(if servers { config.tls(tls) } else { config })
    }
    #[cfg(not(feature = "tls"))]
    crate::open::not_encrypted(config, connect)
}
