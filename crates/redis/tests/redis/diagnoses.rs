//! What a diagnosis finds on one server: one that is as it should be, and misconfigured ones.

use leasehold_core::{Diagnostic, Inspect, Level, Severity};
use leasehold_testkit::server::RedisServer;

use crate::{
    conformance::as_user,
    rig::{PATIENCE, Rig, major},
};

/// The arguments of a server that keeps every acknowledged write.
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

fn diagnosed(rig: &Rig) -> Vec<Diagnostic> {
    rig.run(rig.engine().diagnose()).unwrap()
}

/// The only diagnostic with this id.
#[track_caller]
pub(crate) fn only<'a>(all: &'a [Diagnostic], id: &str) -> &'a Diagnostic {
    let mut found = all.iter().filter(|diagnostic| diagnostic.id == id);
    match (found.next(), found.next()) {
        (Some(diagnostic), None) => diagnostic,
        _ => panic!("not one {id}: {all:#?}"),
    }
}

/// Asserts that the server has one diagnostic with this id, with this severity and this text, and advice unless it is
/// good.
#[track_caller]
fn assert_found(rig: &Rig, id: &str, severity: Severity, text: &str) {
    let all = diagnosed(rig);
    let found = only(&all, id);
    assert!(found.severity == severity && found.found.contains(text), "{found:?}");
    assert_eq!(found.advice.is_empty(), severity == Severity::Good, "{found:?}");
}

#[test]
fn a_good_server_has_only_good_diagnostics() {
    let all = diagnosed(&Rig::with(DURABLE));
    let mut ids: Vec<_> = all.iter().map(|found| found.id).collect();
    ids.sort_unstable();
    assert_eq!(
        ids,
        [
            "redis-clients",
            "redis-clock",
            "redis-eviction",
            "redis-memory",
            "redis-persistence",
            "redis-pushes",
            "redis-replicas",
            "redis-rights",
            "redis-slow",
            "redis-timeout",
            "redis-user",
            "redis-version",
        ]
    );
    for found in &all {
        // On a busy machine a command can be slow.
        assert!(found.severity == Severity::Good || found.id == "redis-slow", "{found:?}");
        assert_eq!(found.server, None, "there is one server: {found:?}");
    }
}

/// What the guarantee reports is no diagnostic as well.
#[test]
fn a_server_that_pauses_its_syncs_gives_a_lower_guarantee() {
    let rig = Rig::with(&[DURABLE, &["--no-appendfsync-on-rewrite", "yes"]].concat());
    let guarantee = rig.run(rig.engine().guarantee()).unwrap();
    assert_eq!(guarantee.level, Level::BestEffort);
    assert_eq!(guarantee.findings[0].what, "no-appendfsync-on-rewrite", "{guarantee}");
    assert!(diagnosed(&rig).iter().all(|found| found.id != "redis-persistence"));
}

#[test]
fn a_server_that_evicts_is_reported() {
    let rig = Rig::new();
    let used: u64 = rig
        .command(&["INFO", "memory"])
        .split("used_memory:")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    rig.command(&["CONFIG", "SET", "maxmemory", &(used + 1_000_000).to_string()]);
    rig.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let large_value = "x".repeat(100_000);
    rig.until("keys are evicted", || {
        let key = rig.command(&["INCR", "counter"]);
        rig.command(&["SET", &key, &large_value]);
        !rig.command(&["INFO", "stats"]).contains("evicted_keys:0")
    });
    assert_found(&rig, "redis-eviction", Severity::Warning, "keys were evicted");
    assert_found(&rig, "redis-memory", Severity::Warning, "a full server evicts keys");
    rig.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_found(&rig, "redis-eviction", Severity::Warning, "keys were evicted");
    rig.command(&["CONFIG", "RESETSTAT"]);
    assert_found(&rig, "redis-eviction", Severity::Good, "none can be");
}

#[test]
fn a_full_server_is_broken() {
    let rig = Rig::new();
    assert_found(&rig, "redis-memory", Severity::Good, "without a limit");
    rig.command(&["CONFIG", "SET", "maxmemory", "1000"]);
    assert_found(&rig, "redis-memory", Severity::Broken, "it refuses claims");
    assert!(rig.locks().mutex("a").blocking().acquire().unwrap_err().is_refused());
}

/// A directory in place of the file makes a snapshot fail.
#[test]
fn a_server_that_cannot_save_is_broken() {
    let rig = Rig::new();
    let directory = rig.server.command(&["CONFIG", "GET", "dir"])[1].clone();
    std::fs::create_dir(std::path::Path::new(&directory).join("dump.rdb")).unwrap();
    rig.command(&["CONFIG", "SET", "save", "3600 1"]);
    rig.command(&["BGSAVE"]);
    rig.until("the snapshot has failed", || {
        rig.command(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
    });
    assert_found(&rig, "redis-persistence", Severity::Broken, "refuses writes");
    assert!(rig.locks().mutex("a").blocking().acquire().unwrap_err().is_refused());
    rig.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    assert_found(&rig, "redis-persistence", Severity::Warning, "the last snapshot failed");
    rig.locks().mutex("a").blocking().acquire().unwrap().release_blocking().unwrap();
}

#[test]
fn limits_that_break_connections_are_reported() {
    let rig = Rig::new();
    for setting in [["client-output-buffer-limit", "pubsub 65536 0 0"], ["timeout", "20"]] {
        rig.command(&[&["CONFIG", "SET"][..], &setting].concat());
    }
    assert_found(&rig, "redis-pushes", Severity::Warning, "65536 unsent bytes");
    assert_found(&rig, "redis-timeout", Severity::Warning, "after 20 s");
    rig.command(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0"]);
    rig.command(&["CONFIG", "SET", "tracking-table-max-keys", "10"]);
    assert_found(&rig, "redis-pushes", Severity::Warning, "10 keys at most");
    let engine = rig.engine();
    assert_eq!(only(&rig.run(engine.diagnose()).unwrap(), "redis-clients").severity, Severity::Good);
    rig.command(&["CONFIG", "SET", "maxclients", "1"]);
    let all = rig.run(engine.diagnose()).unwrap();
    let found = only(&all, "redis-clients");
    assert!(found.severity == Severity::Warning && found.found.contains("of 1 connections"), "{found:?}");
}

/// Of a slow command only the name is shown.
#[test]
fn a_slow_command_is_reported_without_its_arguments() {
    let rig = Rig::new();
    rig.command(&["EVAL", "for _ = 1, 2e8 do end return ARGV[1]", "0", "canary"]);
    let all = diagnosed(&rig);
    let found = only(&all, "redis-slow");
    assert!(
        found.severity == Severity::Warning && found.found.starts_with("EVAL of another program took "),
        "{found:?}"
    );
    assert!(!format!("{all:?}").contains("canary"));
}

/// Leasehold of another version, whose digests are others.
#[test]
fn a_slow_script_of_leasehold_blames_no_other_program() {
    let rig = Rig::new();
    let digest = rig.command(&["SCRIPT", "LOAD", "for _ = 1, 2e8 do end return 1"]);
    rig.command(&["EVALSHA", digest.trim(), "1", "leasehold:{t}t"]);
    let all = diagnosed(&rig);
    let found = only(&all, "redis-slow");
    assert_eq!(found.severity, Severity::Warning, "{found:?}");
    assert!(found.found.starts_with("a script of leasehold took "), "{found:?}");
    assert!(!found.advice.contains("other programs"), "{found:?}");
    rig.command(&["EVALSHA", digest.trim(), "1", "another"]);
    let all = diagnosed(&rig);
    assert!(only(&all, "redis-slow").found.starts_with("EVALSHA of another program took "), "{all:?}");
}

#[test]
fn a_server_without_its_replicas_is_broken() {
    let rig = Rig::new();
    rig.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_found(&rig, "redis-replicas", Severity::Broken, "it refuses writes");
    assert!(rig.locks().mutex("a").blocking().acquire().unwrap_err().is_refused());
    let replica = Rig::with(&["--replicaof", &format!("127.0.0.1 {}", rig.server.port())]);
    rig.until("the replica follows", || only(&diagnosed(&rig), "redis-replicas").severity == Severity::Good);
    replica.command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_found(&replica, "redis-replicas", Severity::Warning, "not connected to its master");
}

#[test]
fn a_clock_that_is_off_is_reported() {
    let rig = Rig::of(RedisServer::with_clock(&[]));
    assert_found(&rig, "redis-clock", Severity::Good, "of ours");
    for (seconds, words) in [(3600, "ahead of ours"), (-3600, "behind ours")] {
        rig.server.set_clock(seconds);
        assert_found(&rig, "redis-clock", Severity::Warning, words);
    }
}

#[test]
fn a_server_for_everybody_is_reported_and_no_password_is_shown() {
    let rig = Rig::with(&["--protected-mode", "no"]);
    assert_found(&rig, "redis-user", Severity::Warning, "without a password");
    let mut rig = Rig::with(&["--requirepass", "canary", "--protected-mode", "no"]);
    rig.config = rig.config.clone().login("default", "canary");
    assert_found(&rig, "redis-user", Severity::Good, "as default, with a password");
    assert!(!format!("{:?}", diagnosed(&rig)).contains("canary"));
}

#[test]
fn a_user_who_may_not_look_is_told_the_right() {
    let (_directory, rig) = as_user("leasehold");
    assert_found(&rig, "redis-rights", Severity::Unknown, "settings (CONFIG)");
    let all = diagnosed(&rig);
    let advice = &only(&all, "redis-rights").advice;
    assert!(advice.contains("+info +config|get +slowlog|get"), "{advice}");
    let ids: Vec<_> = all.iter().map(|found| found.id).collect();
    assert_eq!(ids, ["redis-rights", "redis-clock", "redis-user"], "nothing is claimed about the rest");
    let (_directory, rig) = as_user("leasehold-operator");
    // Older servers tell of slow commands only by a list that shows arguments, which this user may not read.
    let tells_latencies = major(|words| rig.server.command(words)) >= 7;
    let expected = if tells_latencies { Severity::Good } else { Severity::Unknown };
    assert_eq!(only(&diagnosed(&rig), "redis-rights").severity, expected);
}

#[test]
fn a_server_that_is_down_is_an_error() {
    let mut rig = Rig::new();
    rig.server.kill();
    let locks = rig.locks();
    let error =
        rig.run(async { tokio::time::timeout(PATIENCE, locks.diagnose()).await.unwrap() }).unwrap_err();
    assert!(error.is_unreachable(), "{error}");
}

#[cfg(feature = "tls")]
#[test]
fn the_end_of_the_certificate_is_read() {
    use leasehold_core::{Endpoint, Env};
    use leasehold_redis::{Address, Config, RedisEngine, Tls};

    let server = RedisServer::encrypted();
    let endpoint = Endpoint { host: "localhost".to_owned(), port: server.tls_port() };
    let identity = (server.certificate("client.pem"), server.certificate("client.key"));
    let tls = Tls::system().identity(identity.0, identity.1).roots(server.certificate("ca.pem"));
    let engine = RedisEngine::new(Config::new(Address::Tcp(endpoint)).tls(tls), &Env::system());
    let all = Rig::of(server).run(engine.diagnose()).unwrap();
    let found = only(&all, "redis-tls");
    assert_eq!(found.severity, Severity::Good, "{found:?}");
    let days: u64 = found.found.split(' ').rev().nth(1).unwrap().parse().unwrap();
    assert!(days > 10_000, "the certificate of the tests lasts for long: {days}");
}
