//! What is promised, as the server is configured now: its persistence, its replicas, what it does when memory is full, and
//! whose clock is right.

use std::{collections::HashMap, time::Duration};

use leasehold_core::{EngineError, Guarantee, Level};
use redis::{Value, from_redis_value};

use crate::{
    conn::{Conn, wall_clock},
    reply::unreadable,
};

/// The oldest server that has all that the scripts use.
const FLOOR: (u32, u32) = (6, 0);

/// Clocks that differ by more are worth a note: where they are kept by time servers, they differ by far less.
const SKEW: Duration = Duration::from_secs(1);

/// What the server says of itself.
struct Facts {
    info: HashMap<String, String>,
    fsync: Option<String>,
    /// Whether it does not sync while it rewrites the append-only file.
    pauses: bool,
    clocks: Clocks,
}

/// The server's wall clock, and ours before it was asked and after it answered, since 1970.
struct Clocks {
    before: Duration,
    server: Duration,
    after: Duration,
}

pub(crate) async fn look(conn: &Conn) -> Result<Guarantee, EngineError> {
    let mut info = redis::cmd("INFO");
    info.arg("everything");
    let text: String = text_of(conn.ask(&info).await?)?;
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("*appendfsync*");
    // Often forbidden; then it is said that it is not known.
    let mut settings = match conn.ask(&ask).await {
        Ok(answer) => from_redis_value::<HashMap<String, String>>(answer).unwrap_or_default(),
        Err(_) => HashMap::new(),
    };
    let fsync = settings.remove("appendfsync");
    let pauses = settings.get("no-appendfsync-on-rewrite").is_some_and(|pauses| pauses == "yes");
    let clocks = compare(conn).await?;
    Ok(judge(&Facts { info: parse(&text), fsync, pauses, clocks }))
}

async fn compare(conn: &Conn) -> Result<Clocks, EngineError> {
    let before = wall_clock();
    let time = conn.ask(&redis::cmd("TIME")).await?;
    let after = wall_clock();
    let (seconds, micros) = from_redis_value(time).map_err(|_| unreadable())?;
    let server = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
    Ok(Clocks { before, server, after })
}

fn text_of(answer: Value) -> Result<String, EngineError> {
    from_redis_value(answer).map_err(|_| unreadable())
}

fn parse(text: &str) -> HashMap<String, String> {
    let lines = text.lines().filter_map(|line| line.trim().split_once(':'));
    lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn judge(facts: &Facts) -> Guarantee {
    let get = |key: &str| facts.info.get(key).map_or("", String::as_str);
    let mut judged = Guarantee::new(Level::LeaseBounded, &[]);
    if get("role") != "master" {
        judged.lower(
            "role",
            get("role"),
            "master",
            "a replica refuses claims, or loses what it took, and what it shows may be behind",
        );
    }
    if get("aof_enabled") != "1" {
        judged.lower("appendonly", "no", "yes", "after a crash or a restart two may hold one lock");
    } else {
        let unknown = "not known, for CONFIG GET is not allowed";
        match facts.fsync.as_deref() {
            Some("always") if facts.pauses => judged.lower(
                "no-appendfsync-on-rewrite",
                "yes",
                "no",
                "a power cut while the file is rewritten loses some seconds, and two may hold one lock",
            ),
            Some("always") => {}
            found => judged.lower(
                "appendfsync",
                found.unwrap_or(unknown),
                "always",
                "a power cut loses the last second, and two may hold one lock",
            ),
        }
    }
    let policy = get("maxmemory_policy");
    if get("maxmemory") != "0" && !policy.is_empty() && policy != "noeviction" {
        judged.lower(
            "maxmemory-policy",
            policy,
            "noeviction",
            "a full server evicts keys, locks among them, and two may hold one lock",
        );
    }
    let replicas = get("connected_slaves");
    if replicas.parse::<u32>().is_ok_and(|replicas| replicas > 0) {
        judged.lower(
            "connected_slaves",
            replicas,
            "0",
            "a fail-over loses what the replicas had not received, and two may hold one lock",
        );
    }
    let version = get("redis_version");
    if !is_new_enough(version) {
        let wanted = format!("{}.{} or newer", FLOOR.0, FLOOR.1);
        judged.lower("redis_version", version, &wanted, "older servers lack what the scripts use");
    }
    judged.notes.extend(facts.clocks.note());
    judged.note("Leases end by the server's wall clock: one that is set forward ends them early.");
    judged
}

impl Clocks {
    /// If they differ, and not only by the time that the answer took.
    fn note(&self) -> Option<String> {
        let ahead = self.server.saturating_sub(self.after);
        let behind = self.before.saturating_sub(self.server);
        let (by, way, but) = if ahead > SKEW {
            (ahead, "ahead of", "prolongs leases if it is set back")
        } else if behind > SKEW {
            (behind, "behind", "ends leases early if it is set forward")
        } else {
            return None;
        };
        Some(format!(
            "The server's clock is {by:.1?} {way} ours: leases and the times shown count by the server's alone and are not affected, but it {but}."
        ))
    }
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (major, minor) >= FLOOR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(changes: &[(&str, &str)], fsync: Option<&str>) -> Guarantee {
        let mut info = parse(
            "# Server\r\nredis_version:7.0.15\r\nrole:master\r\naof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0\r\n",
        );
        info.extend(changes.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())));
        judge(&Facts {
            info,
            fsync: fsync.map(str::to_owned),
            pauses: false,
            clocks: clocks(5000, 5000, 5000),
        })
    }

    fn clocks(before: u64, server: u64, after: u64) -> Clocks {
        let [before, server, after] = [before, server, after].map(Duration::from_millis);
        Clocks { before, server, after }
    }

    #[test]
    fn only_a_durable_server_alone_bounds_by_leases() {
        assert_eq!(judged(&[], Some("always")).level, Level::LeaseBounded);
        assert_eq!(judged(&[("maxmemory_policy", "allkeys-lru")], Some("always")).level, Level::LeaseBounded);
        for (changes, fsync, said) in [
            (&[][..], Some("everysec"), "everysec"),
            (&[], None, "CONFIG GET"),
            (&[("aof_enabled", "0")], Some("always"), "appendonly is no"),
            (&[("maxmemory", "9"), ("maxmemory_policy", "allkeys-lru")], Some("always"), "allkeys-lru"),
            (&[("connected_slaves", "1")], Some("always"), "fail-over"),
            (&[("role", "slave")], Some("always"), "replica"),
            (&[("redis_version", "5.0.7")], Some("always"), "5.0.7"),
        ] {
            let judged = judged(changes, fsync);
            assert_eq!(judged.level, Level::BestEffort, "{changes:?}");
            assert!(judged.findings[0].to_string().contains(said), "{judged}");
        }
    }

    #[test]
    fn a_server_that_does_not_always_sync_is_no_durable_one() {
        let info = parse("redis_version:7.0.15\nrole:master\naof_enabled:1\nmaxmemory:0\n");
        let fsync = Some("always".to_owned());
        let judged = judge(&Facts { info, fsync, pauses: true, clocks: clocks(0, 0, 0) });
        assert_eq!(judged.level, Level::BestEffort);
        assert_eq!(judged.findings[0].what, "no-appendfsync-on-rewrite");
    }

    #[test]
    fn clocks_that_differ_by_more_than_the_answer_took_are_told_of() {
        for (before, server, after, said) in [
            (5000, 5000, 5000, None),
            (5000, 4000, 9000, None),
            (5000, 3999, 9000, Some("1.0s behind ours")),
            (5000, 10_000, 9000, None),
            (5000, 10_500, 9000, Some("1.5s ahead of ours")),
        ] {
            let note = clocks(before, server, after).note();
            assert_eq!(note.is_some(), said.is_some(), "{note:?}");
            assert!(note.unwrap_or_default().contains(said.unwrap_or_default()));
        }
    }
}
