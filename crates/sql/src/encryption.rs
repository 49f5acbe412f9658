//! Whether connections to a server are encrypted.

#[cfg(feature = "tls")]
use leasehold_tls::Tls;

/// Whether connections to a server are encrypted.
#[derive(Clone, Debug, Default)]
pub enum Encryption {
    /// They are not.
    #[default]
    Off,
    /// Where the server can. Whoever is on the way can say that it cannot: no password is told to another host in a way that can be
    /// read.
    #[cfg(feature = "tls")]
    Preferred(Tls),
    /// They are, or there are none.
    #[cfg(feature = "tls")]
    Required(Tls),
}
