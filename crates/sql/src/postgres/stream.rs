//! The connections under the driver, which keep the bound on the size of one answer.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    io,
    pin::Pin,
    task::{Context, Poll},
};

use leasehold_core::Bounded;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tokio_postgres::{
    Config,
    config::{Host, SslMode, SslNegotiation},
    tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream},
};

use super::messages::Messages;

/// Where a server listens by default.
const DEFAULT_PORT: u16 = 5432;

/// A connection whose answers are bounded.
pub(crate) struct Followed<S>(Bounded<S, Messages>);

impl<S> Followed<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self(Bounded::new(stream, Messages::new()))
    }
}

/// Connections without encryption. The driver makes its TCP connections itself and lets only an encryption wrap them: this is one that
/// does nothing, and that the driver is told to begin without asking the server.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

impl Plain {
    /// Sets what the driver needs to use it.
    pub(crate) fn prepare(server: &mut Config) {
        server.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    }

    /// Whether it can be used for these hosts: the driver encrypts nothing on a unix socket.
    pub(crate) fn serves(server: &Config) -> bool {
        server.get_hosts().iter().all(|host| matches!(host, Host::Tcp(_)))
    }
}

/// Connects to the first unix socket of the list that accepts.
pub(crate) async fn near(server: &Config) -> io::Result<Followed<UnixStream>> {
    let port = |at: usize| server.get_ports().get(at).or_else(|| server.get_ports().first());
    let mut last =
        io::Error::new(io::ErrorKind::NotFound, "a list of hosts is either of names or of unix sockets");
    for (at, host) in server.get_hosts().iter().enumerate() {
        let Host::Unix(directory) = host else { continue };
        let port = port(at).copied().unwrap_or(DEFAULT_PORT);
        match UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await {
            Ok(stream) => return Ok(Followed::new(stream)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Plain {
    type Stream = Followed<S>;
    type TlsConnect = Self;
    type Error = Infallible;

    fn make_tls_connect(&mut self, _: &str) -> Result<Self, Infallible> {
        Ok(*self)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Plain {
    type Stream = Followed<S>;
    type Error = Infallible;
    type Future = Ready<Result<Followed<S>, Infallible>>;

    fn connect(self, stream: S) -> Self::Future {
        ready(Ok(Followed::new(stream)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Followed<S> {
    /// An encrypted server is known by its certificate, which is always verified.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Followed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Followed<S> {
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
