//! The byte stream under a connection: TCP, a unix socket, TLS.

use std::time::Duration;

use leasehold_core::{Bounded, Endpoint, EngineError};
#[cfg(feature = "tls")]
use leasehold_tls::TlsError;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{
    error::unreachable,
    frames::ReplyFrames,
    server::{Address, Server},
};

/// The byte stream that a connection reads and writes.
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Bytes for T {}

/// A byte stream, and when the certificate of the server expires.
pub(crate) struct Opened {
    pub(crate) bytes: Box<dyn Bytes>,
    /// The moment after which the server's certificate is no longer valid, since 1970; `None` without TLS, or if it
    /// cannot be read.
    pub(crate) certificate_end: Option<Duration>,
}

/// Connects, with TLS if configured. The stream enforces the bound on the size of replies.
pub(crate) async fn open(server: &Server) -> Result<Opened, EngineError> {
    let failed = |error: std::io::Error| unreachable(&server.address, &error);
    match &server.address {
        Address::Tcp(Endpoint { host, port }) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
            // A small request must not wait for more data to send.
            stream.set_nodelay(true).map_err(failed)?;
            #[cfg(feature = "tls")]
            if let Some(tls) = &server.tls {
                let encrypted = tls.connect(stream, host, &[]).await;
                let encrypted = encrypted.map_err(|error| not_encrypted(error, &server.address))?;
                let certificate_end = leasehold_tls::certificate_end(&encrypted);
                return Ok(Opened { certificate_end, ..bounded(encrypted) });
            }
            Ok(bounded(stream))
        }
        #[cfg(unix)]
        Address::Unix(path) => Ok(bounded(tokio::net::UnixStream::connect(path).await.map_err(failed)?)),
        #[cfg(not(unix))]
        Address::Unix(_) => Err(EngineError::new(
            leasehold_core::Fault::Misconfigured,
            "this system has no unix sockets: connect to the server by a host name or an address",
        )),
    }
}

/// The stream, with the bound on the size of replies.
fn bounded(stream: impl Bytes) -> Opened {
    Opened { bytes: Box::new(Bounded::new(stream, ReplyFrames::new())), certificate_end: None }
}

/// The error of a failed TLS handshake.
#[cfg(feature = "tls")]
fn not_encrypted(error: TlsError, address: &Address) -> EngineError {
    match error {
        TlsError::Wrong(reason) => EngineError::new(
            leasehold_core::Fault::Misconfigured,
            format!("cannot connect to {address} by TLS: {reason}"),
        ),
        TlsError::Broken(error) => unreachable(address, &error),
    }
}
