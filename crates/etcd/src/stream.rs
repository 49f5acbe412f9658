//! The byte stream of a connection: TCP, or TLS.

use leasehold_core::{Endpoint, EngineError};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Config;

/// A byte stream.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> ByteStream for T {}

/// A hint for errors where the server closes the connection before its first reply.
pub(crate) fn tls_hint(config: &Config) -> &'static str {
    #[cfg(feature = "tls")]
    if config.tls.is_some() {
        return "";
    }
    #[cfg(not(feature = "tls"))]
    let _ = config;
    ": if the member wants TLS, write etcds:// instead of etcd://"
}

/// Opens the byte stream to a member.
pub(crate) async fn open(config: &Config, member: &Endpoint) -> Result<Box<dyn ByteStream>, EngineError> {
    let stream = member.connect().await?;
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        use leasehold_core::Fault;
        use leasehold_tls::TlsError;

        return match tls.connect(stream, &member.host, &[b"h2"]).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(TlsError::Broken(error)) => Err(member.unreachable(&error)),
            Err(TlsError::Wrong(what)) => Err(EngineError::new(
                Fault::Misconfigured,
                format!("cannot connect to {member} by TLS: {what}"),
            )),
        };
    }
    #[cfg(not(feature = "tls"))]
    let _ = config;
    Ok(Box::new(stream))
}
