//! The configuration: the servers, the login, and the prefix and layout of the keys.

use std::{fmt, time::Duration};

use leasehold_core::{CONNECT_TIMEOUT, Endpoint, Error, Password};

use crate::{
    layout::Layout,
    server::{Address, Login, Server},
    servers::{AddressMap, Sentinels, Servers},
    url,
    wake::Wake,
};

/// The default prefix of lock keys.
pub const DEFAULT_PREFIX: &str = "lock:";
/// The longest prefix of lock keys, in bytes. The name that follows the prefix in a key has up to 512 bytes.
const MAX_PREFIX_BYTES: usize = 128;

/// The longest gap (the time for which a name is left to other programs), the same value as in `lua/head.lua`. A queue
/// entry lives longer than the longest gap, even if its claim sends no request.
const MAX_GAP: Duration = Duration::from_secs(10);

/// What happens to a lock key without expiry whose value is a time in the past: the lock of a program with the recipe
/// `SETNX key time`, which died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StaleDeadline {
    /// The key counts as taken, as every foreign key does.
    #[default]
    Taken,
    /// The next claim takes the key over.
    Reclaim,
}

/// The configuration: the servers, the login, and the prefix and layout of the keys. Its `Debug` shows no password.
#[derive(Clone)]
pub struct Config {
    pub(crate) servers: Servers,
    /// Maps the addresses that servers announce to addresses at which this client reaches the servers.
    pub(crate) map: AddressMap,
    pub(crate) login: Login,
    /// The database number.
    pub(crate) db: u32,
    pub(crate) prefix: String,
    pub(crate) connect_timeout: Duration,
    /// How long a name is left to other programs, see [`gap`](Self::gap); `None` for the default.
    pub(crate) gap: Option<Duration>,
    /// The program whose waiters a release wakes, and the words that tell the scripts which program it is.
    pub(crate) wake: Option<(Wake, String)>,
    /// How many replicas must have a grant before the grant is returned.
    pub(crate) wait: u32,
    /// How a lock is stored: as a string, or as a hash of Redisson.
    pub(crate) layout: Layout,
    /// What happens to a foreign key whose value is a time in the past.
    pub(crate) stale_deadline: StaleDeadline,
    /// Whether the URL demands encryption. Then the caller must also give the TLS settings.
    pub(crate) wants_tls: bool,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::Tls>,
}

impl Config {
    /// The server at `address`, with defaults for everything else.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self::of(Servers::One(address))
    }

    /// The master of a group that Sentinels watch, with defaults for everything else.
    #[must_use]
    pub fn sentinels(sentinels: Sentinels) -> Self {
        Self::of(Servers::Sentinel(sentinels))
    }

    /// A Redis Cluster, found through some of its nodes, with defaults for everything else.
    #[must_use]
    pub fn cluster(nodes: Vec<Endpoint>) -> Self {
        Self::of(Servers::Cluster(nodes))
    }

    /// These servers, with defaults for everything else.
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
            stale_deadline: StaleDeadline::default(),
            wants_tls: false,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Parses a URL. `rest` is the part after the scheme and before the query, still percent-encoded:
    /// `//[user][:password]@host[:port][/db]` for the schemes `redis` and `rediss` (for `rediss`, the caller must also
    /// call `tls`), `//[user][:password]@/path/to/socket` for `redis+unix`,
    /// `//[user][:password]@sentinel[:port],.../master[/db]` for `redis+sentinel`,
    /// `//[user][:password]@node[:port],...` for `redis+cluster`.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured), with the expected form. No error shows a password.
    pub fn from_url(scheme: &str, rest: &str) -> Result<Self, Error> {
        url::parse(scheme, rest)
    }

    /// The servers that store the locks.
    #[must_use]
    pub const fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Maps the addresses that Sentinels or nodes announce to the addresses at which they are reachable from here.
    #[must_use]
    pub fn map(mut self, map: AddressMap) -> Self {
        self.map = map;
        self
    }

    /// Sets the login at the Sentinels; does nothing if the configuration names no Sentinels. The Sentinels never
    /// receive the login of the servers that store the locks.
    #[must_use]
    pub fn sentinel_login(mut self, user: Option<&str>, password: impl Into<Password>) -> Self {
        if let Servers::Sentinel(sentinels) = &mut self.servers {
            sentinels.login.user = user.map(str::to_owned);
            sentinels.login.password = Some(password.into());
        }
        self
    }

    /// Encrypts the connections to the Sentinels; does nothing if the configuration names no Sentinels.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn sentinel_tls(mut self, tls: crate::Tls) -> Self {
        if let Servers::Sentinel(sentinels) = &mut self.servers {
            sentinels.tls = Some(tls);
        }
        self
    }

    /// A grant or a renewal succeeds only when this many replicas have stored it (the command `WAIT`); 0 by default.
    /// With 1 or more, a fail-over loses a lock more rarely than with 0, but still can lose one. The Redis user needs
    /// the right to `WAIT` and `INFO`.
    #[must_use]
    pub fn wait(mut self, replicas: u32) -> Self {
        self.wait = replicas;
        self
    }

    /// How a lock is stored; as a plain string by default.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for Redisson's layout together with a [`wake`](Self::wake) or with
    /// [`StaleDeadline::Reclaim`]: these settings are for locks of different programs.
    pub fn layout(mut self, layout: Layout) -> Result<Self, Error> {
        self.layout = layout;
        self.check_wake()?;
        self.check_stale_deadline()?;
        Ok(self)
    }

    /// What happens to a lock key without expiry whose value is a time in the past. With [`StaleDeadline::Reclaim`] a
    /// claim takes such a key over: the lock of a program with the recipe `SETNX key time` that died. By default the
    /// key counts as taken until somebody deletes it.
    ///
    /// A time is a whole number of seconds (10 digits) or milliseconds (13 digits) since 1970, perhaps with a fraction.
    /// It must have been over for more than 5 s by the server's clock. Choose [`StaleDeadline::Reclaim`] only if every
    /// such number under the [`prefix`](Self::prefix) is the end of a lock.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for [`StaleDeadline::Reclaim`] together with Redisson's
    /// [`layout`](Self::layout), whose locks are no strings.
    pub fn stale_deadline(mut self, stale_deadline: StaleDeadline) -> Result<Self, Error> {
        self.stale_deadline = stale_deadline;
        self.check_stale_deadline()?;
        Ok(self)
    }

    /// Refuses [`StaleDeadline::Reclaim`] together with the layout of Redisson.
    fn check_stale_deadline(&self) -> Result<(), Error> {
        if self.layout != Layout::Plain && self.stale_deadline == StaleDeadline::Reclaim {
            return Err(Error::misconfigured(
                "stale_deadline=reclaim and layout=redisson are for locks of different programs: leave one of them out",
            ));
        }
        Ok(())
    }

    /// Refuses a `wake` together with the layout of Redisson.
    fn check_wake(&self) -> Result<(), Error> {
        if self.layout != Layout::Plain && self.wake.is_some() {
            return Err(Error::misconfigured(
                "wake= and layout=redisson are for locks of different programs: leave one of them out. Redisson's waiters are woken without wake=",
            ));
        }
        Ok(())
    }

    /// The words that tell the scripts which program's waiters a release wakes: see `wake_waiters()` in `lua/wake.lua`
    /// and `lua/wake_redisson.lua`.
    pub(crate) fn wake_words(&self) -> &str {
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

    /// Encrypts the connections to servers on a host and port, not those to a unix socket.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: crate::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The scheme of a URL for one server, for messages: `rediss` if connections are encrypted, otherwise `redis`.
    pub(crate) fn scheme(&self) -> &'static str {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return "rediss";
        }
        "redis"
    }

    /// The server at this address, with the settings of the URL; `servers` is the number of servers in the URL.
    pub(crate) fn server(&self, address: Address, servers: usize) -> Server {
        let server = Server::new(address, self.login.clone(), self.connect_timeout, servers);
        Server {
            db: self.db,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
            ..server
        }
    }

    /// The login at the servers.
    #[must_use]
    pub fn login(mut self, user: &str, password: impl Into<Password>) -> Self {
        self.login.user = Some(user.to_owned());
        self.password(password)
    }

    /// The password at the servers, or a source that is asked for the password each time a connection is made.
    #[must_use]
    pub fn password(mut self, password: impl Into<Password>) -> Self {
        self.login.password = Some(password.into());
        self
    }

    /// The time limit for connecting; [`CONNECT_TIMEOUT`](leasehold_core::CONNECT_TIMEOUT) by default. One attempt
    /// takes 3 s at most, or 1.5 s if there are several servers, however long this timeout is. With a timeout of zero
    /// only this limit of one attempt applies.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The prefix of lock keys; [`DEFAULT_PREFIX`] by default. With an empty prefix the key is the bare name.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for a prefix with control characters, a prefix of more than 128
    /// bytes, and a prefix that the program of [`wake`](Self::wake) never uses.
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

    /// Whenever leasehold frees a lock, it also wakes waiters of another lock program, whose waiters do not poll, but
    /// sleep until that program's wake-up. Mutual exclusion does not depend on the wake-up.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if that program never locks keys with this
    /// [`prefix`](Self::prefix), if the servers are a Redis Cluster and that program does not run on one, or together
    /// with Redisson's [`layout`](Self::layout).
    pub fn wake(mut self, wake: Wake) -> Result<Self, Error> {
        if matches!(self.servers, Servers::Cluster(_)) {
            wake.check_cluster()?;
        }
        self.wake = Some((wake, wake.script_words(&self.prefix)?));
        self.check_wake()?;
        Ok(self)
    }

    /// How long, in whole milliseconds, a name is left to other programs (a gap); 10 s at most. A gap comes after a
    /// period in which the name passed from one of our claims to the next; the period is ten times as long as the gap,
    /// or only as long as the gap if a client of Redisson listens for the lock. Other programs are not in our queue,
    /// but retry from time to time: choose a gap as long as the pause between their attempts. While shared holds
    /// overlap, the name is never free, and there is no gap.
    ///
    /// By default a gap lasts 100 ms, and only a name under which another program was seen in the last five minutes has
    /// gaps. With [`Duration::ZERO`] there are no gaps: then other programs perhaps never get a name for which claims
    /// of ours wait all the time.
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
    fn debug_hides_the_password_and_prefixes_are_checked() {
        let config = Config::new(Address::Unix("/s".into())).login("u", "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(config.prefix("a\nb").is_err());
    }
}
