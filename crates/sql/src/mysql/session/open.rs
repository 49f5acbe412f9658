//! Opens a session: connects, sets the timeouts of the server, reads them back, and refuses servers on which a session
//! lock does not exclude.

use std::time::Duration;

use leasehold_core::{Fault, Instant, Lineage};

use super::super::{
    config::Config,
    conn::Conn,
    error::Commits,
    first_second,
    relay::Relayed,
    rows::ColumnReader,
    server::Server,
    statements::{SERVER, SESSION, SESSION_TIMEOUTS},
};
use crate::{
    database::Failed,
    session::{guarantee::Path, options::SERVER_KEEPS},
};

/// The time limits of the server for a silent session, in seconds. The lock of a client that has vanished is free after
/// this time.
const TIMEOUT: u64 = SERVER_KEEPS.as_secs();

/// A session, as it was opened.
pub(super) struct Opened {
    pub(super) conn: Conn,
    pub(super) relayed: Option<Relayed>,
    pub(super) path: Path,
    /// The number of the connection on the server.
    pub(super) connection: u64,
    pub(super) lineage: Lineage,
    /// The database, as all sessions of the server spell it.
    pub(super) database: String,
    /// For how long the server has run.
    pub(super) uptime: Duration,
}

/// Opens a session.
pub(super) async fn open(config: &Config, now: Instant) -> Result<Opened, Failed> {
    let config = config.watched();
    let opening = async {
        let (mut conn, relayed) = Conn::connect(&config, now).await?;
        let seconds = TIMEOUT.to_string();
        let timeouts = SESSION_TIMEOUTS.with_values(&[("seconds", &seconds)]);
        let text = [SESSION.statements(), &timeouts, SERVER.statements()].join("; ");
        let mut sets =
            conn.execute(&text).await.map_err(|execute_error| execute_error.classify(Commits::Never))?;
        let server_sets = sets.split_off(sets.len().saturating_sub(SERVER_STATEMENTS));
        let (connection, host, database) = read_back(sets.last().and_then(|set| set.rows.first()))?;
        let server = Server::read(server_sets);
        check(&server)?;
        let uptime = first_second::wait_until_over(&mut conn, &server).await?;
        let path = path(host, relayed.as_ref().map(|relayed| relayed.local_port));
        let lineage = Lineage::new(server.identity());
        Ok(Opened { conn, relayed, path, connection, lineage, database, uptime })
    };
    Conn::within_dial_limit(&config, opening).await
}

/// The number of statements in `server.sql`.
pub(super) const SERVER_STATEMENTS: usize = 2;

/// The number of the connection, the address at which the server sees it, and the database, if the timeouts are as they
/// were set.
fn read_back(row: Option<&mysql_async::Row>) -> Result<(u64, Option<String>, String), Failed> {
    let row = row.ok_or_else(|| Failed::new(Fault::Misconfigured, "it did not report its timeouts"))?;
    let mut columns = ColumnReader::new(row);
    let (connection, host) = (columns.next()?, columns.next()?);
    for timeout in ["wait_timeout", "interactive_timeout", "net_read_timeout", "net_write_timeout"] {
        let found: u64 = columns.next()?;
        if found != TIMEOUT {
            return Err(Failed::new(
                Fault::Misconfigured,
                format!(
                    "{timeout} is {found} s after it was set to {TIMEOUT} s: a proxy shares its connections; name the server itself"
                ),
            ));
        }
    }
    Ok((connection, host, columns.text()?))
}

/// What the address at which the server sees the connection tells of the path. The server can show a name in place of
/// the number of the host, so only the ports are compared. A connection by a unix socket has no port.
fn path(seen: Option<String>, local_port: Option<u16>) -> Path {
    let Some(seen) = seen else { return Path::Socket };
    let seen_port = seen.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    match (seen_port, local_port) {
        (None, None) => Path::Socket,
        (seen_port, local_port) if seen_port == local_port => Path::Direct,
        _ => Path::SeenAs(seen),
    }
}

/// Refuses servers on which a session lock does not exclude everybody.
pub(super) fn check(server: &Server) -> Result<(), Failed> {
    server.check_writable()?;
    if server.is_galera() {
        return Err(Failed::new(
            Fault::Misconfigured,
            "wsrep_on is ON: in a Galera cluster GET_LOCK excludes on one node only; leave hold=session out of the URL",
        ));
    }
    let nodes = server.get("ndb_number_of_ready_data_nodes").and_then(|nodes| nodes.parse::<u32>().ok());
    if nodes.is_some_and(|nodes| nodes > 0) {
        return Err(Failed::new(
            Fault::Misconfigured,
            "it is a node of an NDB Cluster: GET_LOCK excludes on one node only; leave hold=session out of the URL",
        ));
    }
    let in_group = server.get("group_replication_group_name").is_some_and(|group| !group.is_empty());
    if in_group && !server.is_on("group_replication_single_primary_mode") {
        return Err(Failed::new(
            Fault::Misconfigured,
            "group_replication_single_primary_mode is OFF: GET_LOCK excludes on one member only; leave hold=session out of the URL",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_share_no_session_locks_are_refused() {
        let judged = |values: &[(&str, &str)]| check(&Server::of(values)).map_err(|failed| failed.message);
        assert_eq!(judged(&[("wsrep_on", "OFF"), ("group_replication_group_name", "")]), Ok(()));
        assert!(judged(&[("wsrep_on", "ON")]).unwrap_err().contains("Galera"));
        let nodes = |count| judged(&[("ndb_number_of_ready_data_nodes", count)]);
        assert!(nodes("2").unwrap_err().contains("NDB") && nodes("0") == Ok(()));
        assert!(judged(&[("read_only", "ON")]).unwrap_err().contains("name the primary"));
        let group = ("group_replication_group_name", "3e11fa47");
        let mode = |value| [group, ("group_replication_single_primary_mode", value)];
        assert!(judged(&mode("OFF")).unwrap_err().contains("one member only"));
        assert_eq!(judged(&mode("ON")), Ok(()));
    }

    #[test]
    fn a_path_is_direct_only_if_the_server_sees_the_port_of_this_side() {
        let judged = |seen: &str, port| path(Some(seen.to_owned()), port);
        assert_eq!(judged("db.example:7", Some(7)), Path::Direct);
        assert_eq!(judged("localhost", None), Path::Socket);
        for (seen, port) in [("db.example:8", Some(7)), ("localhost", Some(7)), ("127.0.0.1:8", None)] {
            assert!(matches!(judged(seen, port), Path::SeenAs(_)), "{seen} {port:?}");
        }
    }
}
