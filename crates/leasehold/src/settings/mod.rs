//! The connection settings of a client or a pool that the program has, for locks on the same server.

#[cfg(feature = "mysql_async")]
mod mysql_async;
#[cfg(feature = "redis-client")]
mod redis_client;
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-mysql", feature = "sqlx-sqlite"))]
mod sqlx;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use std::fmt;

use leasehold_core::Error;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use zeroize::Zeroizing;

use crate::{Locks, connect::Connect, url::Url};

/// The connection settings of a client library: the address of the server, the login, the database and the encryption.
/// [`Locks::connect_like`](crate::Locks::connect_like) converts the configurations and pools of these libraries, each
/// behind a feature of this crate:
///
/// | feature | what it converts |
/// |---|---|
/// | `tokio-postgres` | `tokio_postgres::Config`, also that of a `deadpool_postgres` or `bb8_postgres` pool |
/// | `sqlx-postgres` | `sqlx::PgPool`, `sqlx::postgres::PgConnectOptions` |
/// | `sqlx-mysql` | `sqlx::MySqlPool`, `sqlx::mysql::MySqlConnectOptions` |
/// | `sqlx-sqlite` | `sqlx::SqlitePool`, `sqlx::sqlite::SqliteConnectOptions` |
/// | `mysql_async` | `mysql_async::Opts` |
/// | `redis-client` | `redis::Client`, `redis::ConnectionInfo` |
///
/// The `Debug` output shows no password.
pub struct ConnectionSettings {
    scheme: &'static str,
    /// The host and port, or the path, as the rest of a URL.
    location: String,
    user: Option<String>,
    password: Option<Zeroizing<String>>,
    /// Options of the URL.
    options: Vec<(&'static str, String)>,
    /// Why the TLS settings of the client cannot be read. Then the program must give them.
    unreadable_tls: Option<&'static str>,
}

impl ConnectionSettings {
    /// Settings without login and options.
    fn new(scheme: &'static str, location: String) -> Self {
        let (user, password, options, unreadable_tls) = Default::default();
        Self { scheme, location, user, password, options, unreadable_tls }
    }

    /// Sets the login.
    #[cfg(any(
        feature = "tokio-postgres",
        feature = "sqlx-postgres",
        feature = "sqlx-mysql",
        feature = "mysql_async",
        feature = "redis-client"
    ))]
    fn login(mut self, user: Option<&str>, password: Option<&str>) -> Self {
        self.user = user.map(str::to_owned);
        self.password = password.map(|password| Zeroizing::new(password.to_owned()));
        self
    }

    /// Adds an option, if it has a value.
    fn option(mut self, key: &'static str, value: Option<impl Into<String>>) -> Self {
        self.options.extend(value.map(|value| (key, value.into())));
        self
    }

    /// The settings as a URL. What the program says itself by `connect` replaces the password and the encryption of the
    /// client.
    pub(crate) fn into_url(self, connect: &Connect) -> Result<Url, Error> {
        #[cfg(feature = "tls")]
        let has_tls = connect.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let has_tls = false;
        if let Some(reason) = self.unreadable_tls.filter(|_| !has_tls) {
            return Err(Error::misconfigured(format!("{reason}: give Connect::tls")));
        }
        let mut options = self.options;
        if has_tls {
            // The program says how to verify the server. A mode of the client could verify less, so none is taken over,
            // except the one that turns encryption off: that contradicts the program.
            options.retain(|(key, value)| !TLS_FILES.contains(key) && (!is_mode(key) || turns_off(value)));
        }
        let mut rest = Zeroizing::new("//".to_owned());
        let mut password = self.password.filter(|_| connect.password.is_none());
        // In a URL of PostgreSQL, an empty user is a user without a name, not the default user.
        if self.user.is_none() && self.scheme == "postgres" {
            options.extend(password.take().map(|password| ("password", password.as_str().to_owned())));
        }
        if self.user.is_some() || password.is_some() {
            rest.push_str(&encoded(self.user.unwrap_or_default()));
            if let Some(password) = password {
                rest.push(':');
                rest.push_str(&Zeroizing::new(encoded(password.as_bytes())));
            }
            rest.push('@');
        }
        rest.push_str(&self.location);
        Ok(Url::of(self.scheme, rest.as_str().to_owned(), options))
    }
}

impl Locks {
    /// Locks on the server of a client or a pool that the program has: with its address, login, database and
    /// encryption. [`ConnectionSettings`] lists what can be given.
    ///
    /// The engine makes connections of its own, as few as for a URL, and takes none out of the pool: a lock has
    /// requirements for its connections that a pool does not know, such as notifications and renewals on time. The
    /// page of each engine has their number; for PostgreSQL and MySQL, [`Connect::max_connections`] bounds it. Later
    /// changes of the pool's settings have no effect; for passwords that change, use [`Connect::credentials`].
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect), and [`is_misconfigured`](Error::is_misconfigured) for settings that cannot
    /// be taken over.
    pub fn connect_like<S>(settings: S) -> Result<Self, Error>
    where
        S: TryInto<ConnectionSettings, Error = Error>,
    {
        Connect::default().connect_like(settings)
    }
}

impl Connect {
    /// Locks on the server of a client or a pool of the program, with these options: see [`Locks::connect_like`]. A
    /// password or TLS configuration of these options replaces that of the client.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect), and [`is_misconfigured`](Error::is_misconfigured) for settings that cannot
    /// be taken over.
    pub fn connect_like<S>(self, settings: S) -> Result<Locks, Error>
    where
        S: TryInto<ConnectionSettings, Error = Error>,
    {
        let url = settings.try_into()?.into_url(&self)?;
        self.connect_url(url)
    }
}

/// The options that name files of certificates.
const TLS_FILES: [&str; 6] = ["sslrootcert", "sslcert", "sslkey", "ssl-ca", "ssl-cert", "ssl-key"];

/// Whether an option is a mode of encryption.
fn is_mode(key: &str) -> bool {
    ["sslmode", "ssl-mode"].contains(&key)
}

/// Whether a mode of encryption means that connections are not encrypted.
fn turns_off(mode: &str) -> bool {
    ["disable", "disabled"].iter().any(|off| mode.eq_ignore_ascii_case(off))
}

/// The text with percent escapes.
fn encoded(text: impl AsRef<[u8]>) -> String {
    percent_encode(text.as_ref(), NON_ALPHANUMERIC).to_string()
}

/// A host and port as in a URL.
#[cfg(any(feature = "mysql_async", feature = "redis-client", feature = "sqlx-mysql"))]
fn endpoint(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{}]:{port}", host.trim_matches(['[', ']']))
    } else {
        format!("{host}:{port}")
    }
}

impl fmt::Debug for ConnectionSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, location, user, .. } = self;
        f.debug_struct("ConnectionSettings")
            .field("scheme", scheme)
            .field("location", location)
            .field("user", user)
            .finish_non_exhaustive()
    }
}

#[cfg(all(
    test,
    feature = "tls",
    feature = "tokio-postgres",
    feature = "sqlx-postgres",
    feature = "sqlx-mysql",
    feature = "sqlx-sqlite",
    feature = "mysql_async",
    feature = "redis-client"
))]
#[expect(clippy::unwrap_used, reason = "a test fails by it")]
mod tests;
