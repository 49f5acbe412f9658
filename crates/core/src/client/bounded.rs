//! The size limit of one reply. Client libraries reserve as much memory as the header of a reply asks for. So the limit
//! is checked in the connection below the client library: the connection fails before it passes on a header that asks
//! for too much.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The largest reply accepted from a server, on every engine, in bytes. Even the reply about a name with the most
/// possible waiters is far smaller.
pub const LONGEST_REPLY: usize = 64 << 20;

/// A parser of a protocol that finds the boundaries of replies in the bytes that a server sends.
pub trait Frames: Send + Unpin + 'static {
    /// Reads the next bytes. They may begin and end anywhere in a reply.
    ///
    /// # Errors
    /// A reply is larger than [`LONGEST_REPLY`], or malformed.
    fn read_part(&mut self, bytes: &[u8]) -> Result<(), TooLong>;
}

/// The error for a reply that is larger than [`LONGEST_REPLY`], or malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reply is larger than 64 MiB or malformed: is it the server that the URL names?")]
pub struct TooLong;

/// How many more bytes the reply that is being read may have, within [`LONGEST_REPLY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room(u64);

impl Room {
    /// The room at the beginning of a reply: the whole limit.
    #[must_use]
    pub const fn whole() -> Self {
        Self(LONGEST_REPLY as u64)
    }

    /// Subtracts the size of a part of the reply.
    ///
    /// # Errors
    /// The part is larger than the room.
    pub fn take(&mut self, bytes: u64) -> Result<(), TooLong> {
        self.0 = self.0.checked_sub(bytes).ok_or(TooLong)?;
        Ok(())
    }
}

/// A connection that fails before it passes on the beginning of a reply that is larger than [`LONGEST_REPLY`].
#[derive(Debug)]
pub struct Bounded<S, F> {
    stream: S,
    frames: F,
    /// A reply was too large or malformed: every further read fails.
    failed: bool,
}

impl<S, F: Frames> Bounded<S, F> {
    /// Wraps a connection from which nothing has been read yet.
    pub const fn new(stream: S, frames: F) -> Self {
        Self { stream, frames, failed: false }
    }

    /// The parser that follows the replies.
    pub const fn frames(&self) -> &F {
        &self.frames
    }
}

impl<S: AsyncRead + Unpin, F: Frames> AsyncRead for Bounded<S, F> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let old_length = buffer.filled().len();
        if !this.failed {
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            let new_bytes = buffer.filled().get(old_length..).unwrap_or_default();
            this.failed = this.frames.read_part(new_bytes).is_err();
        }
        if this.failed {
            buffer.set_filled(old_length);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, TooLong)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, F: Frames> AsyncWrite for Bounded<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A protocol in which each byte is the header of a reply, and its value is the size of that reply in MiB.
    struct Megabytes;

    impl Frames for Megabytes {
        fn read_part(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
            bytes.iter().try_for_each(|&byte| Room::whole().take(u64::from(byte) << 20))
        }
    }

    #[test]
    fn an_oversized_header_ends_the_connection() {
        let sent: &[u8] = &[1, 64, 65, 1];
        let mut connection = Bounded::new(stream_of(sent), Megabytes);
        let mut read = |length: usize| {
            let mut space = vec![0; length];
            let mut buffer = ReadBuf::new(&mut space);
            let mut context = Context::from_waker(std::task::Waker::noop());
            match Pin::new(&mut connection).poll_read(&mut context, &mut buffer) {
                Poll::Ready(result) => result.map(|()| buffer.filled().to_vec()),
                Poll::Pending => panic!("all bytes have arrived"),
            }
        };
        assert_eq!(read(2).unwrap(), [1, 64]);
        let error = read(2).unwrap_err();
        assert!(error.to_string().contains("larger than 64 MiB"), "{error}");
        assert!(read(1).is_err(), "the connection has failed");
    }

    /// A connection on which these bytes have arrived.
    fn stream_of(bytes: &'static [u8]) -> impl AsyncRead + Unpin {
        bytes
    }
}
