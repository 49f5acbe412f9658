//! The identity of a server, which the client asks for at the start of each connection.

use std::collections::HashMap;

use leasehold_core::{EngineError, Fault};
use redis::{RedisError, RedisResult, Value, aio::MultiplexedConnection, from_redis_value};

use crate::server::Server;

/// What a server reports about itself. Parts that it does not report are empty.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// The mode of the server: `standalone`, `sentinel` or `cluster`.
    pub(crate) server_mode: String,
    /// The role of the server: `master` or `replica`.
    pub(crate) role: String,
    /// The run id of its process; each process has its own. `None` if the user has no right to read it.
    pub(crate) run_id: Option<String>,
    /// For how many seconds the process has been running, by its own clock; `None` if the user has no right to read it.
    pub(crate) uptime: Option<u64>,
    /// The groups that a Sentinel watches.
    pub(crate) groups: Vec<String>,
}

/// The kind of server to which a connection must lead, as the URL says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// A single server, or the server to which a host name leads: neither a node of a Cluster nor a Sentinel.
    Single,
    /// A node of a Redlock: an independent master, one of several.
    RedlockNode,
    /// The master of a group that Sentinels watch.
    SentinelMaster,
    /// A node of a Cluster.
    ClusterNode,
    /// A Sentinel.
    Sentinel,
}

impl Identity {
    /// Asks the server for its identity; `is_resp2` is the protocol of the connection.
    pub(crate) async fn ask(mux: &MultiplexedConnection, is_resp2: bool) -> RedisResult<Self> {
        let mut identity =
            if is_resp2 { Self::ask_by_role(mux).await? } else { Self::ask_by_hello(mux).await? };
        if identity.server_mode == "sentinel" {
            identity.groups = watched_groups(mux).await;
        }
        Ok(identity)
    }

    /// The mode and role by `HELLO`, which only servers with RESP3 know.
    async fn ask_by_hello(mux: &MultiplexedConnection) -> RedisResult<Self> {
        let reply: Value = redis::cmd("HELLO").arg(3).query_async(&mut mux.clone()).await?;
        let reply: HashMap<String, Value> = from_redis_value(reply).map_err(RedisError::from)?;
        let field = |key| reply.get(key).and_then(|value| from_redis_value::<String>(value.clone()).ok());
        let [server_mode, role] = ["mode", "role"].map(|key| field(key).unwrap_or_default());
        Ok(Self { server_mode, role, ..Self::default() })
    }

    /// The role by `ROLE`; empty if the server does not know that command, or does not let this user call it.
    async fn ask_by_role(mux: &MultiplexedConnection) -> RedisResult<Self> {
        let reply: RedisResult<Vec<Value>> = redis::cmd("ROLE").query_async(&mut mux.clone()).await;
        let role = match reply {
            // An error without a code is not the server's answer: the connection failed.
            Err(error) if error.code().is_none() => return Err(error),
            Err(_) => String::new(),
            Ok(reply) => {
                reply.first().and_then(|value| from_redis_value(value.clone()).ok()).unwrap_or_default()
            }
        };
        let (server_mode, role) = match role.as_str() {
            "sentinel" => ("sentinel", ""),
            "slave" => ("", "replica"),
            _ => ("", role.as_str()),
        };
        Ok(Self { server_mode: server_mode.to_owned(), role: role.to_owned(), ..Self::default() })
    }

    /// Refuses a server of another kind than the wanted one; the error names the right URL.
    pub(crate) fn check_kind(&self, wanted: ServerKind, server: &Server) -> Result<(), EngineError> {
        let address = &server.address;
        let scheme = if server.is_encrypted() { "rediss" } else { "redis" };
        let (actual_kind, right_url) = match (self.server_mode.as_str(), wanted) {
            ("sentinel", ServerKind::Sentinel) | ("cluster", ServerKind::ClusterNode) | ("", _) => {
                return self.check_role(wanted, server);
            }
            ("sentinel", _) => {
                let known_groups = match &self.groups[..] {
                    [] => String::new(),
                    groups => format!(" (it knows {})", groups.join(", ")),
                };
                ("a Sentinel", format!("{scheme}+sentinel://{address}/NAME{known_groups}"))
            }
            ("cluster", _) => ("a node of a Redis Cluster", format!("{scheme}+cluster://{address}")),
            (_, ServerKind::Sentinel) => {
                let message = format!(
                    "{address} is a server with data and no Sentinel: write where the Sentinels are (their port is 26379 by default), or, if no Sentinel watches this server, write {scheme}://{address}"
                );
                return Err(EngineError::new(Fault::Misconfigured, message));
            }
            (_, ServerKind::ClusterNode) => {
                ("a server alone and no node of a Redis Cluster", format!("{scheme}://{address}"))
            }
            _ => return self.check_role(wanted, server),
        };
        Err(EngineError::new(Fault::Misconfigured, format!("{address} is {actual_kind}: write {right_url}")))
    }

    /// Refuses a replica as a node of a Redlock, and a server that is no master as the master of a group.
    fn check_role(&self, wanted: ServerKind, server: &Server) -> Result<(), EngineError> {
        if wanted == ServerKind::RedlockNode && self.role == "replica" {
            let message = format!(
                "{} is a replica, and a Redlock wants masters that know nothing of each other: name its master, or another server",
                server.address
            );
            return Err(EngineError::new(Fault::Misconfigured, message));
        }
        self.check_master(wanted, server)
    }

    /// Refuses a server that the Sentinels name as the master, if it does not report the role of a master.
    fn check_master(&self, wanted: ServerKind, server: &Server) -> Result<(), EngineError> {
        if wanted != ServerKind::SentinelMaster || self.role == "master" {
            return Ok(());
        }
        let (address, role) = (&server.address, if self.role.is_empty() { "unknown" } else { &self.role });
        let message = format!(
            "the Sentinels name {address}, which reports the role {role}: a fail-over may be under way"
        );
        Err(EngineError::new(Fault::Retry, message))
    }
}

/// The run id of the server; `None` if this user has no right to read it.
pub(crate) async fn run_id(mux: &MultiplexedConnection) -> RedisResult<Option<String>> {
    Ok(run_id_and_uptime(mux).await?.0)
}

/// The run id of the server, and for how many seconds its process has been running; `None` if this user has no right to
/// read them.
pub(crate) async fn run_id_and_uptime(
    mux: &MultiplexedConnection,
) -> RedisResult<(Option<String>, Option<u64>)> {
    let reply: RedisResult<String> = redis::cmd("INFO").arg("server").query_async(&mut mux.clone()).await;
    match reply {
        Ok(text) => {
            let info_field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            let uptime = info_field("uptime_in_seconds:").and_then(|seconds| seconds.parse().ok());
            Ok((info_field("run_id:").map(str::to_owned), uptime))
        }
        // An error without a code is not the server's answer: the connection failed.
        Err(error) if error.code().is_none() => Err(error),
        Err(_) => Ok((None, None)),
    }
}

/// The names of the groups that a Sentinel watches; none if it does not answer.
pub(crate) async fn watched_groups(mux: &MultiplexedConnection) -> Vec<String> {
    let reply: RedisResult<Vec<HashMap<String, String>>> =
        redis::cmd("SENTINEL").arg("MASTERS").query_async(&mut mux.clone()).await;
    let mut names: Vec<_> =
        reply.unwrap_or_default().into_iter().filter_map(|mut group| group.remove("name")).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::Endpoint;

    use super::*;
    use crate::server::{Address, Login};

    #[test]
    fn a_server_of_another_kind_is_refused_with_the_right_url() {
        let endpoint = Endpoint { host: "h".to_owned(), port: 7 };
        let server = Server::new(Address::Tcp(endpoint), Login::default(), Duration::ZERO, 1);
        for (server_mode, role, wanted, fault, expected) in [
            ("standalone", "master", ServerKind::Single, None, ""),
            ("standalone", "replica", ServerKind::Single, None, ""),
            ("standalone", "master", ServerKind::RedlockNode, None, ""),
            ("standalone", "replica", ServerKind::RedlockNode, Some(Fault::Misconfigured), "name its master"),
            (
                "sentinel",
                "",
                ServerKind::RedlockNode,
                Some(Fault::Misconfigured),
                "redis+sentinel://h:7/NAME",
            ),
            ("cluster", "master", ServerKind::RedlockNode, Some(Fault::Misconfigured), "redis+cluster://h:7"),
            ("", "", ServerKind::Single, None, ""),
            ("sentinel", "master", ServerKind::Sentinel, None, ""),
            ("cluster", "replica", ServerKind::ClusterNode, None, ""),
            ("standalone", "master", ServerKind::SentinelMaster, None, ""),
            ("", "master", ServerKind::SentinelMaster, None, ""),
            ("standalone", "replica", ServerKind::SentinelMaster, Some(Fault::Retry), "the role replica"),
            ("", "", ServerKind::SentinelMaster, Some(Fault::Retry), "the role unknown"),
            (
                "sentinel",
                "",
                ServerKind::Single,
                Some(Fault::Misconfigured),
                "redis+sentinel://h:7/NAME (it knows a, b)",
            ),
            (
                "sentinel",
                "",
                ServerKind::ClusterNode,
                Some(Fault::Misconfigured),
                "redis+sentinel://h:7/NAME",
            ),
            ("cluster", "master", ServerKind::Single, Some(Fault::Misconfigured), "redis+cluster://h:7"),
            ("cluster", "master", ServerKind::Sentinel, Some(Fault::Misconfigured), "redis+cluster://h:7"),
            ("standalone", "master", ServerKind::Sentinel, Some(Fault::Misconfigured), "redis://h:7"),
            ("standalone", "master", ServerKind::ClusterNode, Some(Fault::Misconfigured), "redis://h:7"),
        ] {
            let groups = ["a", "b"].map(str::to_owned).to_vec();
            let identity = Identity {
                server_mode: server_mode.to_owned(),
                role: role.to_owned(),
                groups,
                ..Identity::default()
            };
            let checked = identity.check_kind(wanted, &server);
            assert_eq!(
                checked.as_ref().err().map(|error| error.fault),
                fault,
                "{server_mode} {role} {wanted:?}"
            );
            let text = checked.err().map(|error| error.message).unwrap_or_default();
            assert!(text.contains(expected), "{text}");
        }
    }
}
