//! Parses the part of a URL that names the servers and the login.

use leasehold_core::{Error, Password, ServersUrl};

use crate::{
    config::Config,
    server::Address,
    servers::{Sentinels, Servers},
};

/// The default ports of a server and of a Sentinel.
const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The form of a URL of this scheme, with an example for errors.
fn url_form(scheme: &str) -> ServersUrl<'_> {
    let example = match scheme.split_once('+').map_or("", |(_, kind)| kind) {
        "unix" => ":///path/to/socket",
        "sentinel" => "://host1:26379,host2:26379,host3:26379/mymaster",
        "cluster" => "://host1:6379,host2:6379,host3:6379",
        _ => "://host:6379/0",
    };
    ServersUrl { scheme, example }
}

/// The database number at the end of a URL; 0 if there is none.
fn db(url: &ServersUrl<'_>, path: &str) -> Result<u32, Error> {
    match path {
        "" => Ok(0),
        path => path.parse().map_err(|_| url.malformed("has a database that is no number")),
    }
}

/// Parses a URL for [`Config::from_url`]: `rest` is the part after the scheme and its colon.
pub(crate) fn parse(scheme: &str, rest: &str) -> Result<Config, Error> {
    let url = url_form(scheme);
    let rest = rest.strip_prefix("//").ok_or_else(|| url.malformed("has no //"))?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let (login, hosts) =
        authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
    let kind = scheme.split_once('+').map_or("", |(_, kind)| kind);
    let after_slash = path.strip_prefix('/').unwrap_or_default();
    let (servers, db) = match kind {
        "unix" if !hosts.is_empty() || path.len() < 2 => return Err(url.malformed("names no socket")),
        "unix" => (Servers::One(Address::Unix(url.decoded(path)?.into())), 0),
        "sentinel" => {
            let (master, db) = after_slash.split_once('/').unwrap_or((after_slash, ""));
            let (master, endpoints) = (url.decoded(master)?, url.endpoints(hosts, SENTINEL_PORT)?);
            if master.is_empty() || master.chars().any(|c| c.is_whitespace() || c.is_control()) {
                return Err(url.malformed("does not say what the Sentinels call the master"));
            }
            (Servers::Sentinel(Sentinels::new(endpoints, &master)), self::db(&url, db)?)
        }
        "cluster" => match db(&url, after_slash)? {
            0 => (Servers::Cluster(url.endpoints(hosts, SERVER_PORT)?), 0),
            _ => return Err(url.malformed("has a database other than 0, which a Redis Cluster has not")),
        },
        _ if hosts.contains(',') => {
            let scheme = if scheme.starts_with("rediss") { "rediss" } else { "redis" };
            return Err(url.malformed(&format!(
                "names several hosts, which is for {scheme}+sentinel://.../mymaster or {scheme}+cluster://..."
            )));
        }
        _ => (Servers::One(Address::Tcp(url.endpoint(hosts, SERVER_PORT)?)), db(&url, after_slash)?),
    };
    let mut config = Config::of(servers);
    config.db = db;
    if let Some(login) = login {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        config.login.user = Some(url.decoded(user)?).filter(|user| !user.is_empty());
        config.login.password =
            Some(url.decoded(password)?).filter(|password| !password.is_empty()).map(Password::from);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use leasehold_core::Endpoint;

    use super::*;

    fn tcp(host: &str, port: u16) -> String {
        format!("{:?}", Servers::One(Address::Tcp(Endpoint { host: host.to_owned(), port })))
    }

    #[test]
    fn urls_are_parsed() {
        let read = |scheme: &str, rest: &str| Config::from_url(scheme, rest).unwrap();
        let servers = |scheme: &str, rest: &str| format!("{:?}", read(scheme, rest).servers);
        assert_eq!(servers("redis", "//db.example"), tcp("db.example", 6379));
        assert_eq!(servers("redis", "//[::1]:7000/3"), tcp("::1", 7000));
        assert_eq!(read("redis", "//[::1]/3").db, 3);
        let socket = Servers::One(Address::Unix("/run/a b.sock".into()));
        assert_eq!(servers("redis+unix", "///run/a%20b.sock"), format!("{socket:?}"));
        let full = read("redis", "//us%40er:p%3Aa%2Fs:s@h:1/");
        let password = |config: &Config| {
            let read = config.login.password.as_ref().unwrap().read();
            read.now_or_never().unwrap().unwrap().as_str().to_owned()
        };
        assert_eq!((full.login.user.as_deref(), password(&full).as_str()), (Some("us@er"), "p:a/s:s"));
        assert_eq!((format!("{:?}", full.servers), full.db), (tcp("h", 1), 0));
        let bare = read("redis", "//:secret@h");
        assert_eq!((password(&bare).as_str(), bare.login.user), ("secret", None));
    }

    #[test]
    fn urls_of_several_servers_are_parsed() {
        let endpoints = |list: &[(&str, u16)]| -> Vec<Endpoint> {
            list.iter().map(|&(host, port)| Endpoint { host: host.to_owned(), port }).collect()
        };
        let config = Config::from_url("redis+sentinel", "//u:p@a:1,b,[::1]:3/my%2Dmaster/2").unwrap();
        let Servers::Sentinel(sentinels) = &config.servers else { panic!("{config:?}") };
        assert_eq!(sentinels.endpoints, endpoints(&[("a", 1), ("b", 26379), ("::1", 3)]));
        assert_eq!((sentinels.group.as_str(), config.db), ("my-master", 2));
        assert!(config.login.password.is_some() && sentinels.login.password.is_none());
        for path in ["", "/", "/0"] {
            let config = Config::from_url("rediss+cluster", &format!("//a,b:2{path}")).unwrap();
            let Servers::Cluster(nodes) = &config.servers else { panic!("{config:?}") };
            assert_eq!(*nodes, endpoints(&[("a", 6379), ("b", 2)]));
        }
    }

    #[test]
    fn a_malformed_url_is_refused_without_its_password() {
        for (scheme, rest, expected) in [
            ("redis", "h:6379", "no //"),
            ("redis", "//", "no host"),
            ("redis", "//u:hunter2@", "no host"),
            ("redis", "//u:hunter2@h:port", "port"),
            ("redis", "//u:hunter2@h:99999", "port"),
            ("redis", "//u:hunter2@h/zero", "database"),
            ("redis", "//u:hunter2@[::1", "port"),
            ("redis", "//u:%ff@h", "UTF-8"),
            ("rediss", "//u:hunter2@h:1,g:2/0", "rediss+sentinel://.../mymaster or rediss+cluster"),
            ("redis+unix", "//u:hunter2@host/sock", "no socket"),
            ("redis+unix", "//", "no socket"),
            ("redis+sentinel", "//u:hunter2@h", "call the master"),
            ("redis+sentinel", "//u:hunter2@h/", "call the master"),
            ("redis+sentinel", "//u:hunter2@h//0", "call the master"),
            ("redis+sentinel", "//u:hunter2@h/my%20master", "call the master"),
            ("redis+sentinel", "//u:hunter2@h/mymaster/x", "database"),
            ("redis+sentinel", "//u:hunter2@h/mymaster/0/1", "database"),
            ("redis+sentinel", "//u:hunter2@/mymaster", "no host"),
            ("redis+sentinel", "//u:hunter2@a,,b/mymaster", "no host"),
            ("redis+sentinel", "//u:hunter2@a,b:x/mymaster", "port"),
            ("redis+cluster", "//u:hunter2@a,b/1", "database other than 0"),
            ("redis+cluster", "//u:hunter2@a,b/x", "database"),
            ("redis+cluster", "//u:hunter2@", "no host"),
        ] {
            let error = Config::from_url(scheme, rest).unwrap_err();
            assert!(error.is_misconfigured());
            let text = error.to_string();
            assert!(!text.contains("hunter2") && text.contains(expected), "{rest}: {text}");
        }
    }
}
