//! TLS for the engines that connect to servers. It verifies the server unless the URL of a database says otherwise.

mod end_point;
mod error;
mod tls;
mod verify;

pub use end_point::end_point;
pub use error::{TlsError, in_words, is_alert};
pub use tls::{Material, Tls};
/// The result of [`Tls::connect`].
pub use tokio_rustls::client::TlsStream;
/// The `rustls` whose configuration [`Tls::with`] accepts, in the same version.
pub use tokio_rustls::rustls;
pub use verify::Verify;
