//! The diagnostics: what an operator should know of every server of the ensemble, of the path to it, and of the rights
//! of this login.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use leasehold_core::{DEFAULT_TTL, Diagnostic, Endpoint, EngineError, Fault, Severity, judge_certificate};

use crate::{
    client::Client,
    runtime,
    server_look::{LONGEST_TICK, Purpose, ServerLook},
    words::{Answer, Report},
};

// The ids of the diagnostics. Each has a section in docs/doctor.md.
const ID_FORCE_SYNC: &str = "zookeeper-force-sync";
const ID_LOAD: &str = "zookeeper-load";
const ID_LOGIN: &str = "zookeeper-login";
const ID_QUORUM: &str = "zookeeper-quorum";
const ID_RIGHTS: &str = "zookeeper-rights";
const ID_SERVER: &str = "zookeeper-server";
const ID_TICK: &str = "zookeeper-tick";
const ID_TIMEOUTS: &str = "zookeeper-timeouts";
const ID_TLS: &str = "zookeeper-tls";
const ID_VERSIONS: &str = "zookeeper-versions";

/// The oldest version that still gets corrections.
const MAINTAINED: (u32, u32) = (3, 8);
/// A server with more unanswered requests than this is overloaded.
const MANY_REQUESTS: u64 = 100;
/// A server that uses more than this share (in percent) of its file descriptors soon refuses connections.
const MANY_DESCRIPTORS: u64 = 80;

/// Looks at every server of the URL.
///
/// # Errors
/// That of the first server, if no server can be reached.
pub(crate) async fn diagnose(client: &Client) -> Result<Vec<Diagnostic>, EngineError> {
    let config = &client.config;
    let look = |endpoint| ServerLook::at(config, endpoint, Purpose::Diagnosis);
    let looks = config.servers.iter().map(look);
    let (mut told, mut reached, mut first_error) = (Vec::new(), Vec::new(), None);
    for (endpoint, look) in config.servers.iter().zip(join_all(looks).await) {
        match look {
            Ok(look) => {
                let path = of_path(client, endpoint, look.certificate_end);
                let diagnostics = [of_server(&look), path].concat();
                told.extend(
                    diagnostics.into_iter().map(|diagnostic| diagnostic.of_server(endpoint.to_string())),
                );
                reached.push(look);
            }
            Err(error) => {
                told.push(unreachable(&error).of_server(endpoint.to_string()));
                first_error.get_or_insert(error);
            }
        }
    }
    if let Some(error) = first_error.filter(|_| reached.is_empty()) {
        return Err(error);
    }
    told.push(quorum(&reached));
    told.extend(versions(&reached));
    told.push(rights(client.ping().await));
    Ok(told)
}

/// A server that cannot be reached, beside others that can.
fn unreachable(error: &EngineError) -> Diagnostic {
    let advice =
        "repair this server, or take it out of the URL: fewer servers may fail before nothing can be locked";
    Diagnostic::new(ID_SERVER, Severity::Warning, error.message.clone(), advice)
}

/// What is told of one server.
fn of_server(look: &ServerLook) -> Vec<Diagnostic> {
    vec![server(&look.srvr), force_sync(look), tick(look), timeouts(look.timeouts), load(&look.mntr)]
}

/// What is told if the server does not allow a word.
fn hidden(id: &'static str, what: &str, word: &str) -> Diagnostic {
    Diagnostic::new(
        id,
        Severity::Unknown,
        format!("the server does not tell {what}"),
        format!("add {word} to 4lw.commands.whitelist of the server"),
    )
}

/// The version and the mode.
fn server(srvr: &Answer) -> Diagnostic {
    let id = ID_SERVER;
    let report = match srvr {
        Answer::NotServing => {
            let advice = "start enough servers for a majority, and look at their logs";
            return Diagnostic::new(
                id,
                Severity::Broken,
                "the server has no quorum, and serves nobody",
                advice,
            );
        }
        Answer::NotAllowed => return hidden(id, "its version and mode", "srvr"),
        Answer::Report(report) => report,
    };
    let (version, mode) = (report.version().unwrap_or("?"), report.get("Mode").unwrap_or("?"));
    let found = format!("ZooKeeper {version}, {mode}");
    if mode == "read-only" {
        let advice = "start enough servers for a majority: this server has lost the others";
        return Diagnostic::new(id, Severity::Broken, found, advice);
    }
    let mut numbers = version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < MAINTAINED => Diagnostic::new(
            id,
            Severity::Warning,
            found,
            "upgrade the server: this version gets no corrections any more",
        ),
        _ => Diagnostic::good(id, found),
    }
}

/// Whether the log is forced to the disk. The guarantee tells the risk, too.
fn force_sync(look: &ServerLook) -> Diagnostic {
    let id = ID_FORCE_SYNC;
    match look.forces_log {
        Some(true) => Diagnostic::good(id, "the server forces its log to the disk"),
        Some(false) => Diagnostic::new(
            id,
            Severity::Warning,
            "forceSync=no: the server answers before its log is on the disk, and a power cut may lose locks",
            "remove forceSync=no from zoo.cfg and from the options of java, and restart the server",
        ),
        None => hidden(id, "whether its log is forced to the disk", "srvr and mntr"),
    }
}

/// The tick, which the deadlines of holds depend on.
fn tick(look: &ServerLook) -> Diagnostic {
    let id = ID_TICK;
    if let Some(tick) = look.long_tick() {
        let found = match look.tick() {
            Some(_) => format!("tickTime is {tick:?}, and deadlines leave room for {LONGEST_TICK:?}"),
            None => {
                format!("the shortest timeout of a session is {:?}, so tickTime may be {tick:?}", tick * 2)
            }
        };
        let advice = "set tickTime to 3000 or less (and add conf to 4lw.commands.whitelist): a holder may rely on its \
                      hold after its session has ended";
        return Diagnostic::new(id, Severity::Warning, found, advice);
    }
    match (look.tick(), look.timeouts) {
        (Some(tick), _) => Diagnostic::good(id, format!("tickTime is {tick:?}")),
        (None, Some((shortest, _))) => Diagnostic::good(
            id,
            format!("the shortest timeout of a session is {shortest:?}, which is two ticks or more"),
        ),
        (None, None) => hidden(id, "its tick", "conf"),
    }
}

/// The timeouts that the server grants: the ttl of a hold is the timeout of its session.
fn timeouts(timeouts: Option<(Duration, Duration)>) -> Diagnostic {
    let id = ID_TIMEOUTS;
    let Some((shortest, longest)) = timeouts else {
        let advice = "look at the log of the server";
        return Diagnostic::new(id, Severity::Unknown, "the server made no session for this look", advice);
    };
    let found = format!("the server grants ttls from {shortest:?} to {longest:?}");
    if longest < DEFAULT_TTL {
        let advice = format!(
            "a longer ttl becomes {longest:?}: set maxSessionTimeout higher, or ask for shorter ttls"
        );
        return Diagnostic::new(id, Severity::Warning, found, advice);
    }
    if shortest > DEFAULT_TTL {
        let advice = format!(
            "a shorter ttl becomes {shortest:?}, and the hold of a killed holder lasts as long: set minSessionTimeout lower"
        );
        return Diagnostic::new(id, Severity::Warning, found, advice);
    }
    Diagnostic::good(id, found)
}

/// How busy the server is.
fn load(mntr: &Answer) -> Diagnostic {
    let id = ID_LOAD;
    let Some(report) = mntr.report() else { return hidden(id, "how busy it is", "mntr") };
    let number = |name| report.number(name).unwrap_or(0);
    let (open, most) = (number("zk_open_file_descriptor_count"), number("zk_max_file_descriptor_count"));
    if most > 0 && open.saturating_mul(100) > most.saturating_mul(MANY_DESCRIPTORS) {
        let found = format!("{open} of {most} file descriptors of the server are in use");
        let advice = "allow the server more (ulimit -n), or let clients use fewer connections";
        return Diagnostic::new(id, Severity::Warning, found, advice);
    }
    let waiting = number("zk_outstanding_requests");
    let found = format!(
        "{waiting} requests wait in the server, which has {} connections",
        number("zk_num_alive_connections")
    );
    if waiting > MANY_REQUESTS {
        let advice = "give its log a disk of its own, or the ensemble less work: renewals come late";
        return Diagnostic::new(id, Severity::Warning, found, advice);
    }
    Diagnostic::good(id, found)
}

/// Whether the ensemble can lose another server, as its leader reports.
fn quorum(looks: &[ServerLook]) -> Diagnostic {
    let id = ID_QUORUM;
    let modes: Vec<_> = looks.iter().filter_map(|look| look.srvr.report()?.get("Mode")).collect();
    if modes.contains(&"standalone") {
        return if modes.len() == 1 {
            Diagnostic::good(id, "one server, which no other replaces when it fails")
        } else {
            Diagnostic::new(
                id,
                Severity::Broken,
                "servers of the URL are no ensemble: they run alone, and do not know of each other's locks",
                "name one ensemble in the URL, or make these servers one",
            )
        };
    }
    let leader = looks.iter().filter_map(|look| look.mntr.report()).find_map(|report| {
        let (synced, size) = (report.number("zk_synced_followers")?, report.number("zk_quorum_size")?);
        Some((synced + 1, size))
    });
    let Some((in_sync, size)) = leader else {
        let found = "no leader tells how many servers are in sync";
        let advice = "name all servers in the URL, and add srvr and mntr to their 4lw.commands.whitelist";
        return Diagnostic::new(id, Severity::Unknown, found, advice);
    };
    let found = format!("{in_sync} of {size} servers are in sync");
    if in_sync < size {
        let advice = "start the others: fewer servers may fail before nothing can be locked";
        return Diagnostic::new(id, Severity::Warning, found, advice);
    }
    Diagnostic::good(id, found)
}

/// Servers of different versions.
fn versions(looks: &[ServerLook]) -> Option<Diagnostic> {
    let versions: BTreeSet<_> =
        looks.iter().filter_map(|look| look.srvr.report().and_then(Report::version)).collect();
    let list = || versions.iter().copied().collect::<Vec<_>>().join(", ");
    (versions.len() > 1).then(|| {
        let advice = "complete the upgrade: an ensemble has different versions only for a short time";
        let found = format!("the servers have the versions {}", list());
        Diagnostic::new(ID_VERSIONS, Severity::Warning, found, advice)
    })
}

/// Whether the connection is encrypted, until when the certificate is valid, and who may change the nodes.
fn of_path(client: &Client, endpoint: &Endpoint, certificate_end: Option<Duration>) -> Vec<Diagnostic> {
    let config = &client.config;
    let is_local = matches!(endpoint.host.as_str(), "localhost" | "::1") || endpoint.host.starts_with("127.");
    #[cfg(feature = "tls")]
    let is_encrypted = config.tls.is_some();
    #[cfg(not(feature = "tls"))]
    let is_encrypted = false;
    let cover = if is_encrypted {
        judge_certificate(ID_TLS, "server", certificate_end, runtime::time_of_day())
    } else {
        clear(is_local)
    };
    vec![cover, login(is_local, config.login.is_some())]
}

/// A connection that is not encrypted.
fn clear(is_local: bool) -> Diagnostic {
    let id = ID_TLS;
    match is_local {
        true => Diagnostic::good(id, "the connection stays on this machine"),
        false => Diagnostic::new(
            id,
            Severity::Warning,
            "the connection to another machine is not encrypted: others on the way can read and change requests",
            "give the servers a secureClientPort, and write zookeepers:// in the URL",
        ),
    }
}

fn login(is_local: bool, has_login: bool) -> Diagnostic {
    let id = ID_LOGIN;
    if has_login {
        return Diagnostic::good(id, "new nodes belong to the login of the URL");
    }
    let found = "the URL has no login, so every client of the servers can delete the nodes of locks";
    if is_local {
        return Diagnostic::good(id, found);
    }
    Diagnostic::new(id, Severity::Warning, found, "write a user and a password in the URL")
}

/// Whether this login may read the directory of the locks.
fn rights(pinged: Result<(), EngineError>) -> Diagnostic {
    let id = ID_RIGHTS;
    match pinged {
        Ok(()) => Diagnostic::good(id, "this login can read the directory of the locks"),
        Err(error) => {
            let is_denied = matches!(error.fault, Fault::Denied | Fault::Misconfigured);
            let severity = if is_denied { Severity::Broken } else { Severity::Unknown };
            let advice =
                "use the login that created the directory, or let it give this login the rights cdrwa";
            Diagnostic::new(
                id,
                severity,
                format!("the directory of the locks cannot be read: {}", error.message),
                advice,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(srvr: &str, mntr: &str) -> ServerLook {
        let (srvr, mntr) = (Answer::read(srvr), Answer::read(mntr));
        ServerLook {
            srvr,
            mntr,
            conf: Answer::NotAllowed,
            timeouts: None,
            forces_log: None,
            certificate_end: None,
        }
    }

    #[test]
    fn versions_and_modes_are_judged() {
        let judged = |version: &str, mode: &str| {
            server(&Answer::read(&format!("Zookeeper version: {version}\nMode: {mode}\n"))).severity
        };
        assert_eq!(judged("3.8.0-x", "leader"), Severity::Good);
        assert_eq!(judged("3.10.1", "follower"), Severity::Good);
        assert_eq!(judged("3.7.2", "leader"), Severity::Warning);
        assert_eq!(judged("3.8.0", "read-only"), Severity::Broken);
        assert_eq!(server(&Answer::NotServing).severity, Severity::Broken);
        assert_eq!(server(&Answer::NotAllowed).severity, Severity::Unknown);
    }

    #[test]
    fn timeouts_are_compared_with_the_default_ttl() {
        let judged = |shortest, longest| {
            timeouts(Some((Duration::from_secs(shortest), Duration::from_secs(longest)))).severity
        };
        assert_eq!(judged(4, 40), Severity::Good);
        assert_eq!(judged(4, 20), Severity::Warning);
        assert_eq!(judged(60, 120), Severity::Warning);
        assert_eq!(timeouts(None).severity, Severity::Unknown);
    }

    #[test]
    fn a_busy_server_is_told() {
        let judged = |text: &str| load(&Answer::read(text)).severity;
        assert_eq!(judged("zk_outstanding_requests\t100\n"), Severity::Good);
        assert_eq!(judged("zk_outstanding_requests\t101\n"), Severity::Warning);
        let descriptors =
            |open| format!("zk_open_file_descriptor_count\t{open}\nzk_max_file_descriptor_count\t100\n");
        assert_eq!(judged(&descriptors(80)), Severity::Good);
        assert_eq!(judged(&descriptors(81)), Severity::Warning);
        assert_eq!(load(&Answer::NotAllowed).severity, Severity::Unknown);
    }

    #[test]
    fn the_quorum_is_judged_by_its_leader() {
        let (alone, leader) =
            ("Zookeeper version: 3.8.0\nMode: standalone\n", "Zookeeper version: 3.8.0\nMode: leader\n");
        assert_eq!(quorum(&[look(alone, "")]).severity, Severity::Good);
        assert_eq!(quorum(&[look(alone, ""), look(alone, "")]).severity, Severity::Broken);
        assert_eq!(quorum(&[look(leader, "")]).severity, Severity::Unknown);
        let mntr = |synced| format!("zk_synced_followers\t{synced}\nzk_quorum_size\t3\n");
        assert_eq!(quorum(&[look(leader, &mntr(2))]).severity, Severity::Good);
        assert_eq!(quorum(&[look(leader, &mntr(1))]).severity, Severity::Warning);
        assert!(versions(&[look(leader, ""), look(alone, "")]).is_none());
        let newer = look("Zookeeper version: 3.9.1\nMode: follower\n", "");
        assert_eq!(versions(&[look(leader, ""), newer]).unwrap().severity, Severity::Warning);
    }

    #[test]
    fn a_path_to_another_machine_is_judged() {
        assert_eq!(clear(false).severity, Severity::Warning);
        assert_eq!(clear(true).severity, Severity::Good);
        assert_eq!(login(false, false).severity, Severity::Warning);
        assert_eq!(login(false, true).severity, Severity::Good);
    }
}
