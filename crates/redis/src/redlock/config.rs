//! Which nodes there are, and how long things take.

use std::{fmt, ops::RangeInclusive, time::Duration};

use leasehold_core::{Error, Password};

use super::url;
use crate::config::Config;

/// The longest lease by default. A node that started anew has no vote for as long, so it is not the day that a single server allows.
const LONGEST: Duration = Duration::from_secs(60);
/// What the longest lease may be.
const LONGEST_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
/// What the time for a node may be.
const NODE_TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(5);
/// By default a node has this part of the ttl, within these bounds.
const NODE_TIMEOUT_PART: u32 = 20;
const NODE_TIMEOUT_LEAST: Duration = Duration::from_millis(20);
const NODE_TIMEOUT_MOST: Duration = Duration::from_millis(200);

/// The nodes of a Redlock, and how they are used. Its `Debug` shows no password.
#[derive(Clone)]
pub struct RedlockConfig {
    pub(super) nodes: Vec<Config>,
    pub(super) node_timeout: Option<Duration>,
    pub(super) longest: Duration,
}

impl RedlockConfig {
    /// These nodes, each with its credentials, database and encryption.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for any other number than an odd one from 3 to 15, with what to use instead; for a
    /// place that is named twice.
    pub fn new(nodes: Vec<Config>) -> Result<Self, Error> {
        url::judge(&nodes)?;
        Ok(Self { nodes, node_timeout: None, longest: LONGEST })
    }

    /// Reads what follows `redlock:` in a URL, up to the query: `//[user[:password]@]host[:port][/db],...`, each node with `rediss://`
    /// before it if it is to be encrypted. A node without credentials has those of the first.
    ///
    /// # Errors
    /// As [`new`](Self::new), and for what is malformed. No error shows a password.
    pub fn from_url(rest: &str) -> Result<Self, Error> {
        Self::new(url::read(rest)?)
    }

    /// Changes what is said of each node.
    ///
    /// # Errors
    /// What `change` does not accept.
    pub fn each(mut self, change: impl Fn(Config) -> Result<Config, Error>) -> Result<Self, Error> {
        self.nodes = self.nodes.into_iter().map(change).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// How every node is asked for the password that has none of its own.
    #[must_use]
    pub fn password(mut self, password: impl Into<Password>) -> Self {
        let password = password.into();
        for node in &mut self.nodes {
            node.login.password.get_or_insert_with(|| password.clone());
        }
        self
    }

    /// Encrypts the connections to the nodes that are to be encrypted.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: &crate::Tls) -> Self {
        for node in self.nodes.iter_mut().filter(|node| node.wants_tls) {
            node.tls = Some(tls.clone());
        }
        self
    }

    /// Whether some nodes are to be encrypted.
    #[must_use]
    pub fn wants_tls(&self) -> bool {
        self.nodes.iter().any(|node| node.wants_tls)
    }

    /// How long a node may take to answer before it is done without: a twentieth of the ttl within 20 and 200 ms by default.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for less than 1 ms, or more than 5 s.
    pub fn node_timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        if !NODE_TIMEOUT_RANGE.contains(&timeout) {
            return Err(Error::misconfigured(
                "node_timeout is out of range: write 1ms to 5s, far less than the ttl",
            ));
        }
        self.node_timeout = Some(timeout);
        Ok(self)
    }

    /// The longest ttl that claims may have; 60 s by default. A node that was started or emptied has no vote for as long, and a little.
    /// The largest that any client of these nodes names counts for all.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for less than 1 s, or more than 24 h.
    pub fn max_ttl(mut self, longest: Duration) -> Result<Self, Error> {
        if !LONGEST_RANGE.contains(&longest) {
            return Err(Error::misconfigured("max_ttl is out of range: write 1s to 24h"));
        }
        self.longest = longest;
        Ok(self)
    }

    /// For how long a node is waited for, of a claim or hold of this ttl.
    pub(super) fn patience(&self, ttl: Duration) -> Duration {
        self.node_timeout
            .unwrap_or_else(|| (ttl / NODE_TIMEOUT_PART).clamp(NODE_TIMEOUT_LEAST, NODE_TIMEOUT_MOST))
    }
}

impl fmt::Debug for RedlockConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockConfig")
            .field("nodes", &self.nodes)
            .field("node_timeout", &self.node_timeout)
            .field("max_ttl", &self.longest)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_twentieth_of_the_ttl_within_bounds() {
        let config = RedlockConfig::from_url("//a,b,c").unwrap();
        for (ttl, patience) in [(100, 20), (400, 20), (1000, 50), (4000, 200), (60_000, 200)] {
            assert_eq!(config.patience(Duration::from_millis(ttl)), Duration::from_millis(patience));
        }
        let config = config.node_timeout(Duration::from_millis(7)).unwrap();
        assert_eq!(config.patience(Duration::from_secs(60)), Duration::from_millis(7));
        assert!(config.clone().node_timeout(Duration::ZERO).is_err());
        assert!(config.clone().max_ttl(Duration::from_millis(999)).is_err());
        assert!(config.max_ttl(Duration::from_secs(86_401)).is_err());
    }
}
