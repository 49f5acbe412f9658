//! How the driver's connections are encrypted.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use leasehold_core::BoxFuture;
use leasehold_tls::{Tls, TlsError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};

/// Encrypts.
#[derive(Clone)]
pub(crate) struct Encrypt(pub(crate) Tls);

/// The same, to one host.
pub(crate) struct EncryptTo(Tls, String);

/// An encrypted stream.
pub(crate) struct Encrypted<S>(leasehold_tls::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Encrypt {
    type Stream = Encrypted<S>;
    type TlsConnect = EncryptTo;
    type Error = TlsError;

    fn make_tls_connect(&mut self, host: &str) -> Result<EncryptTo, TlsError> {
        Ok(EncryptTo(self.0.clone(), host.to_owned()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for EncryptTo {
    type Stream = Encrypted<S>;
    type Error = TlsError;
    type Future = BoxFuture<'static, Result<Encrypted<S>, TlsError>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.0.connect(stream, &self.1, &[]).await.map(Encrypted) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Encrypted<S> {
    /// The server is known by its certificate, which is always verified.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
