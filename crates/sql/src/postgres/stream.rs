//! The stream under the driver: bounds the size of one answer, and refuses login methods that expose the password.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use leasehold_core::Bounded;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

use super::messages::{LoginMethod, Messages};

/// Any stream to a server.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream that bounds the size of an answer, and refuses weak login methods.
pub(crate) struct CheckedStream {
    stream: Bounded<Box<dyn Stream>, Messages>,
    /// The channel binding data of an encrypted stream, which distinguishes the server from a man in the middle.
    end_point: Option<Vec<u8>>,
    /// The own address of a TCP connection.
    pub(crate) local_address: Option<SocketAddr>,
    /// How the bytes of this stream travel.
    pub(crate) cover: Cover,
}

/// Whether others can read the bytes of a stream on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// They stay on this machine.
    Local,
    /// The moment after which the certificate of the server is no longer valid, since 1970; `None` if it cannot be
    /// read.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing is encrypted without the feature"))]
    Encrypted {
        certificate_end: Option<Duration>,
    },
    Clear,
}

impl CheckedStream {
    /// Wraps a stream; refuses login methods weaker than `weakest`.
    pub(crate) fn new(stream: Box<dyn Stream>, weakest: LoginMethod, end_point: Option<Vec<u8>>) -> Self {
        let stream = Bounded::new(stream, Messages::new().refuse_weaker_than(weakest));
        Self { stream, end_point, local_address: None, cover: Cover::Clear }
    }

    /// The number of the server's process that serves this session, as it is announced at the end of the login.
    pub(crate) fn announced_process(&self) -> Arc<OnceLock<i32>> {
        self.stream.frames().announced_process()
    }
}

/// Prevents the driver from encrypting the stream: the stream is encrypted already, or is meant to be plain.
pub(crate) struct NoEncryption;

impl TlsConnect<CheckedStream> for NoEncryption {
    type Stream = CheckedStream;
    type Error = Infallible;
    type Future = Ready<Result<CheckedStream, Infallible>>;

    fn connect(self, stream: CheckedStream) -> Self::Future {
        ready(Ok(stream))
    }
}

impl TlsStream for CheckedStream {
    fn channel_binding(&self) -> ChannelBinding {
        self.end_point.clone().map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl AsyncRead for CheckedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        match self.stream.frames().refused() {
            Some(weak) => Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, weak))),
            None => read,
        }
    }
}

impl AsyncWrite for CheckedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
