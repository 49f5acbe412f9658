//! The connection settings of the crate `redis`.

use leasehold_core::Error;
use redis::{Client, ConnectionAddr, ConnectionInfo};

use super::{ConnectionSettings, encoded, endpoint};

impl TryFrom<&Client> for ConnectionSettings {
    type Error = Error;

    /// The same as for the `ConnectionInfo` of the client.
    fn try_from(client: &Client) -> Result<Self, Error> {
        client.get_connection_info().try_into()
    }
}

impl TryFrom<&ConnectionInfo> for ConnectionSettings {
    type Error = Error;

    /// Takes over the address, the login, the database, and whether connections are encrypted. Certificates of the
    /// client and exceptions from verification cannot be taken over: then the program must give `Connect::tls`.
    fn try_from(info: &ConnectionInfo) -> Result<Self, Error> {
        let unsupported = || {
            Error::misconfigured("the redis client has an address that is neither a host nor a unix socket")
        };
        let login = info.redis_settings();
        let (scheme, location, is_readable) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => ("redis", endpoint(host, *port), true),
            ConnectionAddr::TcpTls { host, port, insecure, tls_params } => {
                ("rediss", endpoint(host, *port), !insecure && tls_params.is_none())
            }
            ConnectionAddr::Unix(path) => {
                let path = path.to_str().filter(|path| path.starts_with('/')).ok_or_else(unsupported)?;
                ("redis+unix", format!("/{}", encoded(&path[1..])), true)
            }
            _ => return Err(unsupported()),
        };
        let mut settings = Self::new(scheme, location)
            .login(login.username(), login.password())
            .option("db", (login.db() != 0).then(|| login.db().to_string()));
        if !is_readable {
            settings.unreadable_tls =
                Some("the TLS settings of the redis client are its own, and cannot be taken over");
        }
        Ok(settings)
    }
}
