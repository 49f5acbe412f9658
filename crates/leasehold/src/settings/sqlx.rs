//! The connection options of `sqlx`, and of its pools.

use leasehold_core::Error;
use sqlx::{ConnectOptions, Pool};

use super::ConnectionSettings;
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
use super::encoded;

/// Implements the conversion of a pool by that of its options.
macro_rules! of_pool {
    ($database:ty) => {
        impl TryFrom<&Pool<$database>> for ConnectionSettings {
            type Error = Error;

            /// The same as for the connection options of the pool, which it has at this moment.
            fn try_from(pool: &Pool<$database>) -> Result<Self, Error> {
                pool.connect_options().as_ref().try_into()
            }
        }
    };
}

#[cfg(feature = "sqlx-postgres")]
mod postgres {
    use sqlx::postgres::{PgConnectOptions, Postgres};

    use super::*;

    of_pool!(Postgres);

    impl TryFrom<&PgConnectOptions> for ConnectionSettings {
        type Error = Error;

        /// Takes over the host or socket, the login, the database, the session options and the encryption.
        fn try_from(options: &PgConnectOptions) -> Result<Self, Error> {
            let host = match options.get_socket() {
                Some(socket) => socket.to_str().ok_or_else(not_utf8)?,
                None => options.get_host(),
            };
            // Password and encryption can be read in a URL only. sqlx writes user and host into it without escapes.
            let url = options.clone().username("user").host("host").to_url_lossy();
            let database = options.get_database().map(|database| format!("/{}", encoded(database)));
            let settings = ConnectionSettings::new("postgres", database.unwrap_or_default())
                .login(
                    Some(options.get_username()),
                    url.password().map(decoded).transpose()?.as_deref().map(String::as_str),
                )
                .option("host", Some(host))
                .option("port", Some(options.get_port().to_string()))
                .option("options", options.get_options())
                .option("application_name", options.get_application_name());
            encryption(settings, url.query_pairs(), &["sslmode", "sslrootcert", "sslcert", "sslkey"])
        }
    }
}

#[cfg(feature = "sqlx-mysql")]
mod mysql {
    use sqlx::mysql::{MySql, MySqlConnectOptions};

    use super::*;
    use crate::settings::{encoded, endpoint};

    of_pool!(MySql);

    impl TryFrom<&MySqlConnectOptions> for ConnectionSettings {
        type Error = Error;

        /// Takes over the host or socket, the login, the database and the encryption.
        fn try_from(options: &MySqlConnectOptions) -> Result<Self, Error> {
            let url = options.clone().username("user").host("host").to_url_lossy();
            let database = options.get_database().map(encoded).unwrap_or_default();
            let location = format!("{}/{database}", endpoint(options.get_host(), options.get_port()));
            let socket =
                options.get_socket().map(|socket| socket.to_str().ok_or_else(not_utf8)).transpose()?;
            let settings = ConnectionSettings::new("mysql", location)
                .login(
                    Some(options.get_username()),
                    url.password().map(decoded).transpose()?.as_deref().map(String::as_str),
                )
                .option("socket", socket);
            encryption(settings, url.query_pairs(), &["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"])
        }
    }
}

#[cfg(feature = "sqlx-sqlite")]
mod sqlite {
    use sqlx::sqlite::{Sqlite, SqliteConnectOptions};

    use super::*;

    of_pool!(Sqlite);

    impl TryFrom<&SqliteConnectOptions> for ConnectionSettings {
        type Error = Error;

        /// Takes over the path of the database and whether it is created. A database in memory is refused.
        fn try_from(options: &SqliteConnectOptions) -> Result<Self, Error> {
            let path = options.get_filename().to_str().ok_or_else(not_utf8)?;
            // The mode can be read in a URL only. The path is left out: sqlx panics at some paths of databases in
            // memory.
            let url = options.clone().filename("/file").to_url_lossy();
            let mode = url.query_pairs().find(|(key, _)| key == "mode").map(|(_, mode)| mode.into_owned());
            Ok(ConnectionSettings::new("sqlite", encoded(path)).option("mode", mode))
        }
    }
}

/// Adds the options of the encryption that sqlx has in a URL: the first of `known` is its mode, the others are files.
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-mysql"))]
fn encryption<'a>(
    mut settings: ConnectionSettings,
    query: impl Iterator<Item = (std::borrow::Cow<'a, str>, std::borrow::Cow<'a, str>)>,
    known: &'static [&'static str],
) -> Result<ConnectionSettings, Error> {
    for (key, value) in query {
        let Some(&key) = known.iter().find(|known| **known == key) else { continue };
        // sqlx writes the mode as it is, and a file as in the next line. Anything else is the certificate itself.
        let value = if key == known[0] { Some(&*value) } else { value.strip_prefix("file: ") };
        if value.is_none() {
            settings.unreadable_tls =
                Some("the certificates of the sqlx options are no files, and cannot be taken over");
        }
        settings = settings.option(key, value);
    }
    Ok(settings)
}

/// The password of a URL without its percent escapes.
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-mysql"))]
fn decoded(password: &str) -> Result<zeroize::Zeroizing<String>, Error> {
    crate::url::decode(password).map(zeroize::Zeroizing::new)
}

/// The error for a path that a URL cannot express.
fn not_utf8() -> Error {
    Error::misconfigured("the sqlx options have a path that is not UTF-8")
}
