//! The byte stream of a connection: TCP, or TLS.

use std::time::Duration;

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

/// A byte stream to a member, and when the certificate of the member expires.
pub(crate) struct Opened {
    pub(crate) bytes: Box<dyn ByteStream>,
    /// The moment after which the certificate is no longer valid, since 1970; `None` without TLS, or if it cannot be
    /// read.
    pub(crate) certificate_end: Option<Duration>,
}

/// The protocol of requests: HTTP/2.
pub(crate) const HTTP_2: &[&[u8]] = &[b"h2"];

/// Opens the byte stream to a member, for one of these protocols.
pub(crate) async fn open(
    config: &Config,
    member: &Endpoint,
    protocols: &[&[u8]],
) -> Result<Opened, EngineError> {
    let stream = member.connect().await?;
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        use leasehold_core::Fault;
        use leasehold_tls::TlsError;

        return match tls.connect(stream, &member.host, protocols).await {
            Ok(stream) => {
                let certificate_end = leasehold_tls::certificate_end(&stream);
                Ok(Opened { bytes: Box::new(stream), certificate_end })
            }
            Err(TlsError::Broken(error)) => Err(member.unreachable(&error)),
            Err(TlsError::Wrong(what)) => Err(EngineError::new(
                Fault::Misconfigured,
                format!("cannot connect to {member} by TLS: {what}"),
            )),
        };
    }
    #[cfg(not(feature = "tls"))]
    let _ = (config, protocols);
    Ok(Opened { bytes: Box::new(stream), certificate_end: None })
}
