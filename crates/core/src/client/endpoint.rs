//! The address of a server: a host and a port.

use std::{fmt, io};

use tokio::net::TcpStream;

use crate::{EngineError, Fault};

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The host name or IP address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// Splits `host`, `host:port`, `[v6]` or `[v6]:port`, as written in URLs. `None` if the text after the host is no
    /// port.
    #[must_use]
    pub fn split(text: &str, default_port: u16) -> Option<(&str, u16)> {
        let (host, port) = match text.strip_prefix('[') {
            Some(v6) => {
                let (host, suffix) = v6.split_once(']')?;
                (host, if suffix.is_empty() { None } else { Some(suffix.strip_prefix(':')?) })
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        Some((host, port.map_or(Some(default_port), |port| port.parse().ok())?))
    }

    /// Connects to this endpoint, without Nagle's algorithm: each request leaves at once, because a request that waits
    /// to share a packet would wait for a network round trip.
    ///
    /// # Errors
    /// The error of the attempt.
    pub async fn connect(&self) -> Result<TcpStream, EngineError> {
        let to_engine_error = |error: io::Error| self.unreachable(&error);
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(to_engine_error)?;
        stream.set_nodelay(true).map_err(to_engine_error)?;
        Ok(stream)
    }

    /// The error for a failed attempt to connect.
    #[must_use]
    pub fn unreachable(&self, error: &io::Error) -> EngineError {
        EngineError::new(Fault::Retry, format!("cannot connect to {self}: {error}"))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_parsed_and_displayed() {
        for (text, host, port, displayed) in [
            ("a", "a", 7, "a:7"),
            ("a.b:1", "a.b", 1, "a.b:1"),
            ("[::1]", "::1", 7, "[::1]:7"),
            ("[::1]:2", "::1", 2, "[::1]:2"),
        ] {
            assert_eq!(Endpoint::split(text, 7), Some((host, port)));
            assert_eq!(Endpoint { host: host.to_owned(), port }.to_string(), displayed);
        }
        for text in ["a:", "a:b", "a:99999", "[::1", "[::1]2", "::1"] {
            assert_eq!(Endpoint::split(text, 7), None, "{text}");
        }
    }
}
