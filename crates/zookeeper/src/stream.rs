//! The byte stream of a connection: TCP or TLS.

use leasehold_core::{Endpoint, EngineError};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Config;

/// The two halves of a byte stream.
pub(crate) type StreamHalves = (Box<dyn AsyncRead + Unpin + Send>, Box<dyn AsyncWrite + Unpin + Send>);

/// A hint for the error of a server that closes the connection before its first answer.
pub(crate) fn tls_hint(config: &Config) -> &'static str {
    #[cfg(feature = "tls")]
    if config.tls.is_some() {
        return "";
    }
    #[cfg(not(feature = "tls"))]
    let _ = config;
    ": if the server wants TLS, write zookeepers:// instead of zookeeper://"
}

/// Opens the byte stream to a server.
pub(crate) async fn open(config: &Config, endpoint: &Endpoint) -> Result<StreamHalves, EngineError> {
    let stream = endpoint.connect().await?;
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        use leasehold_core::Fault;
        use leasehold_tls::TlsError;

        return match tls.connect(stream, &endpoint.host, &[]).await {
            Ok(stream) => {
                let (read, write) = tokio::io::split(stream);
                Ok((Box::new(read), Box::new(write)))
            }
            Err(TlsError::Broken(error)) => Err(endpoint.unreachable(&error)),
            Err(TlsError::Wrong(what)) => Err(EngineError::new(
                Fault::Misconfigured,
                format!("cannot connect to {endpoint} by TLS: {what}"),
            )),
        };
    }
    #[cfg(not(feature = "tls"))]
    let _ = config;
    let (read, write) = stream.into_split();
    Ok((Box::new(read), Box::new(write)))
}
