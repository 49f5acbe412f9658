//! Where the server is, and who we are there.

use std::{fmt, time::Duration};

use leasehold_core::{CONNECT_TIMEOUT, Error, Password, dial_limit};

use super::server::Server;
use crate::{Encryption, database::Failed};

/// Where the server is, and who we are there. Its `Debug` shows no password.
#[derive(Clone)]
pub struct Config {
    pub(crate) server: Server,
    /// The server itself, where `server` is a pooler in front of it.
    pub(crate) listen: Option<Server>,
    /// Where the tables are; `None`: where the server finds them by its `search_path`.
    pub(crate) schema: Option<String>,
    /// Whose tables are trusted, though that one owns neither their schema nor the database.
    pub(crate) table_owner: Option<String>,
    connect_timeout: Duration,
}

impl Config {
    /// Reads what follows the scheme `postgres` in a URL, up to the query, as it stands there:
    /// `//[user[:password]@]host[:port][,host[:port]...][/database]`.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured), with the form that is expected. No error shows a password.
    pub fn from_url(rest: &str) -> Result<Self, Error> {
        Self::with_parameters(rest, &[])
    }

    /// The same, with some of the [`PARAMETERS`](super::PARAMETERS) of libpq. The host may stand there.
    ///
    /// # Errors
    /// As [`from_url`](Self::from_url), or that a value is not understood.
    pub fn with_parameters(rest: &str, parameters: &[(&str, String)]) -> Result<Self, Error> {
        let server = Server::read(rest, parameters)?;
        let connect_timeout = CONNECT_TIMEOUT;
        Ok(Self { server, listen: None, schema: None, table_owner: None, connect_timeout })
    }

    /// The server itself, for a URL that leads to a transaction pooler: notifications do not pass through one.
    #[must_use]
    pub fn listen(mut self, listen: Self) -> Self {
        self.listen = Some(listen.server);
        self
    }

    /// How long connecting may take, to all hosts together; [`CONNECT_TIMEOUT`](leasehold_core::CONNECT_TIMEOUT) by default. An attempt takes
    /// 3 s at most. Zero is none but that.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Its limit for one attempt.
    pub(crate) fn dial_limit(&self) -> Duration {
        dial_limit(self.connect_timeout, 1)
    }

    /// The schema that has the tables, or is to have them. By default they are found by the `search_path` of the user.
    #[must_use]
    pub fn schema(mut self, schema: &str) -> Self {
        self.schema = Some(schema.to_owned());
        self
    }

    /// Trusts tables of this role. By default those are refused that belong to somebody who owns neither their schema nor the
    /// database, is no superuser, and no role of ours: whoever owns a table can make others run what he wants when they use it.
    #[must_use]
    pub fn table_owner(mut self, role: &str) -> Self {
        self.table_owner = Some(role.to_owned());
        self
    }

    /// How we prove who we are, in place of the passwords in the URLs; asked for at each connection.
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

    /// The error, with where it happened.
    pub(crate) fn say(&self, failed: Failed) -> Failed {
        Failed::new(failed.fault, format!("cannot connect to {}: {}", self.server.place, failed.message))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("place", &self.server.place)
            .field("user", &self.server.driver.get_user())
            .field("database", &self.server.driver.get_dbname())
            .finish_non_exhaustive()
    }
}
