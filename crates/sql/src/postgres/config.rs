//! The configuration: the address of the server, and the login.

use std::{fmt, time::Duration};

use leasehold_core::{CONNECT_TIMEOUT, Error, Password, dial_limit};

use super::server::Server;
use crate::{Encryption, database::Failed};

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
    connect_timeout: Duration,
}

impl Config {
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
        let connect_timeout = CONNECT_TIMEOUT;
        Ok(Self { server, listen: None, schema: None, table_owner: None, connect_timeout })
    }

    /// Sets the server on which the client listens for notifications. If the URL names a transaction pooler, `listen`
    /// must name the server behind it, because notifications do not pass through a pooler.
    #[must_use]
    pub fn listen(mut self, listen: Self) -> Self {
        self.listen = Some(listen.server);
        self
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

    /// The schema that has the tables, or will have them. By default the `search_path` of the user decides.
    #[must_use]
    pub fn schema(mut self, schema: &str) -> Self {
        self.schema = Some(schema.to_owned());
        self
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
