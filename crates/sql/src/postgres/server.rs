//! A server, or several servers of which one is the primary, from a URL in the format of libpq
//! (<https://www.postgresql.org/docs/current/libpq-connect.html>).

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicUsize},
};

use leasehold_core::{Error, Password};
use tokio_postgres::config::{ChannelBinding, Host};

use crate::Encryption;

/// The default port of a server.
const DEFAULT_PORT: u16 = 5432;

/// The parameters of libpq that a URL may have, beside those of encryption.
pub const PARAMETERS: [&str; 18] = [
    "host",
    "port",
    "dbname",
    "user",
    "password",
    "passfile",
    "application_name",
    "fallback_application_name",
    "options",
    "target_session_attrs",
    "channel_binding",
    "client_encoding",
    "gssencmode",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
];

/// The application name that the server sees, unless the URL sets one.
const APPLICATION: &str = "leasehold";

/// A server, or several of which one is the primary.
#[derive(Clone)]
pub(crate) struct Server {
    /// The hosts and the login, as the driver expects them.
    pub(crate) driver_config: tokio_postgres::Config,
    pub(crate) encryption: Encryption,
    /// Whether a read-only server is skipped, and the next host tried.
    pub(crate) needs_writable: bool,
    /// The password that replaces the password of the URL.
    pub(crate) password: Option<Password>,
    /// The file of passwords, if not the default one of libpq.
    pub(crate) passfile: Option<PathBuf>,
    /// The index of the host that served last.
    pub(crate) last_served_host: Arc<AtomicUsize>,
    /// The address, for messages.
    pub(crate) address: String,
}

impl Server {
    /// Parses a URL without its scheme, up to its query, and the parameters of its query.
    pub(crate) fn read(rest: &str, parameters: &[(&str, String)]) -> Result<Self, Error> {
        let location =
            rest.strip_prefix("//").filter(|rest| !rest.contains(['?', '#'])).ok_or_else(malformed)?;
        let address = location.rsplit_once('@').map_or(location, |(_, address)| address);
        let address = address.split('/').next().unwrap_or(address).to_owned();
        // The error may quote the password, so the parser's message is not repeated.
        let driver_config = format!("postgres:{rest}").parse().map_err(|_| malformed())?;
        let (encryption, needs_writable, password, passfile, last_served_host) = Default::default();
        let mut server =
            Self { driver_config, encryption, needs_writable, password, passfile, last_served_host, address };
        server.driver_config.application_name(APPLICATION);
        // Reads host and port together: a port belongs to a host, and may come before it in the query.
        let value =
            |name| parameters.iter().rfind(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        server.set_hosts(value("host"), value("port"))?;
        server.needs_writable = server.driver_config.get_hosts().len() > 1;
        for (name, value) in parameters {
            server.apply_parameter(name, value)?;
        }
        Ok(server)
    }

    /// Adds the hosts of the parameters, if the URL itself names none.
    fn set_hosts(&mut self, hosts: Option<&str>, ports: Option<&str>) -> Result<(), Error> {
        let url_has_hosts = !self.driver_config.get_hosts().is_empty();
        if url_has_hosts != hosts.is_none() || url_has_hosts && ports.is_some() {
            return Err(malformed());
        }
        for host in hosts.into_iter().flat_map(|hosts| hosts.split(',')) {
            self.driver_config.host(host);
        }
        for port in ports.into_iter().flat_map(|ports| ports.split(',')) {
            self.driver_config.port(port.parse().map_err(|_| malformed())?);
        }
        let (hosts, ports) = (self.driver_config.get_hosts(), self.driver_config.get_ports());
        // A host name with an @ is the end of a password in which the @ was not escaped.
        let is_wrong = |host: &Host| matches!(host, Host::Tcp(name) if name.is_empty() || name.contains('@'));
        if hosts.iter().any(is_wrong) || ports.len() > 1 && ports.len() != hosts.len() {
            return Err(malformed());
        }
        if !url_has_hosts {
            self.address = self.hosts_for_messages();
        }
        Ok(())
    }

    /// The hosts as text.
    fn hosts_for_messages(&self) -> String {
        let host = |(host, port): (&Host, u16)| match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(directory) => directory.display().to_string(),
        };
        self.hosts_with_ports().map(host).collect::<Vec<_>>().join(",")
    }

    /// Every host, with its port.
    pub(crate) fn hosts_with_ports(&self) -> impl ExactSizeIterator<Item = (&Host, u16)> {
        let ports = self.driver_config.get_ports();
        let port = |index| ports.get(index).or_else(|| ports.first()).copied().unwrap_or(DEFAULT_PORT);
        self.driver_config.get_hosts().iter().enumerate().map(move |(index, host)| (host, port(index)))
    }

    /// Applies one parameter of the query.
    fn apply_parameter(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let unknown = |known: &str| {
            // The value is not shown: it may be the end of a password with a `?` in it.
            Error::misconfigured(format!("the URL option {name} is unknown: {known}"))
        };
        let driver_config = &mut self.driver_config;
        match name {
            "host" | "port" => {}
            "dbname" => _ = driver_config.dbname(value),
            "user" => _ = driver_config.user(value),
            "password" => _ = driver_config.password(value),
            "passfile" => self.passfile = Some(value.into()),
            "application_name" => _ = driver_config.application_name(value),
            "fallback_application_name" => {
                if driver_config.get_application_name() == Some(APPLICATION) {
                    driver_config.application_name(value);
                }
            }
            "options" => _ = driver_config.options(value),
            "target_session_attrs" => match value {
                "read-write" | "primary" => self.needs_writable = true,
                "any" => self.needs_writable = false,
                "read-only" | "standby" | "prefer-standby" => {
                    return Err(unknown("a lock must be written, so read-write, primary and any are known"));
                }
                _ => return Err(unknown("read-write, primary and any are known")),
            },
            "channel_binding" => {
                _ = driver_config.channel_binding(match value {
                    "disable" => ChannelBinding::Disable,
                    "prefer" => ChannelBinding::Prefer,
                    "require" => ChannelBinding::Require,
                    _ => return Err(unknown("disable, prefer and require are known")),
                });
            }
            "client_encoding" => {
                if !["utf8", "utf-8", "unicode", "auto"].contains(&value.to_lowercase().as_str()) {
                    return Err(unknown("names are UTF-8, so utf8 and auto are known"));
                }
            }
            "gssencmode" => {
                if !["disable", "prefer"].contains(&value) {
                    return Err(unknown("GSSAPI is not supported, so disable and prefer are known"));
                }
            }
            // The URL does not change our keepalives, which are as short as leases need.
            "keepalives"
            | "keepalives_idle"
            | "keepalives_interval"
            | "keepalives_count"
            | "tcp_user_timeout" => {
                value.parse::<i64>().map(drop).map_err(|_| unknown("a whole number is known"))?;
            }
            _ => return Err(unknown(&PARAMETERS.join(", "))),
        }
        Ok(())
    }
}

/// The error for a malformed URL.
fn malformed() -> Error {
    Error::misconfigured("the postgres URL is to be written like postgres://user@host:5432/database")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rest: &str, parameters: &[(&str, &str)]) -> Result<Server, Error> {
        let parameters: Vec<_> = parameters.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        Server::read(rest, &parameters)
    }

    #[test]
    fn hosts_are_parsed_from_url_and_parameters() {
        for (rest, parameters, hosts, address) in [
            ("//u@h/d", &[][..], "h 5432", "h"),
            ("//u:p@h:6543/d", &[], "h 6543", "h:6543"),
            ("//h,[::1]:7,g/d", &[], "h 5432, ::1 7, g 5432", "h,[::1]:7,g"),
            ("//%2Frun%2Fpg/d", &[], "/run/pg 5432", "%2Frun%2Fpg"),
            ("//u:p@/d", &[("host", "/cloudsql/p:r:i")], "/cloudsql/p:r:i 5432", "/cloudsql/p:r:i"),
            ("///d", &[("host", "h,g"), ("port", "7")], "h 7, g 7", "h:7,g:7"),
            ("//", &[("port", "7,8"), ("host", "h,g")], "h 7, g 8", "h:7,g:8"),
        ] {
            let server = read(rest, parameters).unwrap();
            let named = |(host, port): (&Host, u16)| match host {
                Host::Tcp(name) => format!("{name} {port}"),
                #[cfg(unix)]
                Host::Unix(directory) => format!("{} {port}", directory.display()),
            };
            assert_eq!(server.hosts_with_ports().map(named).collect::<Vec<_>>().join(", "), hosts, "{rest}");
            assert_eq!(server.address, address, "{rest}");
            assert_eq!(server.needs_writable, hosts.contains(','), "{rest}");
        }
    }

    #[test]
    fn parameters_reach_the_driver() {
        let parameters = [
            ("user", "me"),
            ("password", "pw"),
            ("dbname", "db"),
            ("application_name", "mine"),
            ("options", "-c search_path=x"),
            ("target_session_attrs", "read-write"),
            ("channel_binding", "require"),
            ("passfile", "/p"),
        ];
        let server = read("//h", &parameters).unwrap();
        let driver_config = &server.driver_config;
        assert_eq!((driver_config.get_user(), driver_config.get_password()), (Some("me"), Some(&b"pw"[..])));
        assert_eq!(
            (driver_config.get_dbname(), driver_config.get_application_name()),
            (Some("db"), Some("mine"))
        );
        assert_eq!(driver_config.get_options(), Some("-c search_path=x"));
        assert_eq!(driver_config.get_channel_binding(), ChannelBinding::Require);
        assert_eq!((server.needs_writable, server.passfile), (true, Some("/p".into())));
        assert!(!read("//h,g", &[("target_session_attrs", "any")]).unwrap().needs_writable);
        let usual = [
            ("fallback_application_name", "mine"),
            ("client_encoding", "UTF8"),
            ("gssencmode", "disable"),
            ("keepalives", "1"),
            ("keepalives_idle", "30"),
        ];
        let server = read("//h", &usual).unwrap();
        assert_eq!(server.driver_config.get_application_name(), Some("mine"));
        let both = [("application_name", "mine"), ("fallback_application_name", "not mine")];
        for parameters in [both, [both[1], both[0]]] {
            assert_eq!(read("//h", &parameters).unwrap().driver_config.get_application_name(), Some("mine"));
        }
        for (name, value) in
            [("client_encoding", "latin1"), ("gssencmode", "require"), ("keepalives_idle", "x")]
        {
            let error = read("//h", &[(name, value)]).map(drop).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains(value), "{error}");
        }
        let plain = read("//h", &[]).unwrap();
        assert_eq!(
            (plain.driver_config.get_application_name(), plain.needs_writable),
            (Some("leasehold"), false)
        );
    }
}
