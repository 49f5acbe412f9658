//! Encrypts a connection to a server.

use leasehold_core::Fault;
use leasehold_tls::{Tls, TlsError, TlsStream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::database::Failed;

/// The `SSLRequest` message, by which a client asks for encryption: its length, 8, and the code 80877103, big-endian.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// What a server answers when it is asked for TLS.
#[expect(clippy::large_enum_variant, reason = "taken apart right after its creation")]
pub(crate) enum TlsAnswer {
    /// The stream is encrypted from now on.
    Encrypted(TlsStream<TcpStream>),
    /// The server does not support TLS, and the stream is still plain.
    Unsupported(TcpStream),
}

/// Encrypts a connection, if the server supports TLS.
pub(crate) async fn encrypted(tls: &Tls, name: &str, mut stream: TcpStream) -> Result<TlsAnswer, Failed> {
    let retry = |what: &dyn std::fmt::Display| {
        Failed::new(Fault::Retry, format!("the connection to the server broke: {what}"))
    };
    stream.write_all(&SSL_REQUEST).await.map_err(|error| retry(&error))?;
    match stream.read_u8().await.map_err(|error| retry(&error))? {
        // The server supports TLS.
        b'S' => {}
        // The server does not support TLS.
        b'N' => return Ok(TlsAnswer::Unsupported(stream)),
        _ => return Err(retry(&"its answer is malformed: is it a PostgreSQL server?")),
    }
    tls.connect(stream, name, &[]).await.map(TlsAnswer::Encrypted).map_err(|error| match error {
        TlsError::Wrong(what) => tls_error(&what),
        TlsError::Broken(error) => retry(&error),
    })
}

/// The error for two sides that have no TLS version or cipher in common, or do not trust each other: a retry does not
/// help.
pub(crate) fn tls_error(what: &str) -> Failed {
    Failed::new(Fault::Misconfigured, format!("by TLS: {what}"))
}
