//! The guarantee that a Redis server gives with its present configuration. What lowers the level is a finding: the
//! server's role and version, its persistence, its replicas, and what it does when its memory is full. A difference
//! between the server's clock and ours is a note.

use std::collections::HashMap;

use leasehold_core::{EngineError, Finding, Guarantee, Level};
use redis::{Value, from_redis_value};

use crate::{
    conn::Conn,
    reply::unreadable,
    server_clock::{Clocks, Side},
};

/// The oldest version of Redis that supports everything that the scripts use.
const OLDEST_VERSION: (u32, u32) = (6, 0);
/// The version from which on `min-replicas-to-write` applies to scripts too, not only to single commands.
const SCRIPT_REPLICAS_VERSION: (u32, u32) = (7, 0);

/// What decides the guarantee: what the server reports about itself, and how this client reaches the server.
struct ServerReport {
    /// The answer to `INFO`.
    info: HashMap<String, String>,
    /// The setting `appendfsync`; `None` if the user has no right to read it.
    fsync: Option<String>,
    /// Whether the server does not sync the append-only file to disk while it rewrites that file.
    fsync_pauses: bool,
    /// How many connected replicas the server needs to accept a write; `None` if the user has no right to read the
    /// setting.
    min_replicas: Option<u32>,
    /// For how many seconds after its last acknowledgement a replica counts as connected (`min-replicas-max-lag`).
    max_lag: String,
    /// The server's wall clock, and ours.
    clocks: Clocks,
    topology: Topology,
}

/// How the server is reached, and how many replicas a grant waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Topology {
    /// How many Sentinels the URL names, and how many exist according to the report of a Sentinel; `None` without
    /// Sentinels.
    pub(crate) sentinels: Option<(usize, u32)>,
    /// How many replicas must have a grant before the grant is returned.
    pub(crate) wait: u32,
}

/// Asks the server for its configuration, and returns the guarantee that follows from the configuration.
pub(crate) async fn read_guarantee(conn: &Conn, topology: Topology) -> Result<Guarantee, EngineError> {
    let mut command = redis::cmd("INFO");
    command.arg("everything");
    let text = text_of(conn.ask(&command).await?)?;
    let mut settings = read_settings(conn, "*appendfsync*").await;
    settings.extend(read_settings(conn, "min-replicas-*").await);
    let fsync = settings.remove("appendfsync");
    let fsync_pauses = settings.get("no-appendfsync-on-rewrite").is_some_and(|setting| setting == "yes");
    let min_replicas = settings.get("min-replicas-to-write").and_then(|setting| setting.parse().ok());
    let max_lag = settings.remove("min-replicas-max-lag").unwrap_or_default();
    let clocks = Clocks::read(conn).await?;
    Ok(judge_server(&ServerReport {
        info: parse_info(&text),
        fsync,
        fsync_pauses,
        min_replicas,
        max_lag,
        clocks,
        topology,
    }))
}

/// Reads the settings whose names match the pattern; none if the user has no right to call `CONFIG`.
async fn read_settings(conn: &Conn, pattern: &str) -> HashMap<String, String> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(pattern);
    match conn.ask(&command).await {
        Ok(answer) => from_redis_value::<HashMap<String, String>>(answer).unwrap_or_default(),
        Err(_) => HashMap::new(),
    }
}

/// Adds the findings and notes of the `others` to `all`: then `all` is the guarantee that all masters of a Redis
/// Cluster give together.
pub(crate) fn merge_masters(all: &mut Guarantee, others: Vec<Guarantee>) {
    for other in others {
        let is_new = |finding: &Finding| !all.findings.contains(finding);
        let new_findings: Vec<Finding> = other.findings.into_iter().filter(is_new).collect();
        all.findings.extend(new_findings);
        for note in other.notes {
            if !all.notes.contains(&note) {
                all.note(note);
            }
        }
    }
    all.lower(
        "cluster-enabled",
        "yes",
        "no",
        "a fail-over or a takeover of a node loses what its replica had not received, and two may hold one lock",
    );
}

/// The text of an answer.
pub(crate) fn text_of(answer: Value) -> Result<String, EngineError> {
    from_redis_value(answer).map_err(|_| unreadable())
}

/// The fields of an answer to `INFO`.
pub(crate) fn parse_info(text: &str) -> HashMap<String, String> {
    let fields = text.lines().filter_map(|line| line.trim().split_once(':'));
    fields.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The guarantee that follows from the report of one server.
fn judge_server(report: &ServerReport) -> Guarantee {
    let info = |key: &str| report.info.get(key).map_or("", String::as_str);
    let mut guarantee = Guarantee::new(Level::LeaseBounded, &[]);
    if info("role") != "master" {
        guarantee.lower(
            "role",
            info("role"),
            "master",
            "a replica refuses claims, or loses the grants that it made, and shows a state that may be behind",
        );
    }
    if info("aof_enabled") != "1" {
        guarantee.lower("appendonly", "no", "yes", "after a crash or a restart two may hold one lock");
    } else {
        let unknown = "not known, because CONFIG GET is not allowed";
        match report.fsync.as_deref() {
            Some("always") if report.fsync_pauses => guarantee.lower(
                "no-appendfsync-on-rewrite",
                "yes",
                "no",
                "a power cut while the file is rewritten loses some seconds, and two may hold one lock",
            ),
            Some("always") => {}
            setting => guarantee.lower(
                "appendfsync",
                setting.unwrap_or(unknown),
                "always",
                "a power cut loses the last second, and two may hold one lock",
            ),
        }
    }
    let policy = info("maxmemory_policy");
    if info("maxmemory") != "0" && !policy.is_empty() && policy != "noeviction" {
        guarantee.lower(
            "maxmemory-policy",
            policy,
            "noeviction",
            "a full server evicts keys, locks among them, and two may hold one lock",
        );
    }
    judge_replicas(report, info("connected_slaves"), &mut guarantee);
    let version = info("redis_version");
    if !is_at_least(version, OLDEST_VERSION) {
        let wanted = format!("{}.{} or newer", OLDEST_VERSION.0, OLDEST_VERSION.1);
        guarantee.lower("redis_version", version, &wanted, "older servers lack what the scripts use");
    }
    guarantee.notes.extend(clock_note(&report.clocks));
    guarantee.note("Leases end by the server's wall clock: one that is set forward ends them early.");
    guarantee
}

/// Adds the findings and notes on what a fail-over can lose, and on what makes such a loss rarer. `connected`: the
/// number of connected replicas, as the server reports it.
fn judge_replicas(report: &ServerReport, connected: &str, guarantee: &mut Guarantee) {
    let (Topology { sentinels, wait }, replicas) = (report.topology, connected.parse::<u32>().unwrap_or(0));
    if let Some((in_url, existing)) = sentinels {
        guarantee.lower(
            "fail-over",
            "by Sentinels",
            "a durable server alone, or an engine with a consensus (etcd, ZooKeeper)",
            "the replica that is promoted may lack the newest grants, and two may hold one lock",
        );
        if in_url * 2 <= existing as usize {
            guarantee.lower(
                "the URL",
                &format!("{in_url} of {existing} Sentinels"),
                "all of them",
                "the Sentinels of the URL may all be behind, and name a master that was replaced",
            );
        }
    } else if replicas > 0 {
        guarantee.lower(
            "connected_slaves",
            connected,
            "0",
            "a fail-over loses what the replicas had not received, and two may hold one lock",
        );
    } else {
        return;
    }
    match report.min_replicas {
        Some(0) => guarantee.lower(
            "min-replicas-to-write",
            "0",
            "1 or more",
            "a master that is cut off from its replicas continues to grant until its clients learn of its successor",
        ),
        Some(min_replicas) if !is_at_least(report.info.get("redis_version").map_or("", String::as_str), SCRIPT_REPLICAS_VERSION) => {
            guarantee.lower(
                "min-replicas-to-write",
                &format!("{min_replicas}, which servers before 7.0 apply to commands only"),
                "Redis 7.0 or newer",
                "scripts, and so locks, are written without replicas all the same",
            );
        }
        Some(_) => guarantee.note(format!(
            "A master without replicas stops granting within {} s and one more: min-replicas-to-write is set.",
            report.max_lag
        )),
        None => guarantee.note("Whether min-replicas-to-write is set is not known, because CONFIG GET is not allowed."),
    }
    guarantee.note(match wait {
        0 => "A grant is shown before replicas have it: wait=N in the URL waits for N of them.".to_owned(),
        _ if wait < replicas => format!("A grant is shown when {wait} of {replicas} replicas have it (wait={wait}): another may be promoted."),
        _ => format!("A grant is shown when {wait} replicas have it (wait={wait}): a fail-over loses it only in rare cases."),
    });
}

/// A note for the operator if the clocks differ, see [`Clocks::difference`].
fn clock_note(clocks: &Clocks) -> Option<String> {
    let (difference, side) = clocks.difference()?;
    let (relation, risk) = match side {
        Side::Ahead => ("ahead of", "prolongs leases if it is set back"),
        Side::Behind => ("behind", "ends leases early if it is set forward"),
    };
    Some(format!(
        "The server's clock is {difference:.1?} {relation} ours: leases and the times shown count by the server's alone and are not affected, but it {risk}."
    ))
}

/// Whether a version is `oldest` or newer.
fn is_at_least(version: &str, oldest: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (major, minor) >= oldest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guarantee of a durable server with these changes of its `INFO`, and this `appendfsync`.
    fn judged(changes: &[(&str, &str)], fsync: Option<&str>) -> Guarantee {
        let mut info = parse_info(
            "# Server\r\nredis_version:7.0.15\r\nrole:master\r\naof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0\r\n",
        );
        info.extend(changes.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())));
        judge_server(&ServerReport {
            info,
            fsync: fsync.map(str::to_owned),
            fsync_pauses: false,
            min_replicas: Some(0),
            max_lag: "10".to_owned(),
            clocks: Clocks::of_millis(5000, 5000, 5000),
            topology: Topology::default(),
        })
    }

    #[test]
    fn only_a_single_durable_server_is_lease_bounded() {
        assert_eq!(judged(&[], Some("always")).level, Level::LeaseBounded);
        assert_eq!(judged(&[("maxmemory_policy", "allkeys-lru")], Some("always")).level, Level::LeaseBounded);
        for (changes, fsync, expected) in [
            (&[][..], Some("everysec"), "everysec"),
            (&[], None, "CONFIG GET"),
            (&[("aof_enabled", "0")], Some("always"), "appendonly is no"),
            (&[("maxmemory", "9"), ("maxmemory_policy", "allkeys-lru")], Some("always"), "allkeys-lru"),
            (&[("connected_slaves", "1")], Some("always"), "fail-over"),
            (&[("role", "slave")], Some("always"), "replica"),
            (&[("redis_version", "5.0.7")], Some("always"), "5.0.7"),
        ] {
            let guarantee = judged(changes, fsync);
            assert_eq!(guarantee.level, Level::BestEffort, "{changes:?}");
            assert!(guarantee.findings[0].to_string().contains(expected), "{guarantee}");
        }
    }

    #[test]
    fn a_server_that_pauses_its_syncs_is_not_durable() {
        let info = parse_info("redis_version:7.0.15\nrole:master\naof_enabled:1\nmaxmemory:0\n");
        let fsync = Some("always".to_owned());
        let guarantee = judge_server(&ServerReport {
            info,
            fsync,
            fsync_pauses: true,
            min_replicas: None,
            max_lag: String::new(),
            clocks: Clocks::of_millis(0, 0, 0),
            topology: Topology::default(),
        });
        assert_eq!(guarantee.level, Level::BestEffort);
        assert_eq!(guarantee.findings[0].what, "no-appendfsync-on-rewrite");
    }

    #[test]
    fn losses_by_a_fail_over_are_reported() {
        let judged_of = |version: &str, sentinels, wait, min_replicas, replicas: &str| {
            let info = parse_info(&format!(
                "redis_version:{version}\nrole:master\naof_enabled:1\nmaxmemory:0\nconnected_slaves:{replicas}\n"
            ));
            let (fsync, max_lag) = (Some("always".to_owned()), "10".to_owned());
            let topology = Topology { sentinels, wait };
            judge_server(&ServerReport {
                info,
                fsync,
                fsync_pauses: false,
                min_replicas,
                max_lag,
                clocks: Clocks::of_millis(0, 0, 0),
                topology,
            })
        };
        let judged = |sentinels, wait, min_replicas, replicas: &str| {
            judged_of("7.0.15", sentinels, wait, min_replicas, replicas)
        };
        let alone = judged(None, 0, Some(0), "0");
        assert_eq!((alone.level, alone.findings.len()), (Level::LeaseBounded, 0), "{alone}");
        for (sentinels, wait, min_replicas, replicas, expected) in [
            (Some((3, 3)), 0, Some(0), "2", "min-replicas-to-write is 0"),
            (Some((3, 3)), 0, Some(1), "2", "stops granting within 10 s"),
            (Some((3, 3)), 0, None, "2", "not known"),
            (Some((3, 3)), 0, Some(1), "0", "fail-over is by Sentinels"),
            (Some((1, 3)), 0, Some(1), "2", "1 of 3 Sentinels"),
            (Some((3, 3)), 0, Some(1), "2", "wait=N"),
            (Some((3, 3)), 1, Some(1), "2", "1 of 2 replicas"),
            (Some((3, 3)), 2, Some(1), "2", "only in rare cases"),
            (None, 1, Some(1), "2", "connected_slaves is 2"),
        ] {
            let guarantee = judged(sentinels, wait, min_replicas, replicas);
            assert_eq!(guarantee.level, Level::BestEffort, "{guarantee}");
            assert!(guarantee.to_string().contains(expected), "{guarantee}");
        }
        assert!(!judged(Some((2, 3)), 0, Some(1), "2").to_string().contains("2 of 3"));
        let old = judged_of("6.2.5", Some((3, 3)), 0, Some(1), "2").to_string();
        assert!(
            old.contains("written without replicas all the same") && !old.contains("stops granting"),
            "{old}"
        );
    }

    #[test]
    fn a_clock_difference_beyond_the_round_trip_is_noted() {
        for (server, expected) in
            [(9000, None), (3999, Some("1.0s behind ours")), (10_500, Some("1.5s ahead of ours"))]
        {
            let note = clock_note(&Clocks::of_millis(5000, server, 9000));
            assert_eq!(note.is_some(), expected.is_some(), "{note:?}");
            assert!(note.unwrap_or_default().contains(expected.unwrap_or_default()));
        }
    }
}
