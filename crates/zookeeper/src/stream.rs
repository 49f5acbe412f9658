//! The byte stream of a connection: TCP or TLS.

use std::time::Duration;

use leasehold_core::{Endpoint, EngineError};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Config;

/// The two halves of a byte stream.
pub(crate) type StreamHalves = (Box<dyn AsyncRead + Unpin + Send>, Box<dyn AsyncWrite + Unpin + Send>);

/// A byte stream that was opened.
pub(crate) struct Opened {
    pub(crate) halves: StreamHalves,
    /// The moment after which the certificate of the server is no longer valid, since 1970; `None` without TLS, or if
    /// it cannot be read.
    pub(crate) certificate_end: Option<Duration>,
}

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
pub(crate) async fn open(config: &Config, endpoint: &Endpoint) -> Result<Opened, EngineError> {
    let stream = endpoint.connect().await?;
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        use leasehold_core::Fault;
        use leasehold_tls::TlsError;

        return match tls.connect(stream, &endpoint.host, &[]).await {
            Ok(stream) => {
                let certificate_end = leasehold_tls::certificate_end(&stream);
                let (read, write) = tokio::io::split(stream);
                Ok(Opened { halves: (Box::new(read), Box::new(write)), certificate_end })
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
    Ok(Opened { halves: (Box::new(read), Box::new(write)), certificate_end: None })
}
