//! A connection for notifications of slots, with its own writer and parser: when a slot moves, the server sends a
//! `sunsubscribe` that no command asked for, and the client library would take it for the answer to a command. The
//! connection uses the old protocol (RESP2), in which every notification names its kind.

use leasehold_core::EngineError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    error::{script_error, unreachable},
    server::Server,
    stream,
};

/// One value that the server sends, in the Redis protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A simple string or a number.
    Text(String),
    Error(String),
    Bytes(Vec<u8>),
    /// A null.
    Null,
    List(Vec<Frame>),
}

/// The connection for notifications of slots.
pub(crate) struct ShardWire {
    stream: Box<dyn stream::Bytes>,
    /// Bytes that were received and not yet parsed.
    received: Vec<u8>,
}

/// The bytes are not of the Redis protocol.
#[derive(Debug)]
pub(crate) struct Malformed;

impl ShardWire {
    /// Connects and logs in.
    pub(crate) async fn open(server: &Server) -> Result<Self, EngineError> {
        let mut wire = Self { stream: stream::open(server).await?.bytes, received: Vec::new() };
        if let (user, Some(password)) = server.login.read().await? {
            let user = user.as_deref();
            let words: Vec<&str> = ["AUTH"].into_iter().chain(user).chain([password.as_str()]).collect();
            let broken_error = |error| unreachable(&server.address, &error);
            wire.send(&words).await.map_err(broken_error)?;
            if let Frame::Error(content) = wire.next().await.map_err(broken_error)? {
                return Err(script_error(&content));
            }
        }
        Ok(wire)
    }

    /// Sends a command of these words.
    pub(crate) async fn send(&mut self, command: &[&str]) -> std::io::Result<()> {
        let mut bytes = format!("*{}\r\n", command.len());
        for word in command {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.write_all(bytes.as_bytes()).await?;
        self.stream.flush().await
    }

    /// The next frame.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> std::io::Result<Frame> {
        loop {
            match read_frame(&self.received) {
                Ok(Some((frame, length))) => {
                    self.received.drain(..length);
                    return Ok(frame);
                }
                // The server closed the connection.
                Ok(None) if self.stream.read_buf(&mut self.received).await? == 0 => {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                // The end of the frame has not arrived yet.
                Ok(None) => {}
                Err(Malformed) => return Err(std::io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

/// The first frame and its length in bytes; `None` if its end has not arrived yet.
pub(crate) fn read_frame(bytes: &[u8]) -> Result<Option<(Frame, usize)>, Malformed> {
    let mut rest = bytes;
    let frame = parse_frame(&mut rest, 0)?;
    Ok(frame.map(|frame| (frame, bytes.len() - rest.len())))
}

/// The deepest nesting of lists that is accepted: notifications are lists of texts.
const MAX_DEPTH: u32 = 4;

/// Parses a frame at the beginning of `rest`, and moves `rest` behind that frame; `None` if the end of the frame has
/// not arrived yet.
fn parse_frame(rest: &mut &[u8], depth: u32) -> Result<Option<Frame>, Malformed> {
    let Some(end) = rest.windows(2).position(|bytes| bytes == b"\r\n") else { return Ok(None) };
    let (line, after) = (&rest[..end], &rest[end + 2..]);
    let Some((kind, line)) = line.split_first() else { return Err(Malformed) };
    let text = || std::str::from_utf8(line).map_err(|_| Malformed);
    *rest = after;
    Ok(Some(match kind {
        b'+' | b':' => Frame::Text(text()?.to_owned()),
        b'-' => Frame::Error(text()?.to_owned()),
        b'$' => {
            let Ok(length) = usize::try_from(text()?.parse::<i64>().map_err(|_| Malformed)?) else {
                return Ok(Some(Frame::Null));
            };
            let Some(end) = length.checked_add(2) else { return Err(Malformed) };
            let Some((content, after)) = rest.split_at_checked(end) else { return Ok(None) };
            *rest = after;
            Frame::Bytes(content[..length].to_vec())
        }
        b'*' if depth < MAX_DEPTH => {
            let count = text()?.parse::<i64>().map_err(|_| Malformed)?;
            let mut list = Vec::new();
            for _ in 0..count {
                let Some(part) = parse_frame(rest, depth + 1)? else { return Ok(None) };
                list.push(part);
            }
            Frame::List(list)
        }
        _ => return Err(Malformed),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_in_any_pieces() {
        let notification = b"*3\r\n$8\r\nsmessage\r\n$3\r\na\r\n\r\n:-1\r\n";
        let whole = Frame::List(vec![
            Frame::Bytes(b"smessage".to_vec()),
            Frame::Bytes(b"a\r\n".to_vec()),
            Frame::Text("-1".to_owned()),
        ]);
        let twice = notification.repeat(2);
        assert_eq!(read_frame(&twice).unwrap(), Some((whole, notification.len())));
        for cut in 0..notification.len() {
            assert_eq!(read_frame(&notification[..cut]).unwrap(), None, "cut at {cut}");
        }
        assert_eq!(read_frame(b"-ERR no\r\n").unwrap(), Some((Frame::Error("ERR no".to_owned()), 9)));
        assert_eq!(read_frame(b"$-1\r\n").unwrap(), Some((Frame::Null, 5)));
    }

    #[test]
    fn malformed_frames_are_refused() {
        for malformed in
            ["\r\n", "x\r\n", "$x\r\n", "*x\r\n", "$9223372036854775808\r\n", &"*1\r\n".repeat(9), ">1\r\n"]
        {
            assert!(read_frame(malformed.as_bytes()).is_err(), "{malformed:?}");
        }
    }
}
