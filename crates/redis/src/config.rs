//! Where the server is, who we are there, and what keys are called.

use std::{fmt, time::Duration};

use leasehold_core::{CONNECT_TIMEOUT, Error, Password, Place};
use percent_encoding::percent_decode_str;

use crate::{
    bell::Bell,
    server::{Address, Login, Server},
};

/// What lock keys begin with, unless the URL says otherwise.
pub const DEFAULT_PREFIX: &str = "lock:";
/// The port of a URL without one.
const DEFAULT_PORT: u16 = 6379;
/// The longest prefix of keys: names have up to 512 bytes besides.
const MAX_PREFIX_BYTES: usize = 128;

/// The longest gap, as `lua/head.lua` knows it. A place in line lasts for longer without a sign of life.
const MAX_GAP: Duration = Duration::from_secs(10);

/// Where the server is, who we are there, and what keys are called. Its `Debug` shows no password.
#[derive(Clone)]
pub struct Config {
    pub(crate) address: Address,
    pub(crate) login: Login,
    pub(crate) db: u32,
    pub(crate) prefix: String,
    pub(crate) connect_timeout: Duration,
    /// `None`: as long as other programs usually need, where one was seen.
    pub(crate) gap: Option<Duration>,
    /// Whom a release wakes, and how the scripts are told.
    pub(crate) bell: Option<(Bell, String)>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::Tls>,
}

impl Config {
    /// The server at `address`, with all else by default.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self {
            address,
            login: Login::default(),
            db: 0,
            prefix: DEFAULT_PREFIX.to_owned(),
            connect_timeout: CONNECT_TIMEOUT,
            gap: None,
            bell: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Reads what follows the scheme `redis`, `rediss` (then give `tls` too) or `redis+unix` in a URL, up to the
    /// query, as it stands there: `//[user][:password]@host[:port][/db]`, `//[user][:password]@/path/to/socket`.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured), with the form that is expected. No error shows a password.
    pub fn from_url(scheme: &str, rest: &str) -> Result<Self, Error> {
        let unix = scheme == "redis+unix";
        let wanted = if unix { "redis+unix:///path/to/socket" } else { "redis://host:6379/0" };
        let malformed =
            |what: &str| Error::misconfigured(format!("the {scheme} URL {what}: write it like {wanted}"));
        let rest = rest.strip_prefix("//").ok_or_else(|| malformed("has no //"))?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (login, place) = authority.rsplit_once('@').map_or((None, authority), |(l, p)| (Some(l), p));
        let decode = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned);
            decoded.map_err(|_| malformed("holds percent-escapes that are no UTF-8"))
        };
        let mut config = if unix {
            if !place.is_empty() || path.len() < 2 {
                return Err(malformed("names no socket"));
            }
            Self::new(Address::Unix(decode(path)?.into()))
        } else {
            let (host, port) =
                Place::split(place, DEFAULT_PORT).ok_or_else(|| malformed("has a port that is no number"))?;
            let host = decode(host)?;
            if host.is_empty() {
                return Err(malformed("names no host"));
            }
            Self::new(Address::Tcp(Place { host, port }))
        };
        if let Some(login) = login {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            config.login.user = Some(decode(user)?).filter(|user| !user.is_empty());
            config.login.password =
                Some(decode(password)?).filter(|password| !password.is_empty()).map(Password::from);
        }
        if !unix && path.len() > 1 {
            config.db = path[1..].parse().map_err(|_| malformed("has a database that is no number"))?;
        }
        Ok(config)
    }

    /// The database number; 0 by default.
    #[must_use]
    pub fn db(mut self, db: u32) -> Self {
        self.db = db;
        self
    }

    /// Encrypts the connection. For a server on a host and port.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: crate::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// One of so many servers of the URL.
    pub(crate) fn server(&self, address: Address, servers: usize) -> Server {
        let server = Server::new(address, self.login.clone(), self.connect_timeout, servers);
        Server {
            db: self.db,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
            ..server
        }
    }

    /// Who we are there.
    #[must_use]
    pub fn login(mut self, user: &str, password: impl Into<Password>) -> Self {
        self.login.user = Some(user.to_owned());
        self.password(password)
    }

    /// How we prove who we are; asked for at each connection.
    #[must_use]
    pub fn password(mut self, password: impl Into<Password>) -> Self {
        self.login.password = Some(password.into());
        self
    }

    /// How long connecting may take; [`CONNECT_TIMEOUT`](leasehold_core::CONNECT_TIMEOUT) by default. An attempt takes 3 s at most. Zero is none but that.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// What lock keys begin with; [`DEFAULT_PREFIX`] by default. An empty one makes the key the bare name.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for one with control characters, of more than 128 bytes, or that the
    /// [`bell`](Self::bell) does not go with.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, Error> {
        if prefix.len() > MAX_PREFIX_BYTES || prefix.chars().any(char::is_control) {
            return Err(Error::misconfigured(format!(
                "the prefix of keys has more than {MAX_PREFIX_BYTES} bytes, or control characters"
            )));
        }
        prefix.clone_into(&mut self.prefix);
        match self.bell.take() {
            Some((bell, _)) => self.bell(bell),
            None => Ok(self),
        }
    }

    /// Wakes the waiters of another program whenever a lock of ours becomes free: of one that sleeps until a bell rings, and would
    /// sleep on otherwise. Who holds and who waits exclude each other without it.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if that program never locks keys of this [`prefix`](Self::prefix).
    pub fn bell(mut self, bell: Bell) -> Result<Self, Error> {
        self.bell = Some((bell, bell.words(&self.prefix)?));
        Ok(self)
    }

    /// For how long, in whole milliseconds, a name is left to other programs whenever it went from one of ours to the next for ten
    /// times as long; 10 s at most. They do not stand in our line, but try from time to time: choose the pause between their
    /// tries. Readers that follow each other without a break leave none.
    ///
    /// By default there are gaps of 100 ms, and only for a name under which another program was seen in the last five minutes.
    /// With [`Duration::ZERO`] there are none: other programs may never get a name for which ours always wait.
    #[must_use]
    pub fn gap(mut self, gap: Duration) -> Self {
        self.gap = Some(gap.min(MAX_GAP));
        self
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("address", &self.address)
            .field("user", &self.login.user)
            .field("password", &self.login.password)
            .field("db", &self.db)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(Place { host: host.to_owned(), port })
    }

    #[test]
    fn urls_are_read() {
        let read = |scheme: &str, rest: &str| Config::from_url(scheme, rest).unwrap();
        assert_eq!(read("redis", "//db.example").address, tcp("db.example", 6379));
        assert_eq!(read("redis", "//[::1]:7000/3").address, tcp("::1", 7000));
        assert_eq!(read("redis", "//[::1]/3").db, 3);
        assert_eq!(read("redis+unix", "///run/a%20b.sock").address, Address::Unix("/run/a b.sock".into()));
        let full = read("redis", "//us%40er:p%3Aa%2Fs:s@h:1/");
        let password = |config: &Config| {
            let read = config.login.password.as_ref().unwrap().read();
            read.now_or_never().unwrap().unwrap().as_str().to_owned()
        };
        assert_eq!((full.login.user.as_deref(), password(&full).as_str()), (Some("us@er"), "p:a/s:s"));
        assert_eq!((full.address, full.db), (tcp("h", 1), 0));
        let bare = read("redis", "//:secret@h");
        assert_eq!((password(&bare).as_str(), bare.login.user), ("secret", None));
    }

    #[test]
    fn what_is_malformed_is_refused_without_showing_a_password() {
        for (scheme, rest) in [
            ("redis", "h:6379"),
            ("redis", "//"),
            ("redis", "//u:hunter2@"),
            ("redis", "//u:hunter2@h:port"),
            ("redis", "//u:hunter2@h:99999"),
            ("redis", "//u:hunter2@h/zero"),
            ("redis", "//u:hunter2@[::1"),
            ("redis", "//u:%ff@h"),
            ("redis+unix", "//u:hunter2@host/sock"),
            ("redis+unix", "//"),
        ] {
            let error = Config::from_url(scheme, rest).unwrap_err();
            assert!(error.is_misconfigured());
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let config = Config::new(tcp("h", 1)).login("u", "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(config.prefix("a\nb").is_err());
    }
}
