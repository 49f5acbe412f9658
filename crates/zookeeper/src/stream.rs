//! The bytes under a connection: TCP, or TLS.

use leasehold_core::{Endpoint, EngineError, Fault};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::config::Config;

/// What a connection reads and writes.
pub(crate) type Bytes = (Box<dyn AsyncRead + Unpin + Send>, Box<dyn AsyncWrite + Unpin + Send>);

/// What to try where a server closes the connection before its first answer.
pub(crate) fn wants_tls(config: &Config) -> &'static str {
    #[cfg(feature = "tls")]
    if config.tls.is_some() {
        return "";
    }
    #[cfg(not(feature = "tls"))]
    let _ = config;
    ": if the server wants TLS, write zookeepers:// instead of zookeeper://"
}

pub(crate) async fn open(config: &Config, place: &Endpoint) -> Result<Bytes, EngineError> {
    let failed =
        |error: std::io::Error| EngineError::new(Fault::Retry, format!("cannot connect to {place}: {error}"));
    let stream = TcpStream::connect((place.host.as_str(), place.port)).await.map_err(failed)?;
    // A request that waits for company would wait for a network round trip.
    stream.set_nodelay(true).map_err(failed)?;
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        use leasehold_tls::TlsError;
        return match tls.connect(stream, &place.host, &[]).await {
            Ok(stream) => {
                let (read, write) = tokio::io::split(stream);
                Ok((Box::new(read), Box::new(write)))
            }
            Err(TlsError::Broken(error)) => Err(failed(error)),
            Err(TlsError::Wrong(what)) => Err(EngineError::new(
                Fault::Misconfigured,
                format!("cannot connect to {place} by TLS: {what}"),
            )),
        };
    }
    #[cfg(not(feature = "tls"))]
    let _ = config;
    let (read, write) = stream.into_split();
    Ok((Box::new(read), Box::new(write)))
}
