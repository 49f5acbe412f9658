//! How a connection reaches its server: locally or over a network, encrypted or not, with or without a password.

use std::{net::IpAddr, time::Duration};

use leasehold_core::Endpoint;

use crate::server::{Address, Server};

/// How a connection reaches its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Whether the bytes stay on this machine.
    pub(crate) path: Path,
    /// Whether the client gives a password.
    pub(crate) has_password: bool,
    pub(crate) is_encrypted: bool,
    /// The moment after which the server's certificate is no longer valid, since 1970; `None` without TLS, or if it
    /// cannot be read.
    pub(crate) certificate_end: Option<Duration>,
}

/// What lies between the client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// A unix socket.
    Socket,
    /// The loopback interface of this machine.
    Loopback,
    /// A network.
    Network,
}

impl Access {
    /// How connections to this server reach it.
    pub(crate) fn of(server: &Server, certificate_end: Option<Duration>) -> Self {
        let path = match &server.address {
            Address::Unix(_) => Path::Socket,
            Address::Tcp(endpoint) if is_loopback(endpoint) => Path::Loopback,
            Address::Tcp(_) => Path::Network,
        };
        let (has_password, is_encrypted) = (server.login.password.is_some(), server.is_encrypted());
        Self { path, has_password, is_encrypted, certificate_end }
    }
}

/// Whether the endpoint is on this machine.
fn is_loopback(endpoint: &Endpoint) -> bool {
    endpoint.host == "localhost" || endpoint.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Login;

    #[test]
    fn the_path_is_known_by_the_address() {
        let tcp = |host: &str| Address::Tcp(Endpoint { host: host.to_owned(), port: 1 });
        for (address, path) in [
            (Address::Unix("/run/redis.sock".into()), Path::Socket),
            (tcp("127.0.0.3"), Path::Loopback),
            (tcp("::1"), Path::Loopback),
            (tcp("localhost"), Path::Loopback),
            (tcp("10.0.0.5"), Path::Network),
            (tcp("localhost.example"), Path::Network),
        ] {
            let server = Server::new(address, Login::default(), Duration::ZERO, 1);
            let expected = Access { path, has_password: false, is_encrypted: false, certificate_end: None };
            assert_eq!(Access::of(&server, None), expected);
        }
    }
}
