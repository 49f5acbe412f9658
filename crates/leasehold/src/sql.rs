//! The engines on SQL databases, by their URLs.

use std::sync::Arc;

use leasehold_core::{Env, Error};
use leasehold_sql::SqlEngine;

#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::connect::Connect;
use crate::{
    open::{Opened, Own},
    url::Url,
};

#[cfg(feature = "postgres")]
pub(crate) fn open_postgres(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    use leasehold_sql::postgres::{Config, SCHEMA, engine};
    let mut config = Config::from_url(&url.rest)?;
    if let Some(listen) = url.take("listen_url") {
        config = config.listen(&listen)?;
    }
    if let Some(password) = crate::open::password(url, connect)? {
        config = config.password(password);
    }
    if let Some(schema) = url.take("schema") {
        config = config.schema(&schema);
    }
    if let Some(role) = url.take("table_owner") {
        config = config.table_owner(&role);
    }
    leases(url)?;
    if is_encrypted(url, connect)? {
        #[cfg(feature = "tls")]
        let encrypted = config.tls(crate::tls::of(url, connect)?);
        #[cfg(not(feature = "tls"))]
        let encrypted = crate::open::not_encrypted(config, connect)?;
        config = encrypted;
    }
    url.no_more()?;
    Ok(opened(engine(config, &Env::system()), SCHEMA))
}

#[cfg(feature = "mysql")]
pub(crate) fn open_mysql(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    use leasehold_sql::mysql::{Config, SCHEMA, engine};
    let mut config = Config::from_url(&url.rest)?;
    if let Some(password) = crate::open::password(url, connect)? {
        config = config.password(password);
    }
    leases(url)?;
    if is_encrypted(url, connect)? {
        #[cfg(feature = "tls")]
        let encrypted = config.tls(crate::tls::of(url, connect)?);
        #[cfg(not(feature = "tls"))]
        let encrypted = crate::open::not_encrypted(config, connect)?;
        config = encrypted;
    }
    url.no_more()?;
    Ok(opened(engine(config, &Env::system()), SCHEMA))
}

#[cfg(feature = "sqlite")]
pub(crate) fn open_sqlite(url: &mut Url) -> Result<Opened, Error> {
    use leasehold_sql::sqlite::{SCHEMA, engine};
    leases(url)?;
    url.no_more()?;
    let rest = crate::url::decode(&url.rest)?;
    let malformed = || Error::misconfigured("the sqlite URL is to be written like sqlite:///path/to/file.db");
    let path = rest.strip_prefix("//").ok_or_else(malformed)?;
    Ok(opened(engine(path.as_ref(), &Env::system())?, SCHEMA))
}

fn opened(engine: SqlEngine, schema: &'static str) -> Opened {
    Opened { engine: Arc::new(engine), own: Own::Sql { schema } }
}

/// What stands for a hold in the database.
fn leases(url: &mut Url) -> Result<(), Error> {
    match url.take("hold").as_deref() {
        None | Some("lease") => Ok(()),
        // It is not shown: it may be the end of a password with a `?` in it.
        Some(_) => Err(Error::misconfigured("the URL option hold is unknown: lease is known, as by default")),
    }
}

/// Whether the connection is to be encrypted. There is no scheme that says so.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn is_encrypted(url: &mut Url, connect: &Connect) -> Result<bool, Error> {
    #[cfg(feature = "tls")]
    let given = connect.tls.is_some();
    #[cfg(not(feature = "tls"))]
    let (given, _) = (false, connect);
    let implied = given || ["ca", "cert", "key"].iter().any(|key| url.has(key));
    match url.take("tls").as_deref() {
        None => Ok(implied),
        Some("on") => Ok(true),
        Some("off") if !implied => Ok(false),
        Some("off") => Err(Error::misconfigured(
            "the URL option tls is off, but it is said how to encrypt: leave one out",
        )),
        Some(_) => Err(Error::misconfigured("the URL option tls is unknown: on and off are known")),
    }
}
