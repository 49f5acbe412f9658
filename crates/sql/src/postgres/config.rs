//! The configuration: the address of the server, and the login.

use std::{fmt, time::Duration};

use leasehold_core::{CONNECT_TIMEOUT, Error, Password, dial_limit};

use super::server::Server;
use crate::{
    Encryption,
    client::{CONNECTIONS, MIN_CONNECTIONS},
    database::{Failed, too_few_connections},
};

/// The longest name of a schema that the server does not cut, in bytes
/// (<https://www.postgresql.org/docs/current/sql-syntax-lexical.html>).
const MAX_IDENTIFIER_BYTES: usize = 63;

/// The address of the server, and the login. Its `Debug` shows no password.
#[derive(Clone)]
pub struct Config {
    pub(crate) server: Server,
    /// The server behind the pooler, for notifications, if `server` is a pooler; else `None`.
    pub(crate) listen: Option<Server>,
    /// The schema of the tables; `None`: the one that the server finds by its `search_path`.
    pub(crate) schema: Option<String>,
    /// A role whose tables are trusted, even if it owns neither their schema nor the database.
    pub(crate) table_owner: Option<String>,
    /// How many connections may serve requests at the same time; the listening connection is another one.
    pub(crate) connections: usize,
    connect_timeout: Duration,
}

impl Config {
    /// The smallest value of [`max_connections`](Self::max_connections): one connection that listens, one for a claim
    /// that waits for a row, and one for renewals meanwhile.
    pub const MIN_CONNECTIONS: usize = MIN_CONNECTIONS + 1;

    /// Parses the part of a `postgres` URL between the scheme and the query:
    /// `//[user[:password]@]host[:port][,host[:port]...][/database]`. The caller must not percent-decode this part.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the text has another form; the message shows the expected form.
    /// No error shows a password.
    pub fn from_url(rest: &str) -> Result<Self, Error> {
        Self::with_parameters(rest, &[])
    }

    /// Like [`from_url`](Self::from_url), with values of some [`PARAMETERS`](super::PARAMETERS) of libpq. One of these
    /// parameters can name the host.
    ///
    /// # Errors
    /// As for [`from_url`](Self::from_url), and for an unknown value.
    pub fn with_parameters(rest: &str, parameters: &[(&str, String)]) -> Result<Self, Error> {
        let server = Server::read(rest, parameters)?;
        Ok(Self {
            server,
            listen: None,
            schema: None,
            table_owner: None,
            connections: CONNECTIONS,
            connect_timeout: CONNECT_TIMEOUT,
        })
    }

    /// Sets the server on which the client listens for notifications. If the URL names a transaction pooler, `listen`
    /// must name the server behind it, because notifications do not pass through a pooler.
    #[must_use]
    pub fn listen(mut self, listen: Self) -> Self {
        self.listen = Some(listen.server);
        self
    }

    /// How many connections the engine has to the server, and to the pooler in front of it, at most and altogether. By
    /// default it has up to 5, and this setting cannot allow more. Most of the time it has one or two.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for less than [`MIN_CONNECTIONS`](Self::MIN_CONNECTIONS).
    pub fn max_connections(mut self, connections: usize) -> Result<Self, Error> {
        if connections < Self::MIN_CONNECTIONS {
            return Err(too_few_connections(Self::MIN_CONNECTIONS));
        }
        self.connections = CONNECTIONS.min(connections - 1);
        Ok(self)
    }

    /// Whether [`listen`](Self::listen) named a server behind a pooler.
    #[must_use]
    pub const fn has_listen_url(&self) -> bool {
        self.listen.is_some()
    }

    /// The time limit for connecting, for all hosts together; [`CONNECT_TIMEOUT`](leasehold_core::CONNECT_TIMEOUT) by
    /// default. One attempt takes 3 s at most. Zero means: no limit except the limit of each attempt.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The time limit for one attempt.
    pub(crate) fn dial_limit(&self) -> Duration {
        dial_limit(self.connect_timeout, 1)
    }

    /// The schema that has the tables, or will have them. By default the `search_path` of the user decides. A schema
    /// that does not exist is created together with the tables, if the user has the right to create it.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if no schema can have this name: it is empty, has more than 63
    /// bytes, which the server would cut, or control characters.
    pub fn schema(mut self, schema: &str) -> Result<Self, Error> {
        if schema.is_empty() || schema.len() > MAX_IDENTIFIER_BYTES || schema.chars().any(char::is_control) {
            return Err(Error::misconfigured(format!(
                "the schema of the tables is empty, has more than {MAX_IDENTIFIER_BYTES} bytes or control characters"
            )));
        }
        self.schema = Some(schema.to_owned());
        Ok(self)
    }

    /// Trusts tables of this role. By default a table is refused if its owner owns neither its schema nor the database,
    /// is no superuser, and is not a role of the user of this client: the owner of a table can make others execute any
    /// code when they use it.
    #[must_use]
    pub fn table_owner(mut self, role: &str) -> Self {
        self.table_owner = Some(role.to_owned());
        self
    }

    /// The password, in place of the passwords in the URLs. Each new connection reads it again.
    #[must_use]
    pub fn password(mut self, password: impl Into<Password>) -> Self {
        let password = password.into();
        for server in self.listen.iter_mut().chain([&mut self.server]) {
            server.password = Some(password.clone());
        }
        self
    }

    /// Whether the connections are encrypted.
    #[must_use]
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.server.encryption = encryption;
        self
    }

    /// Adds the address of the server to the error.
    pub(crate) fn with_address(&self, failed: Failed) -> Failed {
        Failed::new(failed.fault, format!("cannot connect to {}: {}", self.server.address, failed.message))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("address", &self.server.address)
            .field("user", &self.server.driver_config.get_user())
            .field("database", &self.server.driver_config.get_dbname())
            .finish_non_exhaustive()
    }
}
