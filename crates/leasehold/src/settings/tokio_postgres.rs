//! The configuration of `tokio-postgres`, which pools for this client have too.

use std::str;

use leasehold_core::Error;
use tokio_postgres::{
    Config,
    config::{ChannelBinding, Host, SslMode, TargetSessionAttrs},
};

use super::{ConnectionSettings, encoded};

impl TryFrom<&Config> for ConnectionSettings {
    type Error = Error;

    /// Takes over the hosts, the login, the database, the session options and the encryption. A TLS connector cannot be
    /// read, so `SslMode::Require` verifies the server by the authorities of the system, unless `Connect::tls` says how
    /// to verify it. The time limits and keepalives are those of leasehold.
    fn try_from(config: &Config) -> Result<Self, Error> {
        let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
        if !hosts.is_empty() && !addresses.is_empty() {
            return Err(Error::misconfigured(
                "the configuration of tokio_postgres has host and hostaddr: leave hostaddr out",
            ));
        }
        let host_name = |host: &Host| -> Result<String, Error> {
            match host {
                Host::Tcp(name) => Ok(name.clone()),
                #[cfg(unix)]
                Host::Unix(directory) => directory.to_str().map(str::to_owned).ok_or_else(not_utf8),
            }
        };
        let mut names = hosts.iter().map(host_name).collect::<Result<Vec<_>, _>>()?;
        names.extend(addresses.iter().map(ToString::to_string));
        let ports: Vec<_> = config.get_ports().iter().map(ToString::to_string).collect();
        let password = config.get_password().map(str::from_utf8).transpose().map_err(|_| not_utf8())?;
        let sslmode = match config.get_ssl_mode() {
            SslMode::Disable => "disable",
            SslMode::Prefer => "prefer",
            _ => "verify-full",
        };
        let channel_binding = match config.get_channel_binding() {
            ChannelBinding::Disable => "disable",
            ChannelBinding::Require => "require",
            _ => "prefer",
        };
        // `any` is also the default of this client. With several hosts, the default of leasehold is a primary.
        let target = match config.get_target_session_attrs() {
            TargetSessionAttrs::ReadWrite => Some("read-write"),
            TargetSessionAttrs::ReadOnly => Some("read-only"),
            _ => None,
        };
        let location = config.get_dbname().map(|database| format!("/{}", encoded(database)));
        Ok(Self::new("postgres", location.unwrap_or_default())
            .login(config.get_user(), password)
            .option("host", Some(names.join(",")))
            .option("port", (!ports.is_empty()).then(|| ports.join(",")))
            .option("options", config.get_options())
            .option("application_name", config.get_application_name())
            .option("sslmode", Some(sslmode))
            .option("channel_binding", Some(channel_binding))
            .option("target_session_attrs", target))
    }
}

/// The error for a password or path that a URL cannot express.
fn not_utf8() -> Error {
    Error::misconfigured("the configuration of tokio_postgres has a password or a socket that is not UTF-8")
}
