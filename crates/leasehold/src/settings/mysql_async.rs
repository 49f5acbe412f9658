//! The options of `mysql_async`.

use leasehold_core::Error;
use mysql_async::{Opts, SslOpts};

use super::{ConnectionSettings, encoded, endpoint};

impl TryFrom<&Opts> for ConnectionSettings {
    type Error = Error;

    /// Takes over the host or socket, the login, the database, and whether the server is verified. Certificates cannot
    /// be read: then the program must give `Connect::tls`.
    fn try_from(opts: &Opts) -> Result<Self, Error> {
        let database = opts.db_name().map(encoded).unwrap_or_default();
        let location = format!("{}/{database}", endpoint(opts.ip_or_hostname(), opts.tcp_port()));
        let settings =
            Self::new("mysql", location).login(opts.user(), opts.pass()).option("socket", opts.socket());
        Ok(match opts.ssl_opts() {
            None => settings.option("ssl-mode", Some("DISABLED")),
            Some(ssl) => with_encryption(settings, ssl),
        })
    }
}

/// Adds the encryption.
fn with_encryption(mut settings: ConnectionSettings, ssl: &SslOpts) -> ConnectionSettings {
    #[cfg(feature = "tls")]
    let has_identity = ssl.client_identity().is_some();
    // Without TLS in this build, every encrypted connection is refused.
    #[cfg(not(feature = "tls"))]
    let has_identity = false;
    let has_roots = !ssl.root_certs().is_empty() || ssl.disable_built_in_roots();
    if has_identity || has_roots || ssl.tls_hostname_override().is_some() {
        settings.unreadable_tls = Some(
            "the TLS options of mysql_async have certificates or a host name, which cannot be taken over",
        );
    }
    let mode = if ssl.accept_invalid_certs() {
        "REQUIRED"
    } else if ssl.skip_domain_validation() {
        "VERIFY_CA"
    } else {
        "VERIFY_IDENTITY"
    };
    settings.option("ssl-mode", Some(mode))
}
