//! TLS for the engines that connect to servers, with verification of the server unless a database's URL says otherwise.

mod end_point;
mod error;
mod tls;
mod verify;

pub use end_point::end_point;
pub use error::{TlsError, in_words, is_alert};
pub use tls::{Material, Tls};
/// What [`Tls::connect`] makes of a connection.
pub use tokio_rustls::client::TlsStream;
/// What [`Tls::with`] takes a configuration of, in the version that it takes.
pub use tokio_rustls::rustls;
pub use verify::Verify;
