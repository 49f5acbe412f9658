//! The option that says whether connections to a server are encrypted.

#[cfg(feature = "tls")]
use leasehold_tls::Tls;

/// Whether connections to a server are encrypted.
#[derive(Clone, Debug, Default)]
pub enum Encryption {
    /// Not encrypted.
    #[default]
    Off,
    /// Encrypted if the server supports encryption, otherwise not encrypted. An attacker on the path can pretend that
    /// the server does not support encryption, so no password is sent to another host in a readable form.
    #[cfg(feature = "tls")]
    Preferred(Tls),
    /// Encrypted, or no connection at all.
    #[cfg(feature = "tls")]
    Required(Tls),
}
