//! Encrypted connections of the driver.

use std::sync::atomic::Ordering;

use leasehold_core::Fault;
use leasehold_tls::{
    Tls, Verify,
    rustls::{CertificateError, Error},
};
use mysql_async::{ClientIdentity, IoError, SslOpts};

use super::{
    config::Config,
    dial::{Dialed, attempt, connect, unencrypted},
    error::connect_error,
};
use crate::database::Failed;

/// The prefix of an error about TLS.
pub(super) const TLS_PREFIX: &str = "by TLS: ";

/// Connects by TLS if both sides support TLS, otherwise without TLS. A server without TLS is not asked for TLS again
/// until a connection without TLS fails.
pub(super) async fn preferred(config: &Config, tls: &Tls) -> Result<Dialed, Failed> {
    if !config.last_was_unencrypted.load(Ordering::Relaxed) {
        let connected = encrypted(config, tls).await;
        if !matches!(&connected, Err(failed) if failed.message.starts_with(TLS_PREFIX)) {
            return connected;
        }
        // Either the two sides cannot agree on TLS (the server has none, or no version or cipher is common to both), or
        // the local TLS configuration is unusable. Only an unusable local configuration is an error here.
        tls_opts(tls)?;
    }
    let connected = unencrypted(config).await;
    config.last_was_unencrypted.store(connected.is_ok(), Ordering::Relaxed);
    connected
}

/// Connects by TLS, or fails.
pub(super) async fn encrypted(config: &Config, tls: &Tls) -> Result<Dialed, Failed> {
    let (opts, accepts_any_host) = tls_opts(tls)?;
    match attempt(config, config.opts().await?.ssl_opts(opts.clone())).await? {
        Ok(dialed) => Ok(dialed),
        // The driver has an option to skip the host name check, but this option works only with an error text that
        // rustls does not produce. So the driver is told to expect a host name that the certificate contains.
        Err(error) => match accepts_any_host.then(|| certificate_name(&error)).flatten() {
            Some(name) => {
                let opts = opts.with_danger_tls_hostname_override(Some(name));
                connect(config, config.opts().await?.ssl_opts(opts)).await
            }
            None => Err(connect_error(error)),
        },
    }
}

/// A name of the certificate, if an authority has signed it and only the host name differs.
fn certificate_name(error: &mysql_async::Error) -> Option<String> {
    let mysql_async::Error::Io(IoError::Io(error)) = error else { return None };
    let Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) =
        error.get_ref()?.downcast_ref()?
    else {
        return None;
    };
    let name =
        |name: &String| Some(name.strip_prefix("DnsName(\"")?.strip_suffix("\")")?.replacen('*', "any", 1));
    presented.iter().find_map(name)
}

/// The TLS options of the driver, and whether any host with a certificate of an authority is accepted.
fn tls_opts(tls: &Tls) -> Result<(SslOpts, bool), Failed> {
    let material =
        tls.material().map_err(|error| Failed::new(Fault::Misconfigured, format!("{TLS_PREFIX}{error}")))?;
    let identity =
        material.identity.map(|(certificate, key)| ClientIdentity::new(certificate.into(), key.into()));
    let opts = SslOpts::default()
        // The driver needs some authorities even to verify nothing.
        .with_disable_built_in_roots(material.verify != Verify::Nothing)
        .with_danger_accept_invalid_certs(material.verify == Verify::Nothing)
        .with_root_certs(material.authorities.into_iter().map(Into::into).collect())
        .with_client_identity(identity);
    Ok((opts, material.verify == Verify::Authority))
}
