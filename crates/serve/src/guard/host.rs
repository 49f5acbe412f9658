//! The names by which this server may be asked. A page of another site can make its own name lead to this server (DNS
//! rebinding), but it cannot make a browser send another name than its own.

use std::net::SocketAddr;

use axum::http::{HeaderMap, Uri};

use super::{One, one};

/// The names and addresses in `Host` that are answered, in lower case and without ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// The names of this address, and those that the user added.
    pub(crate) fn new(listen: SocketAddr, added: &[String]) -> Self {
        let mut names: Vec<_> = added.iter().map(|name| name.to_ascii_lowercase()).collect();
        let address = listen.ip();
        if address.is_loopback() {
            names.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
        }
        if !address.is_unspecified() {
            let port = format!(":{}", listen.port());
            names.extend(listen.to_string().strip_suffix(&port).map(str::to_owned));
        }
        Self(names)
    }

    /// Whether the request names this server: in its only `Host`, and in its address if that has a name.
    pub(super) fn allow(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let One::Value(host) = one(headers, "host") else { return false };
        self.has(host) && uri.authority().is_none_or(|authority| self.has(authority.as_str()))
    }

    fn has(&self, host: &str) -> bool {
        name_of(host).is_some_and(|name| self.0.iter().any(|known| known.eq_ignore_ascii_case(name)))
    }
}

/// The name before the port; `None` if the text is none of both.
fn name_of(host: &str) -> Option<&str> {
    let end = match host.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn allows(hosts: &Hosts, host: &str, uri: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_str(host).unwrap());
        hosts.allow(&headers, &uri.parse().unwrap())
    }

    #[test]
    fn only_own_names_are_answered() {
        let hosts = Hosts::new("127.0.0.1:8080".parse().unwrap(), &["Locks.example".to_owned()]);
        for own in ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]", "[::1]:80", "locks.example:443"] {
            assert!(allows(&hosts, own, "/"), "{own}");
        }
        for foreign in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8080",
            "localhost:80:80",
            "localhost:x",
            "localhost:",
            "localhost.",
            "[::1",
            "[::1]x",
            "user@localhost",
            "127.0.0.2",
        ] {
            assert!(!allows(&hosts, foreign, "/"), "{foreign}");
        }
        assert!(
            !allows(&hosts, "localhost", "http://evil.example/"),
            "the address of the request counts too"
        );
        assert!(!hosts.allow(&HeaderMap::new(), &"/".parse().unwrap()), "a request without a host");
    }

    #[test]
    fn a_server_for_others_has_its_address_and_no_name_of_loopback() {
        let hosts = Hosts::new("192.0.2.1:8080".parse().unwrap(), &[]);
        assert!(allows(&hosts, "192.0.2.1:8080", "/") && !allows(&hosts, "localhost:8080", "/"));
        let hosts = Hosts::new("0.0.0.0:8080".parse().unwrap(), &[]);
        assert!(!allows(&hosts, "0.0.0.0:8080", "/"));
        let hosts = Hosts::new("[2001:db8::1]:80".parse().unwrap(), &[]);
        assert!(allows(&hosts, "[2001:db8::1]", "/"));
    }
}
