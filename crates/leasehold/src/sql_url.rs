//! Opens the engines on SQL databases that a URL names.

use std::sync::Arc;

use leasehold_core::{Engine, Env, Error};
use leasehold_sql::{Prefixed, SqlEngine};

#[cfg(feature = "postgres")]
use leasehold_sql::Encryption;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use leasehold_sql::{ForeignTable, LAYOUT_WORDS, Layout, RowTable, SessionEngine, SessionOptions};

#[cfg(feature = "postgres")]
use crate::encryption::LIBPQ;
#[cfg(feature = "mysql")]
use crate::encryption::MYSQL;
#[cfg(feature = "postgres")]
use crate::url::HOW_TO_ENCODE;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::{
    connect::Connect,
    encryption::{default_encryption, encryption},
};
use crate::{
    open::{EngineHandle, Opened},
    url::Url,
};

/// The values of the option `hold` on servers, for messages.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const HOLD_VALUES: &str = "lease (the default), session and row are known";

#[cfg(feature = "postgres")]
pub(crate) fn open_postgres(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    use leasehold_sql::postgres::{SCHEMA, engine, foreign_table_engine, session_engine};
    refuse_hold_with_layout(url)?;
    let listen_url = url.take("listen_url");
    let (mut config, encryption) = libpq_settings(url, connect)?;
    let encryption = encryption.map_or_else(|| default_encryption(connect), Ok)?;
    config = config.encryption(encryption.clone());
    if let Some(listen_url) = listen_url {
        let (listen_config, listen_encryption) = listen_settings(&listen_url, connect)?;
        config = config.listen(listen_config.encryption(listen_encryption.unwrap_or(encryption)));
    }
    if let Some(password) = crate::open::password(url, connect)? {
        config = config.password(password);
    }
    if let Some(timeout) = connect.connect_timeout {
        config = config.connect_timeout(timeout);
    }
    if let Some(rows) = rows(url)? {
        if config.has_listen_url() {
            return Err(Error::misconfigured(
                "the URL option listen_url is for a pooler, and hold=row needs the server itself",
            ));
        }
        return Ok(opened_rows(leasehold_sql::postgres::row_engine(config, rows)));
    }
    let schema = url.take("schema");
    if url.value("hold") == Some("session") {
        let of_tables = [
            ("listen_url", config.has_listen_url()),
            ("schema", schema.is_some()),
            ("table_owner", url.has_option("table_owner")),
            ("max_connections", url.has_option("max_connections")),
        ];
        if let Some((name, _)) = of_tables.into_iter().find(|(_, is_given)| *is_given) {
            return Err(Error::misconfigured(format!(
                "the URL option {name} is about tables, and hold=session has one connection without tables: leave it out"
            )));
        }
        let options = session_options(url, SessionOptions::lock_key)?;
        return Ok(session_opened(session_engine(config, options, &Env::system())));
    }
    if let Some(schema) = schema {
        config = config.schema(&schema)?;
    }
    if let Some(connections) = max_connections(url)? {
        config = config.max_connections(connections)?;
    }
    if let Some(table) = foreign_table(url)? {
        if config.has_listen_url() {
            return Err(Error::misconfigured(
                "the URL option listen_url does not apply to layout=: the tables of other programs notify nobody, and a \
                 pooler needs no other URL",
            ));
        }
        url.check_all_taken()?;
        return Ok(opened_foreign(foreign_table_engine(config, table, &Env::system())));
    }
    if let Some(role) = url.take("table_owner") {
        config = config.table_owner(&role);
    }
    check_hold_option(url, HOLD_VALUES)?;
    let prefix = url.take("prefix");
    url.check_all_taken()?;
    opened(engine(config, &Env::system()), prefix.as_deref(), SCHEMA)
}

/// The settings of the server behind a pooler.
#[cfg(feature = "postgres")]
fn listen_settings(
    listen_url: &str,
    connect: &Connect,
) -> Result<(leasehold_sql::postgres::Config, Option<Encryption>), Error> {
    let malformed = || {
        Error::misconfigured(format!(
            "the URL option listen_url is to be a URL like postgres://user@host:5432/database: {HOW_TO_ENCODE}"
        ))
    };
    let mut url = Url::parse(listen_url).map_err(|_| malformed())?;
    if !matches!(url.scheme.as_str(), "postgres" | "postgresql") {
        return Err(malformed());
    }
    let settings = libpq_settings(&mut url, connect).and_then(|settings| {
        url.check_all_taken()?;
        Ok(settings)
    });
    settings.map_err(|error| Error::new(error.kind(), format!("the URL option listen_url: {error}")))
}

/// Refuses a URL with both options: the table of a `layout` says how a hold lives.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn refuse_hold_with_layout(url: &Url) -> Result<(), Error> {
    if url.has_option("layout") && url.has_option("hold") {
        return Err(Error::misconfigured(
            "the URL option hold does not apply to layout=: the table of the other program stores the holds, leave hold out",
        ));
    }
    Ok(())
}

/// Takes the options of `hold=session` out of the URL. `lock_key` sets the derivation of keys by its name.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn session_options(
    url: &mut Url,
    lock_key: fn(SessionOptions, &str) -> Result<SessionOptions, Error>,
) -> Result<SessionOptions, Error> {
    url.take("hold");
    let mut options = SessionOptions::default();
    if let Some(delay) = url.take("delay") {
        // The error does not show the value: it may be the end of a password that contains a `?`.
        let malformed = |_| Error::misconfigured("the URL option delay is to be written like 0s or 15s");
        options = options.delay(crate::parse_duration(&delay).map_err(malformed)?)?;
    }
    if let Some(name) = url.take("lock_key") {
        options = lock_key(options, &name)?;
    }
    if let Some(prefix) = url.take("prefix") {
        options = options.prefix(&prefix);
    }
    url.check_all_taken()?;
    Ok(options)
}

/// An opened engine on locks of sessions, which has no tables.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn session_opened(engine: SessionEngine) -> Opened {
    Opened { engine: Arc::new(engine), handle: EngineHandle::Nothing }
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
    use leasehold_sql::mysql::{Config, SCHEMA, engine, foreign_table_engine, session_engine};
    refuse_hold_with_layout(url)?;
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
    check_charset(url)?;
    let encryption = encryption(url, connect, &MYSQL)?;
    config = config.encryption(encryption.map_or_else(|| default_encryption(connect), Ok)?);
    if let Some(rows) = rows(url)? {
        return Ok(opened_rows(leasehold_sql::mysql::row_engine(config, rows)));
    }
    if url.value("hold") == Some("session") {
        let options = session_options(url, SessionOptions::mysql_lock_key)?;
        return Ok(session_opened(session_engine(config, options, &Env::system())));
    }
    if let Some(connections) = max_connections(url)? {
        config = config.max_connections(connections)?;
    }
    if let Some(table) = foreign_table(url)? {
        url.check_all_taken()?;
        return Ok(opened_foreign(foreign_table_engine(config, table, &Env::system())));
    }
    check_hold_option(url, HOLD_VALUES)?;
    let prefix = url.take("prefix");
    url.check_all_taken()?;
    opened(engine(config, &Env::system()), prefix.as_deref(), SCHEMA)
}

#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub(crate) fn open_sqlite(url: &mut Url) -> Result<Opened, Error> {
    use leasehold_sql::sqlite::{SCHEMA, engine};
    check_hold_option(url, "lease (the default) is known, because SQLite has no locks of sessions and rows")?;
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

#[cfg(all(feature = "sqlite", not(target_os = "linux")))]
pub(crate) fn open_sqlite(_: &mut Url) -> Result<Opened, Error> {
    Err(Error::misconfigured(
        "the SQLite engine needs Linux, whose kernel tells waiting processes of releases: on this system use an engine \
         with a server",
    ))
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

/// An opened engine on a table of another program. `leasehold schema` has no statements for it: its program makes it.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn opened_foreign(engine: leasehold_sql::ForeignTableEngine) -> Opened {
    Opened { engine: Arc::new(engine), handle: EngineHandle::Nothing }
}

/// Takes the options of a table of another program out of the URL; `None` if the URL has no `layout`.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn foreign_table(url: &mut Url) -> Result<Option<ForeignTable>, Error> {
    let wanted = format!("one of {LAYOUT_WORDS}");
    let Some(layout) = url.take_parsed("layout", &wanted, Layout::from_word)? else { return Ok(None) };
    let mut foreign_table = ForeignTable::new(layout);
    if let Some(table) = url.take("table") {
        foreign_table = foreign_table.table(&table)?;
    }
    if let Some(column) = url.take("column") {
        foreign_table = foreign_table.column(&column)?;
    }
    if let Some(prefix) = url.take("prefix") {
        foreign_table = foreign_table.prefix(&prefix);
    }
    let create = url.take_parsed("create", "yes or no", |value| match value {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    })?;
    if create == Some(true) {
        foreign_table = foreign_table.create();
    }
    foreign_table.checked().map(Some)
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

/// The rows of another program that are the locks, if the URL says `hold=row`. Then all other options must be taken.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn rows(url: &mut Url) -> Result<Option<RowTable>, Error> {
    if url.value("hold") != Some("row") {
        return Ok(None);
    }
    url.take("hold");
    let missing = || Error::misconfigured("hold=row needs the URL options table and column");
    let table = url.take("table").ok_or_else(missing)?;
    let mut rows = RowTable::new(&table, &url.take("column").ok_or_else(missing)?)?;
    if let Some(and) = url.take("and") {
        let (column, value) = and.split_once(':').unwrap_or_default();
        rows = rows.and(column, value)?;
    }
    let yes_or_no = |value: &str| match value {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    };
    if url.take_parsed("create", "yes or no", yes_or_no)? == Some(true) {
        rows = rows.create();
    }
    url.check_all_taken()?;
    Ok(Some(rows))
}

/// An opened engine on rows of another program.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn opened_rows(engine: leasehold_sql::RowEngine) -> Opened {
    Opened { engine: Arc::new(engine), handle: EngineHandle::Nothing }
}

/// Takes the option `hold` (how the database stores a hold) out of the URL, and checks its value: here only `lease` is
/// known. `known` says which values the database has.
fn check_hold_option(url: &mut Url, known: &str) -> Result<(), Error> {
    match url.take("hold").as_deref() {
        None | Some("lease") => Ok(()),
        // The error does not show the value: it may be the end of a password that contains a `?`.
        Some(_) => Err(Error::misconfigured(format!("the URL option hold is unknown: {known}"))),
    }
}

#[cfg(all(test, feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod tests {
    use crate::Locks;

    #[test]
    fn options_of_tables_of_other_programs_are_read_and_others_refused() {
        for url in [
            "postgres://h/d?layout=shedlock&create=yes&schema=app&table=locks",
            "postgres://h/d?layout=insert&table=method_lock&column=method_name",
            "mysql://h/d?layout=laravel&prefix=laravel_cache_&create=no",
            "mysql://h/d?layout=symfony&charset=utf8mb4",
            "mariadb://h/d?layout=liquibase&table=LOCKS",
        ] {
            Locks::connect(url).unwrap();
        }
        for (url, expected) in [
            (
                "postgres://h/d?layout=quartz",
                "it must be one of shedlock, symfony, laravel, liquibase and insert",
            ),
            ("mysql://h/d?layout=", "it must be one of shedlock"),
            ("mysql://h/d?layout=shedlock&create=maybe", "create is wrong: it must be yes or no"),
            ("mysql://h/d?layout=insert&table=t", "needs table= and column="),
            ("mysql://h/d?layout=insert&table=t;&column=c", "table is no plain name"),
            ("postgres://h/d?layout=symfony&column=c", "column applies to layout=insert only"),
            ("postgres://h/d?layout=symfony&prefix=c", "applies to layout=laravel only"),
            ("postgres://h/d?layout=shedlock&hold=lease", "hold does not apply to layout="),
            ("mysql://h/d?layout=shedlock&hold=lease", "hold does not apply to layout="),
            ("postgres://h/d?layout=shedlock&hold=session", "hold does not apply to layout="),
            ("mysql://h/d?hold=row&table=t&column=c&layout=shedlock", "hold does not apply to layout="),
            ("mysql://h/d?hold=lock", "lease (the default), session and row are known"),
            ("postgres://h/d?hold=lock", "lease (the default), session and row are known"),
            ("postgres://h/d?layout=shedlock&table_owner=x", "\"table_owner\" is unknown"),
            (
                "postgres://h/d?layout=shedlock&listen_url=postgres://h/d",
                "listen_url does not apply to layout=",
            ),
            ("postgres://h/d?table=t", "\"table\" is unknown"),
            ("mysql://h/d?create=yes", "\"create\" is unknown"),
            ("sqlite:f.db?hold=session", "SQLite has no locks of sessions and rows"),
            ("sqlite:f.db?hold=row&table=t&column=c", "SQLite has no locks of sessions and rows"),
            ("sqlite:f.db?layout=shedlock", "\"layout\" is unknown"),
        ] {
            let error = Locks::connect(url).unwrap_err();
            assert!(error.is_misconfigured() && error.to_string().contains(expected), "{url}: {error}");
        }
    }

    /// An option behind a URL that is not encoded may be of either of the two.
    #[test]
    fn a_listen_url_that_is_not_percent_encoded_is_explained() {
        let encoded = "postgres%3A%2F%2Fuser%40host%3A5432%2Fdatabase";
        let (inner, wanted) = ("postgres://me:hunter2@db:5432/app", "percent-encode its whole value");
        Locks::connect(&format!("postgres://p/app?listen_url={encoded}&schema=s")).unwrap();
        // Nothing is unclear.
        Locks::connect(&format!("postgres://p/app?listen_url={inner}")).unwrap();
        for (value, expected) in [
            (format!("{inner}?sslmode=require&application_name=x"), wanted),
            ("postgres://db/app?application_name=x&schema=s".to_owned(), wanted),
            (format!("{inner}&application_name=x"), wanted),
            ("db:5432".to_owned(), wanted),
            ("db".to_owned(), wanted),
            ("postgres%3A%2F%2Fh%3Aport%2Fd".to_owned(), "the URL option listen_url: "),
            ("postgres%3A%2F%2Fh%2Fd%3Fx%3D1".to_owned(), "the URL option listen_url: the URL option \"x\""),
        ] {
            let error = Locks::connect(&format!("postgres://p/app?listen_url={value}")).unwrap_err();
            let message = error.to_string();
            assert!(error.is_misconfigured() && message.contains(expected), "{value}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
            assert!(expected != wanted || message.contains(encoded), "{message}");
        }
    }

    /// What a program sets has the same effect on tables of other programs as the option of the URL.
    #[test]
    fn settings_of_programs_apply_to_tables_of_other_programs() {
        let connect = |layout: &str| (format!("postgres://h/d?layout={layout}"), crate::Connect::default());
        let (url, settings) = connect("laravel");
        settings.prefix("app_").max_connections(3).schema("app").connect(&url).unwrap();
        let (url, settings) = connect("shedlock");
        let error = settings.prefix("app_").connect(&url).unwrap_err();
        assert!(
            error.to_string().contains("or that of the program) applies to layout=laravel only"),
            "{error}"
        );
        let (url, settings) = connect("shedlock");
        let error = settings.max_connections(2).connect(&url).unwrap_err();
        assert!(error.to_string().contains("3 connections"), "{error}");
    }
}
