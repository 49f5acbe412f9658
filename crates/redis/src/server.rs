//! One server that a client connects to: its address, its login and its encryption.

use std::{fmt, path::PathBuf, time::Duration};

use leasehold_core::{Endpoint, EngineError, Password, dial_limit};
use zeroize::Zeroizing;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// The server listens on a host and port.
    Tcp(Endpoint),
    /// The server listens on a unix socket of this machine.
    Unix(PathBuf),
}

/// One of the servers of a URL, and how to connect to it.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: Address,
    pub(crate) login: Login,
    /// The database number.
    pub(crate) db: u32,
    /// The time limit of one attempt to connect.
    pub(crate) limit: Duration,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::Tls>,
}

/// The user and the password of one connection.
pub(crate) type CurrentLogin = (Option<String>, Option<Zeroizing<String>>);

/// The login at a server.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Password>,
}

impl Login {
    /// The user and the password for a new connection. A source of passwords that also names a user replaces the user
    /// of the URL.
    pub(crate) async fn read(&self) -> Result<CurrentLogin, EngineError> {
        let Some(password) = &self.password else { return Ok((self.user.clone(), None)) };
        let (user, password) = password.read_login().await?;
        Ok((user.or_else(|| self.user.clone()), Some(password)))
    }
}

impl Server {
    /// One of `servers` servers that are tried in turn: all of them share the time limit for connecting, `timeout`.
    pub(crate) fn new(address: Address, login: Login, timeout: Duration, servers: usize) -> Self {
        let limit = dial_limit(timeout, servers);
        Self {
            address,
            login,
            db: 0,
            limit,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Whether connections to the server use TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(endpoint) => endpoint.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}
