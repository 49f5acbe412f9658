//! The identity of a server, which it is asked for at the start of a connection.

use std::collections::HashMap;

use leasehold_core::{EngineError, Fault};
use redis::{RedisError, RedisResult, Value, aio::MultiplexedConnection, from_redis_value};

use crate::server::Server;

/// The report of a server about itself. Missing parts are empty.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// `standalone`, `sentinel` or `cluster`.
    pub(crate) mode: String,
    /// `master` or `replica`.
    pub(crate) role: String,
    /// The run id of its process; each process has its own. `None` if the user has no right to read it.
    pub(crate) run: Option<String>,
    /// For how many seconds the process has been running, by its own clock; `None` likewise.
    pub(crate) uptime: Option<u64>,
    /// The groups that a Sentinel watches.
    pub(crate) masters: Vec<String>,
}

/// The kind of server that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A single server, or one behind a name: neither a node of a Cluster nor a Sentinel.
    Alone,
    /// An independent master, one of several.
    Independent,
    /// The master of a group that Sentinels watch.
    Master,
    /// A node of a Cluster.
    Node,
    /// A Sentinel.
    Sentinel,
}

impl Identity {
    /// Asks on a connection with RESP3, or, with `old`, on one with RESP2.
    pub(crate) async fn ask(mux: &MultiplexedConnection, old: bool) -> RedisResult<Self> {
        let mut identity = if old { Self::by_role(mux).await? } else { Self::by_hello(mux).await? };
        if identity.mode == "sentinel" {
            identity.masters = masters(mux).await;
        }
        Ok(identity)
    }

    async fn by_hello(mux: &MultiplexedConnection) -> RedisResult<Self> {
        let reply: Value = redis::cmd("HELLO").arg(3).query_async(&mut mux.clone()).await?;
        let reply: HashMap<String, Value> = from_redis_value(reply).map_err(RedisError::from)?;
        let word = |key| reply.get(key).and_then(|value| from_redis_value::<String>(value.clone()).ok());
        let [mode, role] = ["mode", "role"].map(|key| word(key).unwrap_or_default());
        Ok(Self { mode, role, ..Self::default() })
    }

    /// Not every server knows the command `ROLE`, or lets this user call it.
    async fn by_role(mux: &MultiplexedConnection) -> RedisResult<Self> {
        let reply: RedisResult<Vec<Value>> = redis::cmd("ROLE").query_async(&mut mux.clone()).await;
        let role = match reply {
            Err(error) if error.code().is_none() => return Err(error),
            Err(_) => String::new(),
            Ok(reply) => {
                reply.first().and_then(|value| from_redis_value(value.clone()).ok()).unwrap_or_default()
            }
        };
        let (mode, role) = match role.as_str() {
            "sentinel" => ("sentinel", ""),
            "slave" => ("", "replica"),
            _ => ("", role.as_str()),
        };
        Ok(Self { mode: mode.to_owned(), role: role.to_owned(), ..Self::default() })
    }

    /// Refuses a server of another kind, and names the right URL.
    pub(crate) fn judge(&self, wanted: Wanted, server: &Server) -> Result<(), EngineError> {
        let address = &server.address;
        let scheme = if server.is_encrypted() { "rediss" } else { "redis" };
        let (what, write) = match (self.mode.as_str(), wanted) {
            ("sentinel", Wanted::Sentinel) | ("cluster", Wanted::Node) | ("", _) => {
                return self.check_place(wanted, server);
            }
            ("sentinel", _) => {
                let known = match &self.masters[..] {
                    [] => String::new(),
                    masters => format!(" (it knows {})", masters.join(", ")),
                };
                ("a Sentinel", format!("{scheme}+sentinel://{address}/NAME{known}"))
            }
            ("cluster", _) => ("a node of a Redis Cluster", format!("{scheme}+cluster://{address}")),
            (_, Wanted::Sentinel) => {
                let message = format!(
                    "{address} is a server with data and no Sentinel: write where the Sentinels are (their port is 26379 by default), or, if no Sentinel watches this server, write {scheme}://{address}"
                );
                return Err(EngineError::new(Fault::Misconfigured, message));
            }
            (_, Wanted::Node) => {
                ("a server alone and no node of a Redis Cluster", format!("{scheme}://{address}"))
            }
            _ => return self.check_place(wanted, server),
        };
        Err(EngineError::new(Fault::Misconfigured, format!("{address} is {what}: write {write}")))
    }

    fn check_place(&self, wanted: Wanted, server: &Server) -> Result<(), EngineError> {
        if wanted == Wanted::Independent && self.role == "replica" {
            let message = format!(
                "{} is a replica, and a Redlock wants masters that know nothing of each other: name its master, or another server",
                server.address
            );
            return Err(EngineError::new(Fault::Misconfigured, message));
        }
        self.role(wanted, server)
    }

    fn role(&self, wanted: Wanted, server: &Server) -> Result<(), EngineError> {
        if wanted != Wanted::Master || self.role == "master" {
            return Ok(());
        }
        let (address, role) = (&server.address, if self.role.is_empty() { "unknown" } else { &self.role });
        let message = format!(
            "the Sentinels name {address}, which reports the role {role}: a fail-over may be under way"
        );
        Err(EngineError::new(Fault::Retry, message))
    }
}

/// The run id of the server, if this user has the right to read it.
pub(crate) async fn run_id(mux: &MultiplexedConnection) -> RedisResult<Option<String>> {
    Ok(process(mux).await?.0)
}

/// The run id of the server, and for how many seconds its process has been running, if this user has the
/// right to read them.
pub(crate) async fn process(mux: &MultiplexedConnection) -> RedisResult<(Option<String>, Option<u64>)> {
    let reply: RedisResult<String> = redis::cmd("INFO").arg("server").query_async(&mut mux.clone()).await;
    match reply {
        Ok(text) => {
            let find = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            let uptime = find("uptime_in_seconds:").and_then(|seconds| seconds.parse().ok());
            Ok((find("run_id:").map(str::to_owned), uptime))
        }
        Err(error) if error.code().is_none() => Err(error),
        Err(_) => Ok((None, None)),
    }
}

/// The groups that a Sentinel watches, if it answers.
pub(crate) async fn masters(mux: &MultiplexedConnection) -> Vec<String> {
    let reply: RedisResult<Vec<HashMap<String, String>>> =
        redis::cmd("SENTINEL").arg("MASTERS").query_async(&mut mux.clone()).await;
    let mut names: Vec<_> =
        reply.unwrap_or_default().into_iter().filter_map(|mut one| one.remove("name")).collect();
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
        for (mode, role, wanted, fault, expected) in [
            ("standalone", "master", Wanted::Alone, None, ""),
            ("standalone", "replica", Wanted::Alone, None, ""),
            ("standalone", "master", Wanted::Independent, None, ""),
            ("standalone", "replica", Wanted::Independent, Some(Fault::Misconfigured), "name its master"),
            ("sentinel", "", Wanted::Independent, Some(Fault::Misconfigured), "redis+sentinel://h:7/NAME"),
            ("cluster", "master", Wanted::Independent, Some(Fault::Misconfigured), "redis+cluster://h:7"),
            ("", "", Wanted::Alone, None, ""),
            ("sentinel", "master", Wanted::Sentinel, None, ""),
            ("cluster", "replica", Wanted::Node, None, ""),
            ("standalone", "master", Wanted::Master, None, ""),
            ("", "master", Wanted::Master, None, ""),
            ("standalone", "replica", Wanted::Master, Some(Fault::Retry), "the role replica"),
            ("", "", Wanted::Master, Some(Fault::Retry), "the role unknown"),
            (
                "sentinel",
                "",
                Wanted::Alone,
                Some(Fault::Misconfigured),
                "redis+sentinel://h:7/NAME (it knows a, b)",
            ),
            ("sentinel", "", Wanted::Node, Some(Fault::Misconfigured), "redis+sentinel://h:7/NAME"),
            ("cluster", "master", Wanted::Alone, Some(Fault::Misconfigured), "redis+cluster://h:7"),
            ("cluster", "master", Wanted::Sentinel, Some(Fault::Misconfigured), "redis+cluster://h:7"),
            ("standalone", "master", Wanted::Sentinel, Some(Fault::Misconfigured), "redis://h:7"),
            ("standalone", "master", Wanted::Node, Some(Fault::Misconfigured), "redis://h:7"),
        ] {
            let masters = ["a", "b"].map(str::to_owned).to_vec();
            let identity =
                Identity { mode: mode.to_owned(), role: role.to_owned(), masters, ..Identity::default() };
            let judged = identity.judge(wanted, &server);
            assert_eq!(judged.as_ref().err().map(|error| error.fault), fault, "{mode} {role} {wanted:?}");
            let text = judged.err().map(|error| error.message).unwrap_or_default();
            assert!(text.contains(expected), "{text}");
        }
    }
}
