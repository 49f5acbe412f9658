//! A single server or a cluster, with the counters of its servers.

use std::collections::BTreeMap;

use leasehold_testkit::server::{RedisCluster, RedisClusterOptions, RedisServer};

use crate::Failure;

/// The servers that have the locks.
pub(crate) enum Site {
    One(RedisServer),
    Cluster(RedisCluster),
}

/// The work that all servers of a site have done so far.
pub(crate) struct ServerWork {
    /// The number of calls of each command. Calls by clients and calls by scripts are included.
    pub(crate) calls: BTreeMap<String, u64>,
    /// The processor time, in seconds.
    pub(crate) cpu: f64,
}

impl Site {
    pub(crate) fn one() -> Self {
        Self::One(RedisServer::start(&[]))
    }

    /// A cluster of this many masters without replicas. Its node timeout is long, so that busy nodes do not consider
    /// each other down.
    pub(crate) fn cluster(masters: usize) -> Self {
        let node_timeout = std::time::Duration::from_secs(15);
        let options = RedisClusterOptions { masters, replicas: 0, node_timeout, ..Default::default() };
        Self::Cluster(RedisCluster::start_with(options))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::One(server) => format!("redis://127.0.0.1:{}", server.port()),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// The answer of each server to this command.
    pub(crate) fn command(&self, words: &[&str]) -> Vec<Vec<String>> {
        match self {
            Self::One(server) => vec![server.command(words)],
            Self::Cluster(cluster) => {
                (0..cluster.ports().len()).map(|node| cluster.command(node, words)).collect()
            }
        }
    }

    pub(crate) fn work(&self) -> Result<ServerWork, Failure> {
        ServerWork::of(&self.command(&["INFO", "all"]).concat())
    }
}

impl ServerWork {
    /// The work in the answers of servers to `INFO all`.
    pub(crate) fn of(answers: &[String]) -> Result<Self, Failure> {
        let mut work = Self { calls: BTreeMap::new(), cpu: 0.0 };
        for line in answers {
            if let Some((command, rest)) =
                line.strip_prefix("cmdstat_").and_then(|rest| rest.split_once(":calls="))
            {
                let calls: u64 = rest.split(',').next().unwrap_or_default().parse()?;
                *work.calls.entry(command.to_owned()).or_default() += calls;
            } else if let Some((_, used)) =
                line.split_once(':').filter(|(name, _)| ["used_cpu_user", "used_cpu_sys"].contains(name))
            {
                work.cpu += used.trim().parse::<f64>()?;
            }
        }
        Ok(work)
    }

    /// The work that was done after `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (command, calls) in &mut self.calls {
            *calls -= before.calls.get(command).copied().unwrap_or_default();
        }
        self.calls.retain(|_, calls| *calls > 0);
        self.cpu -= before.cpu;
        self
    }

    /// The number of requests of clients that run scripts.
    pub(crate) fn requests(&self) -> u64 {
        self.calls.get("evalsha").copied().unwrap_or_default()
    }

    /// The number of commands that the scripts called.
    pub(crate) fn script_commands(&self) -> u64 {
        const BY_CLIENTS: [&str; 6] = ["evalsha", "info", "ping", "config|get", "script|load", "hello"];
        let is_of_script = |(command, _): &(&String, &u64)| {
            !BY_CLIENTS.contains(&command.as_str())
                && !command.starts_with("cluster")
                && !command.starts_with("client")
        };
        self.calls.iter().filter(is_of_script).map(|(_, calls)| calls).sum()
    }
}
