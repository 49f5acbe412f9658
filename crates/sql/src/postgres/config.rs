//! Where the server is, and who we are there.

use std::{fmt, time::Duration};

use leasehold_core::{Error, Password};

use crate::database::Failed;

/// How long nothing comes on a connection before its other side is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Where the server is, and who we are there. Its `Debug` shows no password.
#[derive(Clone)]
pub struct Config {
    pub(crate) server: tokio_postgres::Config,
    /// The server itself, where `server` is a pooler in front of it.
    pub(crate) listen: Option<tokio_postgres::Config>,
    /// Where the tables are; `None`: where the server finds them by its `search_path`.
    pub(crate) schema: Option<String>,
    /// Whose tables are trusted, though that one owns neither their schema nor the database.
    pub(crate) table_owner: Option<String>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<leasehold_tls::Tls>,
    /// In place of that in the URLs.
    pub(crate) password: Option<Password>,
    /// For messages.
    place: String,
}

impl Config {
    /// Reads what follows the scheme `postgres` in a URL, up to the query, as it stands there:
    /// `//[user:password@]host[:port][/database]`.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured), with the form that is expected. No error shows a password.
    pub fn from_url(rest: &str) -> Result<Self, Error> {
        let (server, place) = read(rest)?;
        Ok(Self {
            server,
            listen: None,
            schema: None,
            table_owner: None,
            #[cfg(feature = "tls")]
            tls: None,
            password: None,
            place,
        })
    }

    /// The server itself, for a URL that leads to a transaction pooler: notifications do not pass through one. Written as a whole
    /// URL.
    ///
    /// # Errors
    /// As [`from_url`](Self::from_url).
    pub fn listen(mut self, url: &str) -> Result<Self, Error> {
        let rest = url.strip_prefix("postgres:").or_else(|| url.strip_prefix("postgresql:"));
        self.listen = Some(read(rest.ok_or_else(malformed)?)?.0);
        Ok(self)
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
        self.password = Some(password.into());
        self
    }

    /// Encrypts the connections; a server that does not is not used.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: leasehold_tls::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The error, with where it happened.
    pub(crate) fn say(&self, failed: Failed) -> Failed {
        Failed::new(failed.fault, format!("cannot connect to {}: {}", self.place, failed.message))
    }
}

fn malformed() -> Error {
    Error::misconfigured("the postgres URL is to be written like postgres://user@host:5432/database")
}

fn read(rest: &str) -> Result<(tokio_postgres::Config, String), Error> {
    let known = rest.strip_prefix("//").filter(|rest| !rest.contains(['?', '#'])).ok_or_else(malformed)?;
    let place = known.rsplit_once('@').map_or(known, |(_, place)| place);
    let place = place.split('/').next().unwrap_or(place).to_owned();
    if place.is_empty() {
        return Err(malformed());
    }
    // What is wrong may be the password, so the parser's own words are not repeated.
    let mut server: tokio_postgres::Config = format!("postgres:{rest}").parse().map_err(|_| malformed())?;
    server.application_name("leasehold");
    // A host that is gone without a word is noticed; the time limit of a request is shorter, but ends no connection that is idle.
    server.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE / 3).keepalives_retries(3);
    Ok((server, place))
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("place", &self.place)
            .field("user", &self.server.get_user())
            .field("database", &self.server.get_dbname())
            .finish_non_exhaustive()
    }
}
