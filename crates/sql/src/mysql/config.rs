//! The configuration: the address of the server, and the login.

use std::{fmt, time::Duration};

use leasehold_core::{CONNECT_TIMEOUT, Endpoint, Error, Password, dial_limit};
use mysql_async::OptsBuilder;
use percent_encoding::percent_decode_str;

use crate::{
    Encryption,
    client::{CONNECTIONS, MIN_CONNECTIONS},
    database::{Failed, too_few_connections},
};

const DEFAULT_PORT: u16 = 3306;
/// After how much silence TCP checks whether the other side still exists.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(10);
/// The maximum size of a packet. No packet of ours is that long; a server with a lower limit answers with an error.
const MAX_PACKET: usize = 64 << 20;
/// How many statements stay prepared on a connection: those of the fast path for one name.
const PREPARED: usize = 2;

/// The address of the server, and the login. Its `Debug` shows no password.
#[derive(Clone)]
pub struct Config {
    pub(super) endpoint: Endpoint,
    /// The path of a unix socket, used in place of the endpoint.
    pub(super) socket: Option<String>,
    user: Option<String>,
    pub(super) password: Option<Password>,
    pub(super) database: String,
    pub(super) encryption: Encryption,
    /// How many connections there are at most.
    pub(crate) connections: usize,
    connect_timeout: Duration,
    /// Whether connections report at once that the server has closed them.
    pub(super) is_watched: bool,
    /// Whether the last connection was made without TLS, because the two sides could not use TLS.
    #[cfg(feature = "tls")]
    pub(super) last_was_unencrypted: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Config {
    /// The smallest value of [`max_connections`](Self::max_connections): one connection for a claim that waits for a
    /// row, and one for renewals meanwhile.
    pub const MIN_CONNECTIONS: usize = MIN_CONNECTIONS;

    /// Parses the part of a `mysql` URL between the scheme and the query: `//[user[:password]@]host[:port]/database`.
    /// The caller must not percent-decode this part.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the text has another form; the message shows the expected form.
    /// No error shows a password.
    pub fn from_url(rest: &str) -> Result<Self, Error> {
        Self::with_socket(rest, None, None)
    }

    /// Like [`from_url`](Self::from_url), but for a server on the unix socket `socket`, if it is given: then the host
    /// in the URL is ignored. If `schema` is given, it is the database that has the tables, in place of the database in
    /// the URL, which can then be absent.
    ///
    /// # Errors
    /// As for [`from_url`](Self::from_url), and for an empty schema.
    pub fn with_socket(rest: &str, socket: Option<&str>, schema: Option<&str>) -> Result<Self, Error> {
        let remainder =
            rest.strip_prefix("//").filter(|rest| !rest.contains(['?', '#'])).ok_or_else(malformed)?;
        let (login, location) =
            remainder.rsplit_once('@').map_or((None, remainder), |(login, location)| (Some(login), location));
        let (endpoint, path) = location.split_once('/').unwrap_or((location, ""));
        let (host, port) = Endpoint::split(endpoint, DEFAULT_PORT).ok_or_else(malformed)?;
        let database = match schema {
            Some("") => return Err(Error::misconfigured("the database of the tables is empty")),
            Some(schema) => schema.to_owned(),
            None => decoded(path)?,
        };
        if host.is_empty() && socket.is_none() || database.is_empty() || path.contains('/') {
            return Err(malformed());
        }
        let (user, password) = login.map_or((None, None), |login| {
            let (user, password) =
                login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
            (Some(user), password)
        });
        if user == Some("") {
            return Err(malformed());
        }
        Ok(Self {
            endpoint: Endpoint { host: decoded(host)?, port },
            socket: socket.map(str::to_owned),
            user: user.map(decoded).transpose()?,
            password: password.map(decoded).transpose()?.map(Password::from),
            database,
            encryption: Encryption::Off,
            connections: CONNECTIONS,
            connect_timeout: CONNECT_TIMEOUT,
            is_watched: false,
            #[cfg(feature = "tls")]
            last_was_unencrypted: std::sync::Arc::default(),
        })
    }

    /// How many connections the engine has to the server at most. By default it has up to 4, and this setting cannot
    /// allow more. Most of the time it has one.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for less than [`MIN_CONNECTIONS`](Self::MIN_CONNECTIONS).
    pub fn max_connections(mut self, connections: usize) -> Result<Self, Error> {
        if connections < Self::MIN_CONNECTIONS {
            return Err(too_few_connections(Self::MIN_CONNECTIONS));
        }
        self.connections = CONNECTIONS.min(connections);
        Ok(self)
    }

    /// The time limit for connecting; [`CONNECT_TIMEOUT`](leasehold_core::CONNECT_TIMEOUT) by default. One attempt
    /// takes 3 s at most. Zero means: no limit except the limit of each attempt.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The time limit for one attempt.
    pub(crate) fn dial_limit(&self) -> Duration {
        dial_limit(self.connect_timeout, 1)
    }

    /// The password. Each new connection reads it again.
    #[must_use]
    pub fn password(mut self, password: impl Into<Password>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Whether the connections are encrypted. The caller must give certificates as files, because the driver accepts no
    /// rustls configuration.
    #[must_use]
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = encryption;
        self
    }

    /// The same, for connections that report at once that the server has closed them.
    pub(super) fn watched(&self) -> Self {
        Self { is_watched: true, ..self.clone() }
    }

    /// The options of the driver, beside those of TLS.
    pub(super) async fn opts(&self) -> Result<OptsBuilder, Failed> {
        let (user, password) = match &self.password {
            Some(password) => {
                let (user, password) = password.read_login().await?;
                (user, Some(password.as_str().to_owned()))
            }
            None => (None, None),
        };
        let opts = OptsBuilder::default()
            .ip_or_hostname(self.endpoint.host.clone())
            .tcp_port(self.endpoint.port)
            .socket(self.socket.clone())
            .user(user.or_else(|| self.user.clone()))
            .pass(password)
            .db_name(Some(self.database.clone()))
            .tcp_keepalive(Some(KEEPALIVE))
            // Otherwise the driver would switch to a unix socket on the server's own machine. There the server possibly
            // knows the user under another name.
            .prefer_socket(false)
            // Set here, so that the driver does not ask the server.
            .max_allowed_packet(Some(MAX_PACKET))
            .wait_timeout(Some(0))
            .stmt_cache_size(PREPARED);
        Ok(opts)
    }

    /// The address of the server, for messages.
    pub(super) fn address(&self) -> String {
        self.socket.clone().unwrap_or_else(|| self.endpoint.to_string())
    }

    /// Adds the address of the server to the error.
    pub(super) fn with_address(&self, failed: &Failed) -> Failed {
        Failed::new(failed.fault, format!("cannot connect to {}: {}", self.address(), failed.message))
    }
}

/// The error for a malformed URL.
fn malformed() -> Error {
    Error::misconfigured("the mysql URL is to be written like mysql://user@host:3306/database")
}

/// Decodes percent escapes.
fn decoded(text: &str) -> Result<String, Error> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(std::borrow::Cow::into_owned).map_err(|_| malformed())
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("endpoint", &self.endpoint)
            .field("user", &self.user)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn urls_are_parsed() {
        let all = Config::from_url("//u%40x:p%2Fw:d@[::1]:7/data%20base").unwrap();
        assert_eq!(all.endpoint, Endpoint { host: "::1".to_owned(), port: 7 });
        let password = all.password.as_ref().unwrap().read().now_or_never().unwrap().unwrap();
        assert_eq!((all.user.as_deref(), password.as_str()), (Some("u@x"), "p/w:d"));
        assert_eq!(all.database, "data base");
        for rest in ["//h", "//h/", "//h/d"] {
            assert_eq!(Config::with_socket(rest, None, Some("locks/x")).unwrap().database, "locks/x");
        }
        let least = Config::from_url("//h/d").unwrap();
        assert_eq!(least.endpoint, Endpoint { host: "h".to_owned(), port: DEFAULT_PORT });
        assert!(least.user.is_none() && least.password.is_none());
    }

    #[test]
    fn parse_errors_do_not_show_the_password() {
        for rest in [
            "h/d",
            "//h",
            "//h/",
            "///d",
            "//u:hunter2@h:x/d",
            "//u:hunter2@h/d/e",
            "//:hunter2@h/d",
            "//h/d?x",
            "//u:hunter2%ff@h/d",
        ] {
            let error = Config::from_url(rest).unwrap_err();
            assert!(error.is_misconfigured(), "{rest}: {error}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
        let config = Config::from_url("//u:hunter2@h/d").unwrap();
        assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
        let failed = config.with_address(&Failed::new(leasehold_core::Fault::Retry, "x"));
        assert_eq!(failed.message, "cannot connect to h:3306: x");
    }
}
