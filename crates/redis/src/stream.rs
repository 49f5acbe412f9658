//! The bytes under a connection: TCP, a unix socket, TLS.

use leasehold_core::EngineError;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

use crate::{
    config::{Address, Config},
    error::sort_connecting,
};

/// What a connection reads and writes.
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Bytes for T {}

pub(crate) async fn open(config: &Config) -> Result<Box<dyn Bytes>, EngineError> {
    let failed = |error: std::io::Error| sort_connecting(error.into(), &config.address.to_string());
    match &config.address {
        Address::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
            // A request that waits for company would wait for a network round trip.
            stream.set_nodelay(true).map_err(failed)?;
            #[cfg(feature = "tls")]
            if let Some(tls) = &config.tls {
                return tls.wrap(stream, host, &config.address).await;
            }
            Ok(Box::new(stream))
        }
        Address::Unix(path) => Ok(Box::new(UnixStream::connect(path).await.map_err(failed)?)),
    }
}
