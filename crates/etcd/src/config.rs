//! The configuration: the members, the login, and the prefix and layout of the keys.

use std::{fmt, time::Duration};

use leasehold_core::{CONNECT_TIMEOUT, Endpoint, Error, Password, ServersUrl, TokenBlocks};

use crate::keys;

/// The prefix of lock keys, unless the URL names another.
pub const DEFAULT_PREFIX: &str = "/locks";
/// The port of a member for which the URL names no port.
const DEFAULT_PORT: u16 = 2379;
/// The longest prefix of keys. A name adds up to 512 bytes.
const MAX_PREFIX_BYTES: usize = 128;
/// The most members that a URL may name: clusters have a handful.
const MAX_MEMBERS: usize = 64;

/// Which keys on the server are the lock of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// A directory of keys for each name, as in etcd's own client packages: the oldest key of the directory holds.
    #[default]
    Directory,
    /// One key for each name, the lock key, as in programs that create a key if it is absent: the program that creates
    /// the lock key holds. Only exclusive locks are possible.
    Key,
    /// As `Directory`, and the value of the leader's key is what the leader of an election has published, as in
    /// elections with etcd's own client packages and with `etcdctl elect`. Only exclusive locks are possible.
    Election,
}

/// The members of a cluster, the login, and the prefix and layout of the keys. Its `Debug` shows no password.
#[derive(Clone)]
pub struct Config {
    pub(crate) members: Vec<Endpoint>,
    /// The user and the password.
    pub(crate) login: Option<(String, Password)>,
    /// The prefix of lock keys; `None`: the default of the layout.
    prefix: Option<String>,
    pub(crate) layout: Layout,
    pub(crate) connect_timeout: Duration,
    token_blocks: TokenBlocks,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<leasehold_tls::Tls>,
}

impl Config {
    /// A cluster with these members, at least one, and default options.
    #[must_use]
    pub fn new(members: Vec<Endpoint>) -> Self {
        Self {
            members,
            login: None,
            prefix: None,
            layout: Layout::default(),
            connect_timeout: CONNECT_TIMEOUT,
            token_blocks: TokenBlocks::new(true),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Whether connections use TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Reads the part of a URL between the scheme, `etcd` or `etcds`, and the query:
    /// `//[user:password@]host[:port][,host[:port]...]`. With the scheme `etcds`, the caller must also call `tls`.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the text has another form; the message shows the expected form.
    /// No error shows a password.
    pub fn from_url(scheme: &str, rest: &str) -> Result<Self, Error> {
        let url = ServersUrl { scheme, example: "://host:2379,host:2379" };
        let (login, members, path) = url.split(rest)?;
        if !matches!(path, "" | "/") || login.is_some_and(|login| login.contains('/')) {
            return Err(url.malformed("has a path, which means nothing here (did you mean ?prefix=)"));
        }
        let members = url.endpoints(members, DEFAULT_PORT)?;
        if members.len() > MAX_MEMBERS {
            return Err(url.malformed("names too many members"));
        }
        let mut config = Self::new(members);
        config.login = login.map(|login| url.login(login)).transpose()?;
        Ok(config)
    }

    /// Replaces the members.
    #[must_use]
    pub fn members(mut self, members: Vec<Endpoint>) -> Self {
        self.members = members;
        self
    }

    leasehold_core::server_options! {
        /// The login.
    }

    /// Whether a hold is handed over between tasks of this process; true by default. With `true` the tokens of a hold
    /// are the create revision of its key times [`HAND_OVER_TOKENS`](leasehold_core::HAND_OVER_TOKENS), plus a step for
    /// each hand-over. With `false` the token is the create revision, as in other programs, and each task of the
    /// process claims the name for itself. All programs that share a fence need the same setting.
    #[must_use]
    pub fn hand_over(mut self, hand_over: bool) -> Self {
        self.token_blocks = TokenBlocks::new(hand_over);
        self
    }

    /// Sets which keys are the lock of a name; a directory for each name by default. All programs that share a lock
    /// need the same layout. With [`Layout::Key`] set the layout before the [`prefix`](Self::prefix). With
    /// [`Layout::Election`] tokens are create revisions, as with `hand_over(false)`.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the prefix was set before and is not possible with this layout.
    pub fn layout(mut self, layout: Layout) -> Result<Self, Error> {
        self.layout = layout;
        match self.prefix.take() {
            None => Ok(self),
            Some(prefix) => self.prefix(&prefix),
        }
    }

    /// Sets the prefix of lock keys. With [`Layout::Directory`] and [`Layout::Election`] a slash and the name follow
    /// the prefix, which is [`DEFAULT_PREFIX`] by default. With [`Layout::Key`] the name follows the prefix as it is;
    /// the prefix is empty by default, so that the name itself is the key.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for a prefix that has control characters or more than 128 bytes,
    /// and, except with [`Layout::Key`], for a prefix that is empty or ends in a slash. Also for a prefix that has
    /// `/key/NAME/queue` in it: leasehold keeps the queue of another lock there.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, Error> {
        let is_malformed = prefix.len() > MAX_PREFIX_BYTES || prefix.chars().any(char::is_control);
        match self.layout {
            Layout::Directory | Layout::Election
                if is_malformed || prefix.is_empty() || prefix.ends_with('/') =>
            {
                return Err(Error::misconfigured(format!(
                    "the prefix of keys must have 1 to {MAX_PREFIX_BYTES} bytes, no slash at its end and no control \
                     characters"
                )));
            }
            Layout::Key if is_malformed => {
                return Err(Error::misconfigured(format!(
                    "with layout=key the prefix of keys must have at most {MAX_PREFIX_BYTES} bytes and no control \
                     characters"
                )));
            }
            Layout::Directory | Layout::Key | Layout::Election => {}
        }
        if keys::is_prefix_in_queue(prefix) {
            return Err(Error::misconfigured(
                "the prefix of keys must not have /key/NAME/queue in it: leasehold keeps the queue of a lock there",
            ));
        }
        self.prefix = Some(prefix.to_owned());
        Ok(self)
    }

    /// How create revisions become tokens. Other programs use the bare create revision as the term of a leader.
    pub(crate) fn token_blocks(&self) -> TokenBlocks {
        if self.layout == Layout::Election { TokenBlocks::new(false) } else { self.token_blocks }
    }

    /// The prefix of lock keys.
    pub(crate) fn key_prefix(&self) -> &str {
        let default = match self.layout {
            Layout::Directory | Layout::Election => DEFAULT_PREFIX,
            Layout::Key => "",
        };
        self.prefix.as_deref().unwrap_or(default)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("members", &self.members)
            .field("user", &self.login.as_ref().map(|(user, _)| user))
            .field("prefix", &self.key_prefix())
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn member(host: &str, port: u16) -> Endpoint {
        Endpoint { host: host.to_owned(), port }
    }

    #[test]
    fn urls_are_read() {
        let parse = |rest: &str| Config::from_url("etcd", rest).unwrap();
        assert_eq!(parse("//a.example").members, [member("a.example", 2379)]);
        assert_eq!(parse("//a:1,[::1]:2,b/").members, [member("a", 1), member("::1", 2), member("b", 2379)]);
        let config = parse("//us%40er:p%3Aa%2Fs:s@h:1,i");
        let (user, password) = config.login.unwrap();
        let password = password.read().now_or_never().unwrap().unwrap();
        assert_eq!((user.as_str(), password.as_str()), ("us@er", "p:a/s:s"));
        assert_eq!(config.members, [member("h", 1), member("i", 2379)]);
    }

    #[test]
    fn a_malformed_url_is_refused_without_showing_a_password() {
        for rest in [
            "h:2379",
            "//",
            "//u:hunter2@",
            "//u:hunter2@h,",
            "//u:hunter2@h:port",
            "//u:hunter2@h:99999",
            "//u:hunter2@h/locks",
            "//u:hunter2@[::1",
            "//:hunter2@h",
            "//u:%ff@h",
        ] {
            let error = Config::from_url("etcd", rest).unwrap_err();
            assert!(error.is_misconfigured());
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let config = Config::new(vec![member("h", 1)]).login("u", "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
        for prefix in ["", "/", "a/", "a\nb", "/key/x/queue", &"x".repeat(129)] {
            assert!(config.clone().prefix(prefix).is_err(), "{prefix:?}");
        }
    }

    #[test]
    fn with_lock_keys_a_prefix_may_be_empty_or_end_in_a_slash() {
        let config = Config::new(vec![member("h", 1)]);
        assert_eq!(config.key_prefix(), "/locks");
        let config = config.layout(Layout::Key).unwrap();
        assert_eq!(config.key_prefix(), "", "the name itself is the key");
        for prefix in ["", "/", "a/", &"x".repeat(128)] {
            let config = config.clone().prefix(prefix).unwrap();
            assert_eq!(config.key_prefix(), prefix);
            assert_eq!(config.layout(Layout::Directory).is_err(), prefix.is_empty() || prefix.ends_with('/'));
        }
        for prefix in ["a\nb", &"x".repeat(129)] {
            assert!(config.clone().prefix(prefix).is_err(), "{prefix:?}");
        }
    }
}
