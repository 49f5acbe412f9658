//! TLS for the engines that connect to servers, always with verification of the server.

mod error;
mod tls;

pub use error::{TlsError, is_alert};
pub use tls::{Material, Tls};
/// What [`Tls::connect`] makes of a connection.
pub use tokio_rustls::client::TlsStream;
/// What [`Tls::with`] takes a configuration of, in the version that it takes.
pub use tokio_rustls::rustls;
