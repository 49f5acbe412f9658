//! The nodes of a Redlock, and its time limits.

use std::{fmt, ops::RangeInclusive, time::Duration};

use leasehold_core::{Error, Password};

use super::url;
use crate::config::Config;

/// The default of the longest ttl. A restarted node has no vote for a little longer than this, so the default is much
/// shorter than the longest ttl of a single server, which is a day.
const DEFAULT_MAX_TTL: Duration = Duration::from_secs(60);
/// The allowed range of the longest ttl.
const MAX_TTL_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
/// The allowed range of the time limit for the answer of a node.
const NODE_TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(5);
/// By default the time limit for a node is the ttl divided by this, but at least [`MIN_NODE_TIMEOUT`] and at most
/// [`MAX_NODE_TIMEOUT`].
const NODE_TIMEOUT_DIVISOR: u32 = 20;
/// The shortest default of the time limit for a node.
const MIN_NODE_TIMEOUT: Duration = Duration::from_millis(20);
/// The longest default of the time limit for a node.
const MAX_NODE_TIMEOUT: Duration = Duration::from_millis(200);

/// The nodes of a Redlock, and its options. Its `Debug` shows no password.
#[derive(Clone)]
pub struct RedlockConfig {
    pub(super) nodes: Vec<Config>,
    /// How long to wait for a node's answer; `None`: the default, which depends on the ttl.
    pub(super) node_timeout: Option<Duration>,
    /// The longest ttl of claims.
    pub(super) max_ttl: Duration,
}

impl RedlockConfig {
    /// These nodes, each with its credentials, database and encryption.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the number of nodes is even, less than 3 or more than 15, with
    /// a recommendation; and if two nodes have the same endpoint.
    pub fn new(nodes: Vec<Config>) -> Result<Self, Error> {
        url::judge(&nodes)?;
        Ok(Self { nodes, node_timeout: None, max_ttl: DEFAULT_MAX_TTL })
    }

    /// Reads the part of a URL after `redlock:` and before the query: `//[user[:password]@]host[:port][/db],...`, with
    /// `rediss://` in front of each node whose connection is to be encrypted. A node without credentials uses the
    /// credentials of the first node.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and [`is_misconfigured`](Error::is_misconfigured) for a malformed URL. No error
    /// shows a password.
    pub fn from_url(rest: &str) -> Result<Self, Error> {
        Self::new(url::read(rest)?)
    }

    /// Changes the configuration of each node.
    ///
    /// # Errors
    /// The error of `change`.
    pub fn each(mut self, change: impl Fn(Config) -> Result<Config, Error>) -> Result<Self, Error> {
        self.nodes = self.nodes.into_iter().map(change).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// The password, or its source, for every node without one of its own.
    #[must_use]
    pub fn password(mut self, password: impl Into<Password>) -> Self {
        let password = password.into();
        for node in &mut self.nodes {
            node.login.password.get_or_insert_with(|| password.clone());
        }
        self
    }

    /// Encrypts the connections to those nodes that have `rediss://` in the URL.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: &crate::Tls) -> Self {
        for node in self.nodes.iter_mut().filter(|node| node.wants_tls) {
            node.tls = Some(tls.clone());
        }
        self
    }

    /// Whether some nodes have `rediss://` in the URL.
    #[must_use]
    pub fn wants_tls(&self) -> bool {
        self.nodes.iter().any(|node| node.wants_tls)
    }

    /// How long to wait for a node's answer; by default a twentieth of the ttl, but at least 20 ms and at most 200 ms.
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

    /// The longest ttl of claims; 60 s by default. A node that was restarted or emptied has no vote for a little longer
    /// than this. The largest value that any client of these nodes has set applies to all clients.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for less than 1 s, or more than 24 h.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Result<Self, Error> {
        if !MAX_TTL_RANGE.contains(&max_ttl) {
            return Err(Error::misconfigured("max_ttl is out of range: write 1s to 24h"));
        }
        self.max_ttl = max_ttl;
        Ok(self)
    }

    /// How long to wait for a node's answer about a claim or hold of this ttl.
    pub(super) fn answer_timeout(&self, ttl: Duration) -> Duration {
        self.node_timeout
            .unwrap_or_else(|| (ttl / NODE_TIMEOUT_DIVISOR).clamp(MIN_NODE_TIMEOUT, MAX_NODE_TIMEOUT))
    }
}

impl fmt::Debug for RedlockConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockConfig")
            .field("nodes", &self.nodes)
            .field("node_timeout", &self.node_timeout)
            .field("max_ttl", &self.max_ttl)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_timeout_is_a_bounded_part_of_the_ttl() {
        let config = RedlockConfig::from_url("//a,b,c").unwrap();
        for (ttl, answer_timeout) in [(100, 20), (400, 20), (1000, 50), (4000, 200), (60_000, 200)] {
            assert_eq!(
                config.answer_timeout(Duration::from_millis(ttl)),
                Duration::from_millis(answer_timeout)
            );
        }
        let config = config.node_timeout(Duration::from_millis(7)).unwrap();
        assert_eq!(config.answer_timeout(Duration::from_secs(60)), Duration::from_millis(7));
        assert!(config.clone().node_timeout(Duration::ZERO).is_err());
        assert!(config.clone().max_ttl(Duration::from_millis(999)).is_err());
        assert!(config.max_ttl(Duration::from_secs(86_401)).is_err());
    }
}
