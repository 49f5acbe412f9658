//! TLS for the engines that connect to servers. It verifies the server's certificate; only for a database, the options
//! of the URL decide how much is verified.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod certificate_end;
mod channel_binding;
mod der;
mod error;
mod tls;
mod verify;

pub use certificate_end::{certificate_end, certificate_end_from_text};
pub use channel_binding::channel_binding;
pub use error::{TlsError, explain_error, is_alert};
pub use tls::{Material, Tls};
/// The result of [`Tls::connect`].
pub use tokio_rustls::client::TlsStream;
/// The `rustls` whose configuration [`Tls::with`] accepts, in the same version.
pub use tokio_rustls::rustls;
pub use verify::Verify;
