//! A minimal client for the Redis protocol.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

/// The reply to a command. `Ok`: its lines; the items of nested arrays become lines of one list, and nil becomes an
/// empty line. `Err`: the error of the server.
pub type RedisAnswer = Result<Vec<String>, String>;

/// The end of a line.
const LINE_END: &str = "\r\n";

/// A connection to a server of this machine.
pub(super) struct RedisConnection {
    stream: BufReader<TcpStream>,
}

impl RedisConnection {
    /// Connects and logs in. No reply may take longer than `timeout`.
    pub(super) fn connect(port: u16, password: Option<&str>, timeout: Duration) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        let mut connection = Self { stream: BufReader::new(stream) };
        if let Some(password) = password {
            connection.call(&["AUTH", password])?.map_err(io::Error::other)?;
        }
        Ok(connection)
    }

    /// Sends a command and waits for the reply.
    pub(super) fn call(&mut self, words: &[&str]) -> io::Result<RedisAnswer> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut lines = Vec::new();
        Ok(self.read_reply(&mut lines)?.map(|()| lines))
    }

    /// Reads one reply and appends its lines.
    fn read_reply(&mut self, lines: &mut Vec<String>) -> io::Result<Result<(), String>> {
        let mut head = String::new();
        self.stream.read_line(&mut head)?;
        let head = head.strip_suffix(LINE_END).ok_or(io::ErrorKind::UnexpectedEof)?;
        let (kind, rest) = head.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        match kind {
            // The kinds: `-` an error, `$` a text, `*` an array, others a line.
            "-" => return Ok(Err(rest.to_owned())),
            "$" => lines.extend(self.read_text(number()?)?.lines().map(str::to_owned)),
            "*" => {
                for _ in 0..number()? {
                    // An error as one of the replies in an array, as in a transaction.
                    if let Err(error) = self.read_reply(lines)? {
                        lines.push(error);
                    }
                }
            }
            _ => lines.push(rest.to_owned()),
        }
        Ok(Ok(()))
    }

    /// Reads a text of this length and the line end after it. Nil has a negative length.
    fn read_text(&mut self, length: i64) -> io::Result<String> {
        let Ok(length) = usize::try_from(length) else { return Ok("\n".to_owned()) };
        let mut text = vec![0; length + LINE_END.len()];
        self.stream.read_exact(&mut text)?;
        text.truncate(length);
        // An empty text counts as a line.
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(if text.is_empty() { "\n".to_owned() } else { text })
    }
}
