//! Where the server is, who we are there, and what keys are called.

use std::{fmt, time::Duration};

use leasehold_core::{CONNECT_TIMEOUT, Endpoint, Error, Password};

use crate::{
    layout::Layout,
    server::{Address, Login, Server},
    servers::{AddressMap, Sentinels, Servers},
    url,
    wake::Wake,
};

/// What lock keys begin with, unless the URL says otherwise.
pub const DEFAULT_PREFIX: &str = "lock:";
/// The longest prefix of keys: names have up to 512 bytes besides.
const MAX_PREFIX_BYTES: usize = 128;

/// The longest gap, as `lua/head.lua` knows it. A place in line lasts for longer without a sign of life.
const MAX_GAP: Duration = Duration::from_secs(10);

/// Where the server is, who we are there, and what keys are called. Its `Debug` shows no password.
#[derive(Clone)]
pub struct Config {
    pub(crate) servers: Servers,
    pub(crate) map: AddressMap,
    pub(crate) login: Login,
    pub(crate) db: u32,
    pub(crate) prefix: String,
    pub(crate) connect_timeout: Duration,
    /// `None`: as long as other programs usually need, where one was seen.
    pub(crate) gap: Option<Duration>,
    /// Whom a release wakes, and how the scripts are told.
    pub(crate) wake: Option<(Wake, String)>,
    /// How many replicas have a grant before it is shown.
    pub(crate) wait: u32,
    pub(crate) layout: Layout,
    /// It is to be encrypted, by what is still to be said.
    pub(crate) wants_tls: bool,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::Tls>,
}

impl Config {
    /// The server at `address`, with all else by default.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self::of(Servers::One(address))
    }

    /// The master of a group that Sentinels watch.
    #[must_use]
    pub fn sentinels(sentinels: Sentinels) -> Self {
        Self::of(Servers::Sentinel(sentinels))
    }

    /// A Redis Cluster, known by some of its nodes.
    #[must_use]
    pub fn cluster(nodes: Vec<Endpoint>) -> Self {
        Self::of(Servers::Cluster(nodes))
    }

    pub(crate) fn of(servers: Servers) -> Self {
        Self {
            servers,
            map: AddressMap::default(),
            login: Login::default(),
            db: 0,
            prefix: DEFAULT_PREFIX.to_owned(),
            connect_timeout: CONNECT_TIMEOUT,
            gap: None,
            wake: None,
            wait: 0,
            layout: Layout::default(),
            wants_tls: false,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Reads what follows the scheme `redis`, `rediss` (then give `tls` too), `redis+unix`, `redis+sentinel` or `redis+cluster` in
    /// a URL, up to the query, as it stands there: `//[user][:password]@host[:port][/db]`, `//[user][:password]@/path/to/socket`,
    /// `//[user][:password]@sentinel[:port],.../master[/db]`, `//[user][:password]@node[:port],...`.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured), with the form that is expected. No error shows a password.
    pub fn from_url(scheme: &str, rest: &str) -> Result<Self, Error> {
        url::read(scheme, rest)
    }

    /// Which servers keep the locks.
    #[must_use]
    pub const fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Where servers are reached that Sentinels or nodes announce elsewhere.
    #[must_use]
    pub fn map(mut self, map: AddressMap) -> Self {
        self.map = map;
        self
    }

    /// Who we are to the Sentinels, where there are any. They are never told who we are to the servers.
    #[must_use]
    pub fn sentinel_login(mut self, user: Option<&str>, password: impl Into<Password>) -> Self {
        if let Servers::Sentinel(sentinels) = &mut self.servers {
            sentinels.login.user = user.map(str::to_owned);
            sentinels.login.password = Some(password.into());
        }
        self
    }

    /// Encrypts the connections to the Sentinels, where there are any.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn sentinel_tls(mut self, tls: crate::Tls) -> Self {
        if let Servers::Sentinel(sentinels) = &mut self.servers {
            sentinels.tls = Some(tls);
        }
        self
    }

    /// Shows a grant, and counts a renewal, only when so many replicas have it (`WAIT`); none by default. This makes it rarer that a
    /// fail-over loses a lock, and does not rule it out. The user needs the right to `WAIT` and `INFO`.
    #[must_use]
    pub fn wait(mut self, replicas: u32) -> Self {
        self.wait = replicas;
        self
    }

    /// What the lock of a name is; a plain string by default.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) together with a [`wake`](Self::bell): each belongs to locks of another program.
    pub fn layout(mut self, layout: Layout) -> Result<Self, Error> {
        self.layout = layout;
        self.one_program()?;
        Ok(self)
    }

    fn one_program(&self) -> Result<(), Error> {
        if self.layout != Layout::Plain && self.wake.is_some() {
            return Err(Error::misconfigured(
                "bell and layout=redisson are for locks of different programs: leave one of them out. Redisson's waiters are woken without a bell",
            ));
        }
        Ok(())
    }

    /// How the scripts are told whose waiters a release wakes: see `ring()` in `lua/wake.lua` and `lua/wake_redisson.lua`.
    pub(crate) fn ring(&self) -> &str {
        match (self.layout, &self.servers) {
            (Layout::Redisson, Servers::Cluster(_)) => "redisson s",
            (Layout::Redisson, _) => "redisson",
            (Layout::Plain, _) => self.wake.as_ref().map_or("", |(_, words)| words),
        }
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

    /// How a URL of one server begins.
    pub(crate) fn scheme(&self) -> &'static str {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return "rediss";
        }
        "redis"
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
    /// [`wake`](Self::bell) does not go with.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, Error> {
        if prefix.len() > MAX_PREFIX_BYTES || prefix.chars().any(char::is_control) {
            return Err(Error::misconfigured(format!(
                "the prefix of keys has more than {MAX_PREFIX_BYTES} bytes, or control characters"
            )));
        }
        prefix.clone_into(&mut self.prefix);
        match self.wake.take() {
            Some((wake, _)) => self.wake(wake),
            None => Ok(self),
        }
    }

    /// Wakes the waiters of another program whenever a lock of ours becomes free: of one that sleeps until a bell rings, and would
    /// sleep on otherwise. Who holds and who waits exclude each other without it.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if that program never locks keys of this [`prefix`](Self::prefix), or does not run on
    /// a Redis Cluster, where this is one.
    pub fn wake(mut self, wake: Wake) -> Result<Self, Error> {
        if matches!(self.servers, Servers::Cluster(_)) {
            wake.in_a_cluster()?;
        }
        self.wake = Some((wake, wake.words(&self.prefix)?));
        self.one_program()?;
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
            .field("servers", &self.servers)
            .field("user", &self.login.user)
            .field("password", &self.login.password)
            .field("db", &self.db)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown_and_a_prefix_has_no_control_characters() {
        let config = Config::new(Address::Unix("/s".into())).login("u", "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(config.prefix("a\nb").is_err());
    }
}
