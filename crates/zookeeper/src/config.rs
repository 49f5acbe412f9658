//! Where the servers are, who we are there, and where locks are kept.

use std::{fmt, time::Duration};

use leasehold_core::{CONNECT_TIMEOUT, Endpoint, Error, Password, ServersUrl};

use crate::wire::{Acl, EVERYBODY, MAKER};

/// Where locks are kept, unless the URL says otherwise.
pub const DEFAULT_PREFIX: &str = "/locks";
/// The port of a server without one.
const DEFAULT_PORT: u16 = 2181;
/// The longest prefix and the longest chroot: names have up to 512 bytes besides.
const MAX_PATH_BYTES: usize = 128;
/// The most servers a URL names: ensembles have a handful.
const MAX_SERVERS: usize = 64;
/// The most entries of an access list.
const MAX_ACL: usize = 32;

/// What exclusive claims are called, so that programs with other recipes see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// As by Curator's `InterProcessMutex`.
    #[default]
    Mutex,
    /// As by the writers of Curator's `InterProcessReadWriteLock`.
    ReadWrite,
}

/// Where the servers of an ensemble are, who we are there, and where locks are kept. Its `Debug` shows no password.
#[derive(Clone)]
pub struct Config {
    pub(crate) servers: Vec<Endpoint>,
    /// Before every path: empty, or a path.
    pub(crate) chroot: String,
    pub(crate) login: Option<(String, Password)>,
    pub(crate) prefix: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) layout: Layout,
    /// Who else may do what with the nodes that we make.
    others: Vec<Acl>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<leasehold_tls::Tls>,
}

impl Config {
    /// The ensemble of these servers, at least one, with all else by default.
    #[must_use]
    pub fn new(servers: Vec<Endpoint>) -> Self {
        Self {
            servers,
            chroot: String::new(),
            login: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            connect_timeout: CONNECT_TIMEOUT,
            layout: Layout::default(),
            others: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Reads what follows the scheme `zookeeper` or `zookeepers` (then give `tls` too) in a URL, up to the query, as it stands there:
    /// `//[user:password@]host[:port][,host[:port]...][/chroot]`.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured), with the form that is expected. No error shows a password.
    pub fn from_url(scheme: &str, rest: &str) -> Result<Self, Error> {
        let url = ServersUrl { scheme, example: "://host:2181,host:2181/chroot" };
        let (login, servers, chroot) = url.split(rest)?;
        let servers = url.places(servers, DEFAULT_PORT)?;
        if servers.len() > MAX_SERVERS {
            return Err(url.malformed("names too many servers"));
        }
        let mut config = Self::new(servers);
        config.chroot = url.decoded(chroot.strip_suffix('/').unwrap_or(chroot))?;
        if !(config.chroot.is_empty() || is_path(&config.chroot)) {
            return Err(url.malformed("has a chroot that is no path"));
        }
        config.login = login.map(|login| url.login(login)).transpose()?;
        Ok(config)
    }

    /// The same, of an ensemble of other servers.
    #[must_use]
    pub fn servers(mut self, servers: Vec<Endpoint>) -> Self {
        self.servers = servers;
        self
    }

    leasehold_core::server_options! {
        /// Who we are there, by the scheme `digest`. What we make is then ours alone, but for [`acl`](Self::acl).
    }

    /// What exclusive claims are called.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// The path below which each name has its directory; [`DEFAULT_PREFIX`] by default.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for what is no path, is the root or `/zookeeper`, or has more than 128 bytes.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, Error> {
        if !is_path(prefix) || prefix == "/zookeeper" || prefix.starts_with("/zookeeper/") {
            return Err(Error::misconfigured(format!(
                "the prefix is to be a path like {DEFAULT_PREFIX} with at most {MAX_PATH_BYTES} bytes, outside of /zookeeper"
            )));
        }
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// Who else may do what with the nodes that we make: entries with commas between them, each as ZooKeeper writes it,
    /// `scheme:id:rights`, with rights out of `cdrwa`.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for what is written otherwise.
    pub fn acl(mut self, list: &str) -> Result<Self, Error> {
        let read: Option<Vec<Acl>> = list.split(',').map(entry).collect();
        let read = read.filter(|read| read.len() <= MAX_ACL);
        self.others = read.ok_or_else(|| {
            Error::misconfigured("the access list is to be written like world:anyone:r,ip:10.0.0.0/8:cdrwa")
        })?;
        Ok(self)
    }

    /// Who may do what with the nodes that we make.
    pub(crate) fn acls(&self) -> Vec<Acl> {
        let own = match self.login {
            Some(_) => MAKER.into(),
            // Without a login, who is not let in by anything else would be locked out of what they made.
            None => EVERYBODY.into(),
        };
        let own = (self.login.is_some() || self.others.is_empty()).then_some(own);
        own.into_iter().chain(self.others.iter().cloned()).collect()
    }
}

/// `/a`, `/a/b`, within bounds.
fn is_path(text: &str) -> bool {
    let segment = |segment: &str| {
        !matches!(segment, "" | "." | "..") && !segment.chars().any(crate::keys::is_no_path_character)
    };
    text.len() <= MAX_PATH_BYTES && text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(segment))
}

fn entry(text: &str) -> Option<Acl> {
    let (scheme, rest) = text.split_once(':')?;
    let (id, letters) = rest.rsplit_once(':')?;
    let right = |letter| Some(1 << "rwcda".find(letter)?);
    let rights = letters.chars().map(right).try_fold(0, |all, one| Some(all | one?))?;
    (rights != 0 && !scheme.is_empty()).then(|| Acl::from((rights, scheme, id)))
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("servers", &self.servers)
            .field("chroot", &self.chroot)
            .field("user", &self.login.as_ref().map(|(user, _)| user))
            .field("prefix", &self.prefix)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn endpoint(host: &str, port: u16) -> Endpoint {
        Endpoint { host: host.to_owned(), port }
    }

    #[test]
    fn urls_are_parsed() {
        let read = |rest: &str| Config::from_url("zookeeper", rest).unwrap();
        assert_eq!(read("//a.example").servers, [endpoint("a.example", 2181)]);
        let full = read("//us%40er:p%3Aa%2Fs:s@a:1,[::1]:2,b/apps/one/");
        assert_eq!(full.servers, [endpoint("a", 1), endpoint("::1", 2), endpoint("b", 2181)]);
        let (user, password) = full.login.unwrap();
        let password = password.read().now_or_never().unwrap().unwrap();
        assert_eq!((user.as_str(), password.as_str()), ("us@er", "p:a/s:s"));
        assert_eq!(full.chroot, "/apps/one");
        assert_eq!(read("//a/").chroot, "");
    }

    #[test]
    fn a_malformed_url_is_refused_without_showing_a_password() {
        for rest in [
            "h:2181",
            "//",
            "//u:hunter2@",
            "//u:hunter2@h,",
            "//u:hunter2@h:port",
            "//u:hunter2@h:99999",
            "//u:hunter2@h//x",
            "//u:hunter2@h/a/../b",
            "//u:hunter2@[::1",
            "//:hunter2@h",
            "//u:%ff@h",
        ] {
            let error = Config::from_url("zookeeper", rest).unwrap_err();
            assert!(error.is_misconfigured());
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let config = Config::new(vec![endpoint("h", 1)]).login("u", "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
        for prefix in ["", "/", "a", "/a/", "/a\nb", "/zookeeper", "/zookeeper/x", &"/x".repeat(65)] {
            assert!(config.clone().prefix(prefix).is_err(), "{prefix:?}");
        }
    }

    #[test]
    fn access_lists_depend_on_the_login_and_the_option() {
        let open = Config::new(vec![endpoint("h", 1)]);
        assert_eq!(open.acls(), [EVERYBODY.into()]);
        let ours = open.clone().login("u", "p");
        assert_eq!(ours.acls(), [MAKER.into()]);
        let read = ours.acl("world:anyone:r,digest:v:x=:cdrwa").unwrap();
        assert_eq!(
            read.acls(),
            [MAKER, (1, "world", "anyone"), (31, "digest", "v:x=")].map(Acl::from),
            "besides"
        );
        assert_eq!(open.clone().acl("ip:::1:rw").unwrap().acls(), [Acl::from((3, "ip", "::1"))]);
        for list in ["", "world:anyone", "world:anyone:", "world:anyone:x", ":a:r", "a:b:r,"] {
            assert!(open.clone().acl(list).is_err(), "{list:?}");
        }
    }
}
