//! Opens connections of the driver, encrypted or not.

use std::io;

use leasehold_core::Fault;
use mysql_async::{Opts, OptsBuilder};
use tokio::net::lookup_host;

#[cfg(feature = "tls")]
use super::tls;
use super::{
    config::Config,
    conn::caught,
    error::{Commits, connect_error},
    relay,
};
use crate::{Encryption, database::Failed};

/// Connects to the server, encrypted or not as the URL says.
pub(super) async fn dial(config: &Config) -> Result<mysql_async::Conn, Failed> {
    // Nobody can eavesdrop on a unix socket, and the driver does not encrypt it.
    if config.socket.is_some() {
        return connect(config.opts().await?).await;
    }
    match &config.encryption {
        Encryption::Off => unencrypted(config).await,
        #[cfg(feature = "tls")]
        Encryption::Required(tls) => tls::encrypted(config, tls).await,
        #[cfg(feature = "tls")]
        Encryption::Preferred(tls) => tls::preferred(config, tls).await,
    }
}

/// Connects without TLS. A connection with a password to another machine goes through a relay, which ends the login
/// with an error if the server asks for the password itself and not for a proof of it.
pub(super) async fn unencrypted(config: &Config) -> Result<mysql_async::Conn, Failed> {
    let failed = |error: io::Error| Failed::new(Fault::Retry, error.to_string());
    let endpoint = (config.endpoint.host.as_str(), config.endpoint.port);
    let addresses: Vec<_> =
        lookup_host(endpoint).await.map_err(failed)?.map(|address| address.ip()).collect();
    let is_local = addresses.iter().all(|address| address.to_canonical().is_loopback());
    let opts = config.opts().await?;
    if is_local || config.password.is_none() {
        return connect(opts.resolved_ips(Some(addresses))).await;
    }
    let relay = relay::open(endpoint).await.map_err(failed)?;
    connect(opts.ip_or_hostname(relay.ip().to_string()).tcp_port(relay.port())).await
}

/// Connects with these options of the driver.
pub(super) async fn connect(opts: OptsBuilder) -> Result<mysql_async::Conn, Failed> {
    attempt(opts).await?.map_err(connect_error)
}

/// Connects with these options; returns the error of the driver, and fails if the driver panics.
pub(super) async fn attempt(opts: OptsBuilder) -> Result<mysql_async::Result<mysql_async::Conn>, Failed> {
    let conn = caught(mysql_async::Conn::new(Opts::from(opts))).await;
    conn.map_err(|execute_error| execute_error.classify(Commits::Never))
}
