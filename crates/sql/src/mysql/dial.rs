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
    relay::{self, Password, Relayed},
};
use crate::{Encryption, database::Failed};

/// A connection of the driver.
pub(super) struct Dialed {
    pub(super) conn: mysql_async::Conn,
    /// Reports that the server has closed the connection. `None` if nothing reports this before the next request: the
    /// connection is not [watched](Config::watched), or it is a unix socket.
    pub(super) relayed: Option<Relayed>,
}

/// Connects to the server, encrypted or not as the URL says.
pub(super) async fn dial(config: &Config) -> Result<Dialed, Failed> {
    // Nobody can eavesdrop on a unix socket, and the driver does not encrypt it.
    if config.socket.is_some() {
        return connect(config, config.opts().await?).await;
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
pub(super) async fn unencrypted(config: &Config) -> Result<Dialed, Failed> {
    let (host, port) = (config.endpoint.host.as_str(), config.endpoint.port);
    let addresses: Vec<_> =
        lookup_host((host, port)).await.map_err(unreachable)?.map(|address| address.ip()).collect();
    let is_local = addresses.iter().all(|address| address.to_canonical().is_loopback());
    let opts = config.opts().await?;
    if is_local || config.password.is_none() {
        return connect(config, opts.resolved_ips(Some(addresses))).await;
    }
    through_relay(config, opts, Password::NeverSent).await?.map_err(connect_error)
}

/// Connects with these options of the driver.
pub(super) async fn connect(config: &Config, opts: OptsBuilder) -> Result<Dialed, Failed> {
    attempt(config, opts).await?.map_err(connect_error)
}

/// Connects with these options; returns the error of the driver, and fails if the driver panics.
pub(super) async fn attempt(
    config: &Config,
    opts: OptsBuilder,
) -> Result<mysql_async::Result<Dialed>, Failed> {
    if config.is_watched && config.socket.is_none() {
        return through_relay(config, opts, Password::Sent).await;
    }
    drive(opts, None).await
}

/// Connects through a relay. The driver still verifies a certificate by the host name of the URL.
async fn through_relay(
    config: &Config,
    opts: OptsBuilder,
    password: Password,
) -> Result<mysql_async::Result<Dialed>, Failed> {
    let (host, port) = (config.endpoint.host.as_str(), config.endpoint.port);
    let (relay, relayed) = relay::open(host, port, password).await.map_err(unreachable)?;
    drive(opts.tcp_port(relay.port()).resolved_ips(Some(vec![relay.ip()])), Some(relayed)).await
}

async fn drive(opts: OptsBuilder, relayed: Option<Relayed>) -> Result<mysql_async::Result<Dialed>, Failed> {
    let conn = caught(mysql_async::Conn::new(Opts::from(opts))).await;
    let conn = conn.map_err(|execute_error| execute_error.classify(Commits::Never))?;
    Ok(conn.map(|conn| Dialed { conn, relayed }))
}

fn unreachable(error: io::Error) -> Failed {
    Failed::new(Fault::Retry, error.to_string())
}
