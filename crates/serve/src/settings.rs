//! What the server is started with, and what is refused.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use axum::http::HeaderName;
use leasehold::Locks;
use leasehold_ops::Reached;

use crate::{
    guard::{Access, Hosts, Proxy},
    secret::{ProcessKey, Tokens},
};

/// An engine that the page shows.
pub struct EngineSource {
    /// Its name on the page.
    pub label: String,
    /// The locks by which it is looked at.
    pub locks: Locks,
    /// The locks by which holds are ended, if they are to be others: those of a user with more rights.
    pub breaker: Option<Locks>,
    /// How a reader of the page reaches the engine by a command that breaks a hold.
    pub reached: Reached,
}

/// What the server is started with.
#[non_exhaustive]
pub struct Settings {
    /// The address to listen on. Port 0 means any free port.
    pub listen: SocketAddr,
    /// Names of this server besides its address, as browsers send them, without ports.
    pub hosts: Vec<String>,
    /// The engines, in the order of the page.
    pub engines: Vec<EngineSource>,
    /// The certificate of the server; without it, connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// The file with the tokens of those who may read.
    pub view_tokens: Option<PathBuf>,
    /// The file with the tokens of those who may end holds.
    pub break_tokens: Option<PathBuf>,
    /// The proxy that says who the user is.
    pub proxy: Option<ProxySettings>,
    /// Whether holds can be ended by this page.
    pub allow_break: bool,
    /// The file to which breaks are recorded.
    pub audit: Option<PathBuf>,
    /// Patterns of the names that have series of their own in the metrics, such as `deploy/*`.
    pub metrics_names: Vec<String>,
}

/// The files of a certificate and of its key, both PEM.
pub struct TlsFiles {
    /// The certificate, with those that lead to an authority.
    pub certificate: PathBuf,
    /// The key. Only its owner may read the file.
    pub key: PathBuf,
}

/// A proxy that says in a header who the user is.
pub struct ProxySettings {
    /// The header with the user.
    pub user_header: String,
    /// The addresses of the proxy.
    pub peers: Vec<IpAddr>,
    /// The file with the secret that the proxy sends in `X-Leasehold-Proxy-Secret`.
    pub secret: PathBuf,
    /// The users who may end holds.
    pub breakers: Vec<String>,
}

/// Why the server was not started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The settings contradict each other, or are not safe.
    Settings(String),
    /// A file cannot be used.
    File(String),
    /// The system refuses something, such as the address.
    System(String),
}

impl Settings {
    /// Settings for this machine alone: anyone on it may read, and nobody may end holds.
    #[must_use]
    pub const fn new(listen: SocketAddr, engines: Vec<EngineSource>) -> Self {
        Self {
            listen,
            hosts: Vec::new(),
            engines,
            tls: None,
            view_tokens: None,
            break_tokens: None,
            proxy: None,
            allow_break: false,
            audit: None,
            metrics_names: Vec::new(),
        }
    }

    /// Refuses what would show or end locks for anyone.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let wrong = |why: &str| Err(StartError::Settings(why.to_owned()));
        let is_known = (self.tls.is_some() && self.view_tokens.is_some()) || self.proxy.is_some();
        if !self.listen.ip().is_loopback() && !is_known {
            return wrong(
                "other machines could read this page: give --tls-cert, --tls-key and --view-tokens, \
                 or the options of a proxy, or listen on 127.0.0.1",
            );
        }
        let has_names = !self.hosts.is_empty() || !self.listen.ip().is_unspecified();
        if !has_names {
            return wrong("give --host with the name by which browsers ask for this page");
        }
        if self.allow_break && self.audit.is_none() {
            return wrong("--allow-break needs --audit with the file to which breaks are recorded");
        }
        let has_breakers = self.break_tokens.is_some()
            || self.proxy.as_ref().is_some_and(|proxy| !proxy.breakers.is_empty());
        if self.allow_break && !has_breakers {
            return wrong("--allow-break needs --break-tokens, or --proxy-breaker, for those who may break");
        }
        if self.proxy.as_ref().is_some_and(|proxy| proxy.peers.is_empty()) {
            return wrong("--proxy-user-header needs --proxy-peer with the address of the proxy");
        }
        let mut labels: Vec<_> = self.engines.iter().map(|engine| &engine.label).collect();
        labels.sort();
        if labels.windows(2).any(|pair| pair[0] == pair[1]) {
            return wrong("two engines have the same label");
        }
        Ok(())
    }

    /// Reads the files with tokens. `listen`: the address that is listened on.
    pub(crate) fn access(&self, listen: SocketAddr) -> Result<Access, StartError> {
        let key = ProcessKey::new().map_err(|error| StartError::System(error.to_string()))?;
        let mut access = Access::new(Hosts::new(listen, &self.hosts), key);
        let read = |path: &Option<PathBuf>| match path {
            Some(path) => Tokens::read(path, &access.key).map_err(StartError::File),
            None => Ok(Tokens::default()),
        };
        let (view, breaking) = (read(&self.view_tokens)?, read(&self.break_tokens)?);
        let proxy = match &self.proxy {
            Some(proxy) => Some(proxy.open(&access.key, self.allow_break)?),
            None => None,
        };
        (access.view, access.breaking, access.proxy) = (view, breaking, proxy);
        access.allows_breaks = self.allow_break;
        access.is_encrypted = self.tls.is_some();
        Ok(access)
    }
}

impl ProxySettings {
    /// `allow_break`: whether holds can be broken at all.
    fn open(&self, key: &ProcessKey, allow_break: bool) -> Result<Proxy, StartError> {
        let user_header = HeaderName::try_from(&self.user_header)
            .map_err(|_| StartError::Settings(format!("{:?} is no name of a header", self.user_header)))?;
        Ok(Proxy {
            user_header,
            peers: self.peers.iter().map(IpAddr::to_canonical).collect(),
            secret: Tokens::read(&self.secret, key).map_err(StartError::File)?,
            breakers: if allow_break { self.breakers.clone() } else { Vec::new() },
        })
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Settings(why) | Self::File(why) | Self::System(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for StartError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(listen: &str) -> Settings {
        Settings::new(listen.parse().unwrap(), Vec::new())
    }

    fn refusal(settings: &Settings) -> String {
        settings.check().unwrap_err().to_string()
    }

    fn tls() -> Option<TlsFiles> {
        Some(TlsFiles { certificate: "c".into(), key: "k".into() })
    }

    fn proxy(peers: &[&str], breakers: &[&str]) -> Option<ProxySettings> {
        Some(ProxySettings {
            user_header: "x-user".into(),
            peers: peers.iter().map(|peer| peer.parse().unwrap()).collect(),
            secret: "s".into(),
            breakers: breakers.iter().map(|&user| user.to_owned()).collect(),
        })
    }

    #[test]
    fn other_machines_need_to_be_known() {
        assert!(settings("127.0.0.1:0").check().is_ok());
        assert!(settings("[::1]:0").check().is_ok());
        let tokens = Some(PathBuf::from("t"));
        let far = || settings("192.0.2.1:0");
        assert!(refusal(&far()).contains("--tls-cert"));
        assert!(refusal(&Settings { view_tokens: tokens.clone(), ..far() }).contains("--tls-cert"));
        assert!(refusal(&Settings { tls: tls(), ..far() }).contains("--view-tokens"));
        assert!(
            refusal(&Settings { tls: tls(), break_tokens: tokens.clone(), ..far() })
                .contains("--view-tokens")
        );
        assert!(Settings { tls: tls(), view_tokens: tokens, ..far() }.check().is_ok());
        assert!(Settings { proxy: proxy(&["192.0.2.2"], &[]), ..far() }.check().is_ok());
        assert!(refusal(&Settings { proxy: proxy(&[], &[]), ..far() }).contains("--proxy-peer"));
        let any = Settings { proxy: proxy(&["192.0.2.2"], &[]), ..settings("0.0.0.0:0") };
        assert!(refusal(&any).contains("--host"));
    }

    #[test]
    fn breaks_need_a_record_and_somebody() {
        let own = || Settings { allow_break: true, ..settings("127.0.0.1:0") };
        let file = Some(PathBuf::from("f"));
        assert!(refusal(&own()).contains("--audit"));
        assert!(refusal(&Settings { audit: file.clone(), ..own() }).contains("--break-tokens"));
        let by_proxy = |breakers| Settings { audit: file.clone(), proxy: proxy(&["::1"], breakers), ..own() };
        assert!(refusal(&by_proxy(&[])).contains("--break-tokens"));
        assert!(by_proxy(&["ada"]).check().is_ok());
        assert!(Settings { audit: file.clone(), break_tokens: file, ..own() }.check().is_ok());
    }

    #[test]
    fn a_label_belongs_to_one_engine() {
        let source = || EngineSource {
            label: "a".into(),
            locks: Locks::connect("memory:").unwrap(),
            breaker: None,
            reached: Reached::AsHere,
        };
        let twice = Settings { engines: vec![source(), source()], ..settings("127.0.0.1:0") };
        assert!(refusal(&twice).contains("same label"));
    }
}
