//! Connections of the driver's, encrypted or not.

use std::{io, sync::atomic::Ordering};

use leasehold_core::Fault;
use mysql_async::{Opts, OptsBuilder};
use tokio::net::lookup_host;

use super::{
    config::Config,
    conn::caught,
    error::{Commits, not_connected},
    relay,
};
use crate::{Encryption, database::Failed};

/// Connects as the URL says.
pub(super) async fn dial(config: &Config) -> Result<mysql_async::Conn, Failed> {
    // Nobody is between there, and the driver encrypts nothing on it.
    if config.socket.is_some() {
        return connect(config.opts()).await;
    }
    match &config.encryption {
        Encryption::Off => plain(config).await,
        #[cfg(feature = "tls")]
        Encryption::Required(tls) => encrypted(config, tls).await,
        #[cfg(feature = "tls")]
        Encryption::Preferred(tls) => {
            if !config.plain.load(Ordering::Relaxed) {
                let dialed = encrypted(config, tls).await;
                // Else they have no way of it in common.
                if !matches!(&dialed, Err(failed) if failed.message.starts_with(BY_TLS)) {
                    return dialed;
                }
            }
            let dialed = plain(config).await;
            config.plain.store(dialed.is_ok(), Ordering::Relaxed);
            dialed
        }
    }
}

/// How an error begins that is about TLS.
pub(super) const BY_TLS: &str = "by TLS: ";

/// Connects without TLS: to another machine through what keeps the password from being told.
async fn plain(config: &Config) -> Result<mysql_async::Conn, Failed> {
    let failed = |error: io::Error| Failed::new(Fault::Retry, error.to_string());
    let place = (config.place.host.as_str(), config.place.port);
    let addresses: Vec<_> = lookup_host(place).await.map_err(failed)?.map(|address| address.ip()).collect();
    let near = addresses.iter().all(|address| address.to_canonical().is_loopback());
    let opts = config.opts();
    if near || config.password.as_ref().is_none_or(String::is_empty) {
        return connect(opts.resolved_ips(Some(addresses))).await;
    }
    let door = relay::open(place).await.map_err(failed)?;
    connect(opts.ip_or_hostname(door.ip().to_string()).tcp_port(door.port())).await
}

async fn connect(opts: OptsBuilder) -> Result<mysql_async::Conn, Failed> {
    attempt(opts).await?.map_err(not_connected)
}

async fn attempt(opts: OptsBuilder) -> Result<mysql_async::Result<mysql_async::Conn>, Failed> {
    let conn = caught(mysql_async::Conn::new(Opts::from(opts))).await;
    conn.map_err(|broke| broke.sort(Commits::Never))
}

#[cfg(feature = "tls")]
async fn encrypted(config: &Config, tls: &leasehold_tls::Tls) -> Result<mysql_async::Conn, Failed> {
    let (opts, any_host) = tls_opts(tls)?;
    match attempt(config.opts().ssl_opts(opts.clone())).await? {
        Ok(conn) => Ok(conn),
        // The driver cannot leave the name out (it looks for an error in other words than those of rustls): so it is told that name.
        Err(error) => match any_host.then(|| certified(&error)).flatten() {
            Some(name) => {
                connect(config.opts().ssl_opts(opts.with_danger_tls_hostname_override(Some(name)))).await
            }
            None => Err(not_connected(error)),
        },
    }
}

/// A name of the certificate, where an authority vouches for it and only the host's name is another.
#[cfg(feature = "tls")]
fn certified(error: &mysql_async::Error) -> Option<String> {
    use leasehold_tls::rustls::{CertificateError, Error};
    let mysql_async::Error::Io(mysql_async::IoError::Io(error)) = error else { return None };
    let Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) =
        error.get_ref()?.downcast_ref()?
    else {
        return None;
    };
    let name =
        |name: &String| Some(name.strip_prefix("DnsName(\"")?.strip_suffix("\")")?.replacen('*', "any", 1));
    presented.iter().find_map(name)
}

/// What the driver is told of TLS, and whether any host will do that an authority vouches for.
#[cfg(feature = "tls")]
fn tls_opts(tls: &leasehold_tls::Tls) -> Result<(mysql_async::SslOpts, bool), Failed> {
    use leasehold_tls::Verify;
    use mysql_async::{ClientIdentity, SslOpts};
    let material =
        tls.material().map_err(|error| Failed::new(Fault::Misconfigured, format!("{BY_TLS}{error}")))?;
    let identity =
        material.identity.map(|(certificate, key)| ClientIdentity::new(certificate.into(), key.into()));
    let opts = SslOpts::default()
        // It wants some authorities even to verify nothing.
        .with_disable_built_in_roots(material.verify != Verify::Nothing)
        .with_danger_accept_invalid_certs(material.verify == Verify::Nothing)
        .with_root_certs(material.authorities.into_iter().map(Into::into).collect())
        .with_client_identity(identity);
    Ok((opts, material.verify == Verify::Authority))
}
