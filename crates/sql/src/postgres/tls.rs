//! How the driver's connections are encrypted.

use leasehold_core::BoxFuture;
use leasehold_tls::{Tls, TlsError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

use super::stream::Followed;

/// Encrypts.
#[derive(Clone)]
pub(crate) struct Encrypt(pub(crate) Tls);

/// The same, to one host.
pub(crate) struct EncryptTo(Tls, String);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Encrypt {
    type Stream = Followed<leasehold_tls::TlsStream<S>>;
    type TlsConnect = EncryptTo;
    type Error = TlsError;

    fn make_tls_connect(&mut self, host: &str) -> Result<EncryptTo, TlsError> {
        Ok(EncryptTo(self.0.clone(), host.to_owned()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for EncryptTo {
    type Stream = Followed<leasehold_tls::TlsStream<S>>;
    type Error = TlsError;
    type Future = BoxFuture<'static, Result<Self::Stream, TlsError>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.0.connect(stream, &self.1, &[]).await.map(Followed::new) })
    }
}
