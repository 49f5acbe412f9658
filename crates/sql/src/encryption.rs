//! The option that says whether connections to a server are encrypted.

#[cfg(feature = "tls")]
use leasehold_tls::Tls;

/// Whether connections to a server are encrypted.
#[derive(Clone, Debug, Default)]
pub enum Encryption {
    /// Not encrypted.
    #[default]
    Off,
    /// Encrypted where the server supports it. An attacker on the path can claim that the server does not support it,
    /// so no password is sent to another host in a readable form.
    #[cfg(feature = "tls")]
    Preferred(Tls),
    /// Encrypted, or no connection at all.
    #[cfg(feature = "tls")]
    Required(Tls),
}
