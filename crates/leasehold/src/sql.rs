//! Opens the engines on SQL databases that a URL names.

use std::sync::Arc;

use leasehold_core::{Engine, Env, Error};
use leasehold_sql::{Prefixed, SqlEngine};

#[cfg(feature = "postgres")]
use leasehold_sql::Encryption;

#[cfg(feature = "postgres")]
use crate::encryption::LIBPQ;
#[cfg(feature = "mysql")]
use crate::encryption::MYSQL;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::{
    connect::Connect,
    encryption::{default_encryption, encryption},
};
use crate::{
    open::{EngineHandle, Opened},
    url::Url,
};

#[cfg(feature = "postgres")]
pub(crate) fn open_postgres(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    use leasehold_sql::postgres::{SCHEMA, engine};
    let listen_url = url.take("listen_url");
    let (mut config, encryption) = libpq_settings(url, connect)?;
    let encryption = encryption.map_or_else(|| default_encryption(connect), Ok)?;
    config = config.encryption(encryption.clone());
    if let Some(listen_url) = listen_url {
        let mut listen_url = Url::parse(&listen_url)?;
        if !matches!(listen_url.scheme.as_str(), "postgres" | "postgresql") {
            return Err(Error::misconfigured(
                "the URL option listen_url is to be written like postgres://user@host:5432/database",
            ));
        }
        let (listen_config, listen_encryption) = libpq_settings(&mut listen_url, connect)?;
        listen_url.check_all_taken()?;
        config = config.listen(listen_config.encryption(listen_encryption.unwrap_or(encryption)));
    }
    if let Some(password) = crate::open::password(url, connect)? {
        config = config.password(password);
    }
    if let Some(timeout) = connect.connect_timeout {
        config = config.connect_timeout(timeout);
    }
    if let Some(schema) = url.take("schema") {
        config = config.schema(&schema)?;
    }
    if let Some(connections) = max_connections(url)? {
        config = config.max_connections(connections)?;
    }
    if let Some(role) = url.take("table_owner") {
        config = config.table_owner(&role);
    }
    check_hold_option(url)?;
    let prefix = url.take("prefix");
    url.check_all_taken()?;
    opened(engine(config, &Env::system()), prefix.as_deref(), SCHEMA)
}

/// The settings of the URL that URLs of libpq have too: hosts, login, parameters and encryption.
#[cfg(feature = "postgres")]
fn libpq_settings(
    url: &mut Url,
    connect: &Connect,
) -> Result<(leasehold_sql::postgres::Config, Option<Encryption>), Error> {
    use leasehold_sql::postgres::{Config, PARAMETERS};
    let parameters: Vec<_> = PARAMETERS.iter().filter_map(|&name| Some((name, url.take(name)?))).collect();
    if !parameters.is_empty() {
        url.check_unambiguous()?;
    }
    Ok((Config::with_parameters(&url.rest, &parameters)?, encryption(url, connect, &LIBPQ)?))
}

#[cfg(feature = "mysql")]
pub(crate) fn open_mysql(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    use leasehold_sql::mysql::{Config, SCHEMA, engine};
    let schema = url.take("schema");
    let sockets = ["socket", "unix_socket"].map(|name| url.take(name));
    let mut config = Config::with_socket(
        &url.rest,
        sockets.iter().flatten().next().map(String::as_str),
        schema.as_deref(),
    )?;
    if let Some(password) = crate::open::password(url, connect)? {
        config = config.password(password);
    }
    if let Some(timeout) = connect.connect_timeout {
        config = config.connect_timeout(timeout);
    }
    if let Some(connections) = max_connections(url)? {
        config = config.max_connections(connections)?;
    }
    check_hold_option(url)?;
    check_charset(url)?;
    let encryption = encryption(url, connect, &MYSQL)?;
    config = config.encryption(encryption.map_or_else(|| default_encryption(connect), Ok)?);
    let prefix = url.take("prefix");
    url.check_all_taken()?;
    opened(engine(config, &Env::system()), prefix.as_deref(), SCHEMA)
}

#[cfg(feature = "sqlite")]
pub(crate) fn open_sqlite(url: &mut Url) -> Result<Opened, Error> {
    use leasehold_sql::sqlite::{SCHEMA, engine};
    check_hold_option(url)?;
    let (mode, prefix) = (url.take("mode"), url.take("prefix"));
    url.check_all_taken()?;
    let path = crate::url::decode(&url.rest)?;
    let path = path.strip_prefix("//").unwrap_or(&path);
    if path.is_empty() || path == ":memory:" || mode.as_deref() == Some("memory") {
        return Err(Error::misconfigured(
            "a sqlite URL names the file of a database: write it like sqlite:///path/to/file.db",
        ));
    }
    // As in sqlx, from which such URLs come, a relative path counts from the working directory.
    let path = std::path::absolute(path)
        .map_err(|error| Error::misconfigured(format!("the path of the sqlite URL is relative: {error}")))?;
    match mode.as_deref() {
        None | Some("rwc") => {}
        Some("rw") if path.exists() => {}
        Some("rw") => {
            let path = path.display();
            return Err(Error::misconfigured(format!("{path} does not exist: mode=rwc creates it")));
        }
        Some(_) => {
            return Err(Error::misconfigured(
                "the URL option mode is unknown: a lock must be written, so rwc (the default) and rw are known",
            ));
        }
    }
    opened(engine(&path, &Env::system())?, prefix.as_deref(), SCHEMA)
}

/// An opened engine, whose names have the prefix of the URL, with the statements that create its tables.
fn opened(engine: SqlEngine, prefix: Option<&str>, schema: &'static str) -> Result<Opened, Error> {
    let mut engine: Arc<dyn Engine> = Arc::new(engine);
    if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
        engine = Arc::new(Prefixed::new(engine, prefix)?);
    }
    Ok(Opened { engine, handle: EngineHandle::Sql { schema } })
}

/// Takes the option `max_connections` out of the URL.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn max_connections(url: &mut Url) -> Result<Option<usize>, Error> {
    url.take_parsed("max_connections", "a whole number", |value| value.parse().ok())
}

/// Takes the option `charset` out of the URL, and checks its value. Clients of other languages need this option; only
/// UTF-8 is accepted.
#[cfg(feature = "mysql")]
fn check_charset(url: &mut Url) -> Result<(), Error> {
    match url.take("charset") {
        Some(charset) if !charset.to_ascii_lowercase().starts_with("utf8") => Err(Error::misconfigured(
            "the URL option charset is unknown: names are UTF-8, so utf8mb4 and utf8 are known",
        )),
        _ => Ok(()),
    }
}

/// Takes the option `hold` (how the database stores a hold) out of the URL, and checks its value: only `lease` is
/// known.
fn check_hold_option(url: &mut Url) -> Result<(), Error> {
    match url.take("hold").as_deref() {
        None | Some("lease") => Ok(()),
        // The error does not show the value: it may be the end of a password that contains a `?`.
        Some(_) => Err(Error::misconfigured("the URL option hold is unknown: lease (the default) is known")),
    }
}
