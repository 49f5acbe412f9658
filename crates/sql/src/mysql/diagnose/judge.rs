//! Judges the facts of a MySQL or MariaDB server for operators. Pure.

use std::time::Duration;

use leasehold_core::{Diagnostic, Severity, judge_certificate};

use super::{ask::Place, ids};
use crate::{diagnose::clear_text, mysql::server::Server};

/// The oldest versions that still get corrections, of MariaDB and of MySQL.
const MAINTAINED_MARIADB: (u32, u32) = (10, 6);
const MAINTAINED_MYSQL: (u32, u32) = (8, 0);
/// Options of Galera by which a part of a cluster that lost the others keeps accepting writes.
const SPLIT_OPTIONS: [&str; 2] = ["pc.ignore_sb", "pc.ignore_quorum"];

/// What is between this process and the server.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Where a statement outside of a transaction is executed.
    pub(super) outside: Place,
    /// Where a statement inside of a transaction is executed.
    pub(super) inside: Place,
    /// Whether a later statement has the settings of the session.
    pub(super) keeps_settings: bool,
    /// `None` if nothing encrypts the connection.
    pub(super) encrypted: Option<Encrypted>,
}

/// How a connection is encrypted, as the server tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encrypted {
    /// The moment after which the certificate of the server is no longer valid, since 1970; `None` if it cannot be
    /// read.
    pub(super) certificate_end: Option<Duration>,
}

pub(super) fn version(server: &Server) -> Diagnostic {
    let id = ids::ID_VERSION;
    let version = server.get("version").unwrap_or("of an unknown version");
    let is_mariadb = version.contains("MariaDB");
    // MariaDB may put a version of MySQL in front of its own, for old clients.
    let own = version.strip_prefix("5.5.5-").unwrap_or(version);
    let (name, maintained) =
        if is_mariadb { ("MariaDB", MAINTAINED_MARIADB) } else { ("MySQL", MAINTAINED_MYSQL) };
    let found = format!("{name} {}", own.split('-').next().unwrap_or(own));
    match major_and_minor(own) {
        Some(numbers) if numbers >= maintained => Diagnostic::good(id, found),
        Some(_) => {
            let advice = "upgrade the server: this version gets no corrections any more";
            Diagnostic::new(id, Severity::Warning, found, advice)
        }
        None => Diagnostic::new(id, Severity::Unknown, format!("the server says that it is {own}"), ""),
    }
}

/// The first two numbers of a version.
fn major_and_minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether names can be locked on the server.
pub(super) fn role(server: &Server) -> Diagnostic {
    let id = ids::ID_ROLE;
    if server.check_writable().is_ok() {
        return Diagnostic::good(id, "the server accepts writes: names can be locked");
    }
    let found = "read_only or innodb_read_only is on, as on a replica: nothing can be locked";
    Diagnostic::new(id, Severity::Broken, found, "name the primary in the URL")
}

/// Whether others can read along, and when the certificate expires. `now` is the time of this machine, since 1970.
pub(super) fn cover(is_local: bool, encrypted: Option<Encrypted>, now: Duration) -> Diagnostic {
    let id = ids::ID_TLS;
    if let Some(Encrypted { certificate_end }) = encrypted {
        return judge_certificate(id, "server", certificate_end, now);
    }
    if is_local {
        return Diagnostic::good(id, "the connection stays on this machine");
    }
    clear_text(id, "add ssl-mode=VERIFY_IDENTITY to the URL, and give the server a certificate")
}

/// Whether all statements of a connection reach one session of one server.
pub(super) fn path(path: &Path) -> Diagnostic {
    let (id, warning) = (ids::ID_PROXY, Severity::Warning);
    let Path { outside, inside, .. } = path;
    if outside.server != inside.server {
        return Diagnostic::new(
            id,
            Severity::Broken,
            format!(
                "a proxy sends reads to the server {} and transactions to the server {}: what a read shows may be old",
                outside.server, inside.server
            ),
            "name the primary in the URL, or let the proxy send all statements of this user there",
        );
    }
    if outside.connection != inside.connection || !path.keeps_settings {
        return Diagnostic::new(
            id,
            warning,
            "a proxy shares the connections of the server, and the settings of a session do not last",
            "name the server itself in the URL, or switch off the multiplexing of the proxy for this user",
        );
    }
    Diagnostic::good(id, "all statements reach one session of one server")
}

/// How many replicas receive the log of the server. The guarantee tells their risk.
pub(super) fn replicas(count: Option<u64>, writes_log: bool, user: &str) -> Diagnostic {
    let id = ids::ID_REPLICAS;
    match count {
        Some(count) => Diagnostic::good(id, format!("{count} replicas receive the log of this server")),
        None if !writes_log => Diagnostic::good(id, "the server writes no log for replicas"),
        None => Diagnostic::new(
            id,
            Severity::Unknown,
            "the user may not see whether there are replicas: one that is promoted may not know of locks that are held",
            format!("let an administrator run: GRANT PROCESS ON *.* TO {user}"),
        ),
    }
}

/// The state of a node of Galera.
pub(super) fn galera(server: &Server) -> Diagnostic {
    let id = ids::ID_GALERA;
    let status = server.get("wsrep_cluster_status").unwrap_or("unknown");
    if status != "Primary" || !server.is_on("wsrep_ready") {
        return Diagnostic::new(
            id,
            Severity::Broken,
            format!(
                "the node is in a part of the cluster with the status {status}, and wsrep_ready is {}",
                server.get("wsrep_ready").unwrap_or("unknown")
            ),
            "repair the cluster, or name a node of its primary part",
        );
    }
    let nodes = server.get("wsrep_cluster_size").unwrap_or("?");
    if nodes == "2" {
        return Diagnostic::new(
            id,
            Severity::Warning,
            "the cluster has 2 nodes: when one fails, the other one stops, too",
            "add a third node, or the arbitrator garbd",
        );
    }
    Diagnostic::good(id, format!("the cluster of Galera has {nodes} nodes, and this one serves"))
}

/// The option of Galera by which two parts of a cluster accept writes at the same time, if one is set.
pub(in crate::mysql) fn split_option(server: &Server) -> Option<&'static str> {
    let options = server.get("wsrep_provider_options")?;
    SPLIT_OPTIONS.into_iter().find(|wanted| {
        options.split(';').filter_map(|option| option.split_once('=')).any(|(name, value)| {
            name.trim() == *wanted
                && matches!(value.trim().to_ascii_lowercase().as_str(), "true" | "yes" | "on" | "1")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_old_ones_told() {
        for (found, severity, shown) in [
            ("10.11.6-MariaDB-0+deb12u1", Severity::Good, "MariaDB 10.11.6"),
            ("5.5.5-10.11.6-MariaDB-log", Severity::Good, "MariaDB 10.11.6"),
            ("10.5.23-MariaDB", Severity::Warning, "MariaDB 10.5.23"),
            ("10.6.1-MariaDB", Severity::Good, "MariaDB 10.6.1"),
            ("9.7.4", Severity::Good, "MySQL 9.7.4"),
            ("5.7.44-log", Severity::Warning, "MySQL 5.7.44"),
            ("x", Severity::Unknown, "x"),
        ] {
            let told = version(&Server::of(&[("version", found)]));
            assert_eq!(told.severity, severity, "{told:?}");
            assert!(told.found.contains(shown), "{told:?}");
        }
    }

    #[test]
    fn a_splitter_of_reads_and_writes_is_told() {
        let place = |server: &str, connection: &str| Place {
            server: server.to_owned(),
            connection: connection.to_owned(),
        };
        let judged = |inside, keeps_settings| {
            path(&Path { outside: place("a 3306 1", "7"), inside, keeps_settings, encrypted: None })
        };
        assert_eq!(judged(place("a 3306 1", "7"), true).severity, Severity::Good);
        assert_eq!(judged(place("a 3306 1", "8"), true).severity, Severity::Warning);
        assert_eq!(judged(place("a 3306 1", "7"), false).severity, Severity::Warning);
        let told = judged(place("b 3306 2", "7"), true);
        assert!(told.severity == Severity::Broken && told.found.contains("b 3306 2"), "{told:?}");
    }

    #[test]
    fn clear_text_is_told_only_for_another_machine() {
        let until = |days: u64| {
            let certificate_end = Some(Duration::from_secs(days * 24 * 3600));
            Some(Encrypted { certificate_end })
        };
        for (is_local, encrypted, severity) in [
            (true, None, Severity::Good),
            (false, None, Severity::Warning),
            (false, until(15), Severity::Good),
            (false, until(13), Severity::Warning),
            (true, until(13), Severity::Warning),
        ] {
            assert_eq!(cover(is_local, encrypted, Duration::ZERO).severity, severity);
        }
    }

    #[test]
    fn nodes_of_galera_are_judged() {
        let node = |status, ready, size| {
            let values =
                [("wsrep_cluster_status", status), ("wsrep_ready", ready), ("wsrep_cluster_size", size)];
            galera(&Server::of(&values)).severity
        };
        assert_eq!(node("Primary", "ON", "3"), Severity::Good);
        assert_eq!(node("Primary", "ON", "2"), Severity::Warning);
        assert_eq!(node("non-Primary", "ON", "3"), Severity::Broken);
        assert_eq!(node("Primary", "OFF", "3"), Severity::Broken);
    }

    #[test]
    fn options_that_split_a_cluster_are_found() {
        let option = |options| split_option(&Server::of(&[("wsrep_provider_options", options)]));
        assert_eq!(option("pc.bootstrap = false; pc.ignore_sb = true; x = 1"), Some("pc.ignore_sb"));
        assert_eq!(option("pc.ignore_quorum = YES"), Some("pc.ignore_quorum"));
        assert_eq!(option("pc.ignore_sb = false; pc.ignore_quorum = false"), None);
        assert_eq!(option(""), None);
    }

    #[test]
    fn hidden_replicas_are_unknown() {
        assert_eq!(replicas(Some(0), true, "u").severity, Severity::Good);
        assert_eq!(replicas(None, false, "u").severity, Severity::Good);
        let told = replicas(None, true, "u");
        assert!(told.severity == Severity::Unknown && told.advice.contains("PROCESS"), "{told:?}");
    }
}
