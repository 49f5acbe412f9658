//! The configuration: the servers, the login, and the path of the locks.

use std::{fmt, time::Duration};

use leasehold_core::{CONNECT_TIMEOUT, Endpoint, Error, Password, ServersUrl, TokenBlocks};

use crate::{
    memo_place::MEMOS,
    wire::{Acl, CREATOR, EVERYBODY},
};

/// The path of the locks, unless the URL names another one.
pub const DEFAULT_PREFIX: &str = "/locks";
/// The port of a server for which no port is given.
const DEFAULT_PORT: u16 = 2181;
/// The longest prefix and the longest chroot. A name adds up to 512 bytes.
const MAX_PATH_BYTES: usize = 128;
/// The most servers in a URL. Ensembles have a handful.
const MAX_SERVERS: usize = 64;
/// The most entries of an access list.
const MAX_ACL_ENTRIES: usize = 32;

/// How the nodes of exclusive claims are named, so that programs with other recipes recognise them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// As in Curator's `InterProcessMutex`.
    #[default]
    Mutex,
    /// As for the writers of Curator's `InterProcessReadWriteLock`.
    ReadWrite,
    /// As the participants of Curator's `LeaderLatch`. Only exclusive claims are possible. The data of a node is the
    /// owner of the claim, which Curator shows as the id of the participant.
    Latch,
    /// `lock-<number>`, as in locks that people write by hand after the recipe in ZooKeeper's documentation. Only
    /// exclusive claims are possible.
    Plain,
}

/// The servers of an ensemble, the login there, and the path of the locks. Its `Debug` output contains no password.
#[derive(Clone)]
pub struct Config {
    pub(crate) servers: Vec<Endpoint>,
    /// The beginning of every path: empty, or a path.
    pub(crate) chroot: String,
    /// The user and the password.
    pub(crate) login: Option<(String, Password)>,
    pub(crate) prefix: String,
    /// The directory of the only lock of this configuration; `None` if each name has a directory below the prefix. Only
    /// with [`Layout::Plain`].
    path: Option<String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) layout: Layout,
    pub(crate) token_blocks: TokenBlocks,
    /// The rights of other users on the nodes that this client creates.
    others: Vec<Acl>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<leasehold_tls::Tls>,
}

impl Config {
    /// A configuration for these servers, at least one, with defaults for everything else.
    #[must_use]
    pub fn new(servers: Vec<Endpoint>) -> Self {
        Self {
            servers,
            chroot: String::new(),
            login: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            path: None,
            connect_timeout: CONNECT_TIMEOUT,
            layout: Layout::default(),
            token_blocks: TokenBlocks::new(true),
            others: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Parses the part of a URL between the scheme, `zookeeper` or `zookeepers`, and the query:
    /// `//[user:password@]host[:port][,host[:port]...][/chroot]`. With the scheme `zookeepers`, the caller must also
    /// set `tls`.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the text has another form; the message shows the expected form.
    /// No error contains a password.
    pub fn from_url(scheme: &str, rest: &str) -> Result<Self, Error> {
        let url = ServersUrl { scheme, example: "://host:2181,host:2181/chroot" };
        let (login, servers, chroot) = url.split(rest)?;
        let servers = url.endpoints(servers, DEFAULT_PORT)?;
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

    /// The same configuration for an ensemble of other servers.
    #[must_use]
    pub fn servers(mut self, servers: Vec<Endpoint>) -> Self {
        self.servers = servers;
        self
    }

    leasehold_core::server_options! {
        /// The login, by the scheme `digest`. With a login, the nodes that this client creates are accessible only to
        /// this login and to the entries of [`acl`](Self::acl).
    }

    /// How the nodes of exclusive claims are named. A layout other than [`Layout::Plain`] also undoes
    /// [`path`](Self::path).
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self.path = self.path.filter(|_| layout == Layout::Plain);
        self
    }

    /// The directory that is itself a lock, for programs written by hand that create their nodes directly in it. Sets
    /// [`Layout::Plain`]. The last part of the path is the only name that can be locked: with `/apps/orders` the name
    /// is `orders`. Other names are refused as misconfigured. The prefix is not used.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if `path` is no path, is the root, is `/zookeeper` or below it,
    /// has a part `%memos`, or has more than 128 bytes.
    pub fn path(mut self, path: &str) -> Result<Self, Error> {
        if !may_have_locks(path) {
            return Err(Error::misconfigured(format!(
                "path= must be a path like {DEFAULT_PREFIX} with at most {MAX_PATH_BYTES} bytes, outside of \
                 /zookeeper, and without a part {MEMOS}"
            )));
        }
        self.path = Some(path.to_owned());
        self.layout = Layout::Plain;
        Ok(self)
    }

    /// Whether a hold is handed over between tasks of this process; true by default. With `true` the tokens of a hold
    /// are the zxid of its node times [`HAND_OVER_TOKENS`](leasehold_core::HAND_OVER_TOKENS), plus a step for each
    /// hand-over. With `false` the token is the zxid, and each task of the process claims the name for itself. All
    /// programs that share a fence need the same setting.
    #[must_use]
    pub fn hand_over(mut self, hand_over: bool) -> Self {
        self.token_blocks = TokenBlocks::new(hand_over);
        self
    }

    /// The path that contains the directory of each name; [`DEFAULT_PREFIX`] by default.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if `prefix` is no path, is the root, is `/zookeeper` or below it,
    /// has a part `%memos`, or has more than 128 bytes.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, Error> {
        if !may_have_locks(prefix) {
            return Err(Error::misconfigured(format!(
                "the prefix must be a path like {DEFAULT_PREFIX} with at most {MAX_PATH_BYTES} bytes, outside of \
                 /zookeeper, and without a part {MEMOS}"
            )));
        }
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// The rights of other users on the nodes that this client creates: entries separated by commas, each as ZooKeeper
    /// writes it, `scheme:id:rights`, where the rights are letters of `cdrwa`.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the list is malformed.
    pub fn acl(mut self, list: &str) -> Result<Self, Error> {
        let entries: Option<Vec<Acl>> = list.split(',').map(acl_entry).collect();
        let entries = entries.filter(|entries| entries.len() <= MAX_ACL_ENTRIES);
        self.others = entries.ok_or_else(|| {
            Error::misconfigured("the access list must have the form world:anyone:r,ip:10.0.0.0/8:cdrwa")
        })?;
        Ok(self)
    }

    /// The path that contains all directories of locks, without the chroot; or the directory of the only lock.
    pub(crate) fn base_path(&self) -> &str {
        self.path.as_deref().unwrap_or(&self.prefix)
    }

    /// The only name that can be locked; `None` if each name has a directory below the prefix.
    pub(crate) fn only_name(&self) -> Option<&str> {
        self.path.as_ref()?.rsplit_once('/').map(|(_, name)| name)
    }

    /// The access list of the nodes that this client creates.
    pub(crate) fn acls(&self) -> Vec<Acl> {
        let own_entry = match self.login {
            Some(_) => CREATOR.into(),
            // Without a login there is no creator to give rights to: without other entries everybody has all rights.
            None => EVERYBODY.into(),
        };
        let own_entry = (self.login.is_some() || self.others.is_empty()).then_some(own_entry);
        own_entry.into_iter().chain(self.others.iter().cloned()).collect()
    }
}

/// Whether this is a path like `/a` or `/a/b`, within bounds.
fn is_path(text: &str) -> bool {
    let is_segment = |segment: &str| {
        !matches!(segment, "" | "." | "..") && !segment.chars().any(crate::keys::is_no_path_character)
    };
    text.len() <= MAX_PATH_BYTES && text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_segment))
}

/// Whether directories of locks may be created below this path.
fn may_have_locks(path: &str) -> bool {
    let is_of_memos = path.split('/').any(|part| part == MEMOS);
    is_path(path) && path != "/zookeeper" && !path.starts_with("/zookeeper/") && !is_of_memos
}

/// Parses one entry of an access list, `scheme:id:rights`.
fn acl_entry(text: &str) -> Option<Acl> {
    let (scheme, rest) = text.split_once(':')?;
    let (id, letters) = rest.rsplit_once(':')?;
    // The bits of read, write, create, delete and administer, from the lowest one on.
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
            .field("path", &self.path)
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
        let parse = |rest: &str| Config::from_url("zookeeper", rest).unwrap();
        assert_eq!(parse("//a.example").servers, [endpoint("a.example", 2181)]);
        let config = parse("//us%40er:p%3Aa%2Fs:s@a:1,[::1]:2,b/apps/one/");
        assert_eq!(config.servers, [endpoint("a", 1), endpoint("::1", 2), endpoint("b", 2181)]);
        let (user, password) = config.login.unwrap();
        let password = password.read().now_or_never().unwrap().unwrap();
        assert_eq!((user.as_str(), password.as_str()), ("us@er", "p:a/s:s"));
        assert_eq!(config.chroot, "/apps/one");
        assert_eq!(parse("//a/").chroot, "");
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
        for prefix in
            ["", "/", "a", "/a/", "/a\nb", "/zookeeper", "/zookeeper/x", "/a/%memos", &"/x".repeat(65)]
        {
            assert!(config.clone().prefix(prefix).is_err(), "{prefix:?}");
            assert!(config.clone().path(prefix).is_err(), "{prefix:?}");
        }
    }

    #[test]
    fn a_path_is_the_directory_of_one_name() {
        let config = Config::new(vec![endpoint("h", 1)]);
        assert_eq!((config.base_path(), config.only_name()), ("/locks", None));
        let config = config.path("/apps/orders").unwrap();
        assert_eq!((config.base_path(), config.only_name()), ("/apps/orders", Some("orders")));
        assert_eq!(config.layout, Layout::Plain);
        let config = config.layout(Layout::Plain);
        assert_eq!(config.only_name(), Some("orders"));
        let config = config.layout(Layout::Mutex);
        assert_eq!((config.base_path(), config.only_name()), ("/locks", None));
    }

    #[test]
    fn access_lists_depend_on_the_login_and_the_option() {
        let open = Config::new(vec![endpoint("h", 1)]);
        assert_eq!(open.acls(), [EVERYBODY.into()]);
        let ours = open.clone().login("u", "p");
        assert_eq!(ours.acls(), [CREATOR.into()]);
        let with_readers = ours.acl("world:anyone:r,digest:v:x=:cdrwa").unwrap();
        assert_eq!(
            with_readers.acls(),
            [CREATOR, (1, "world", "anyone"), (31, "digest", "v:x=")].map(Acl::from),
            "besides"
        );
        assert_eq!(open.clone().acl("ip:::1:rw").unwrap().acls(), [Acl::from((3, "ip", "::1"))]);
        for list in ["", "world:anyone", "world:anyone:", "world:anyone:x", ":a:r", "a:b:r,"] {
            assert!(open.clone().acl(list).is_err(), "{list:?}");
        }
    }
}
