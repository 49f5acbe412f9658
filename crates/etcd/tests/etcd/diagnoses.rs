//! What a diagnosis finds on good and on misconfigured members.

use std::sync::Arc;

use leasehold_core::{Diagnostic, Env, Inspect, Severity};
use leasehold_etcd::{Config, EtcdEngine};
use leasehold_testkit::server::{EtcdCluster, EtcdServer, etcd_metric};

use crate::{
    rig::{PATIENCE, Rig, SMALL_DATABASE, local},
    rights::{LOCKER, with_users},
};

/// The diagnostics of a client with this configuration.
fn diagnosed(config: Config) -> Vec<Diagnostic> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = Arc::new(EtcdEngine::new(config, &Env::system()));
    runtime.block_on(engine.diagnose()).unwrap()
}

/// The only diagnostic with this id.
#[track_caller]
fn only<'a>(all: &'a [Diagnostic], id: &str) -> &'a Diagnostic {
    let mut found = all.iter().filter(|diagnostic| diagnostic.id == id);
    match (found.next(), found.next()) {
        (Some(diagnostic), None) => diagnostic,
        _ => panic!("not one {id}: {all:#?}"),
    }
}

/// Asserts that there is one diagnostic with this id, with this severity and this text, and advice unless it is good.
#[track_caller]
fn assert_found(all: &[Diagnostic], id: &str, severity: Severity, text: &str) {
    let found = only(all, id);
    assert!(found.severity == severity && found.found.contains(text), "{found:?}");
    assert_eq!(found.advice.is_empty(), severity == Severity::Good, "{found:?}");
}

#[test]
fn a_member_without_users_has_one_warning() {
    let rig = Rig::new();
    let all = diagnosed(rig.config.clone());
    assert_found(&all, "etcd-member", Severity::Good, "the leader");
    assert_found(&all, "etcd-members", Severity::Good, "members: 1, of which may fail: 0");
    assert_found(&all, "etcd-user", Severity::Warning, "can take and delete locks");
    for found in &all {
        // On a busy machine the disk can be slow.
        let is_good = found.severity == Severity::Good || matches!(found.id, "etcd-user" | "etcd-disk");
        assert!(is_good && found.server.is_none(), "{found:?}");
    }
    for id in [
        "etcd-alarms",
        "etcd-space",
        "etcd-raft",
        "etcd-version",
        "etcd-leader",
        "etcd-compaction",
        "etcd-rights",
    ] {
        only(&all, id);
    }
}

#[test]
fn a_full_database_is_broken() {
    let rig = Rig::with(&[SMALL_DATABASE]);
    assert_found(&diagnosed(rig.config.clone()), "etcd-alarms", Severity::Good, "no alarm");
    rig.fill();
    let all = diagnosed(rig.config.clone());
    assert_found(&all, "etcd-alarms", Severity::Broken, "NOSPACE");
    assert_found(&all, "etcd-space", Severity::Warning, "of 4 MiB");
    assert!(rig.locks().mutex("a").blocking().acquire().unwrap_err().is_refused());
}

/// Writes until the member has written its database often enough to tell whether it syncs its log.
fn write_until_judged(server: &EtcdServer) {
    let limit = std::time::Instant::now() + PATIENCE;
    let commits = || etcd_metric(server.port(), "etcd_disk_backend_commit_duration_seconds_count");
    while commits().unwrap().unwrap_or(0.0) < 25.0 {
        assert!(std::time::Instant::now() < limit, "waited {PATIENCE:?} for writes of the database");
        server.command(&["put", "key", "value"]);
    }
}

#[test]
fn a_member_that_does_not_sync_its_log_is_reported() {
    let timing = ["--heartbeat-interval=10", "--election-timeout=100"];
    for (server, severity) in
        [(EtcdServer::start(&timing), Severity::Warning), (EtcdServer::durable(&timing), Severity::Good)]
    {
        write_until_judged(&server);
        let all = diagnosed(Config::new(vec![local(server.port())]));
        let found = only(&all, "etcd-fsync");
        assert_eq!(found.severity, severity, "{found:?}");
    }
}

#[test]
fn every_member_is_looked_at() {
    let mut cluster = EtcdCluster::start();
    let leader = cluster.leader();
    let ports = cluster.ports();
    let config = || Config::new(ports.into_iter().map(local).collect());
    let about = |all: &[Diagnostic], member: usize| -> Vec<Diagnostic> {
        let server = format!("127.0.0.1:{}", ports[member]);
        all.iter().filter(|found| found.server.as_deref() == Some(&server)).cloned().collect()
    };
    let all = diagnosed(config());
    assert_found(&about(&all, leader), "etcd-member", Severity::Good, "the leader");
    assert_found(&about(&all, (leader + 1) % 3), "etcd-member", Severity::Good, "a follower");
    assert_found(&all, "etcd-members", Severity::Good, "members: 3, of which may fail: 1");
    assert_found(&all, "etcd-data", Severity::Good, "3 members have the same data");
    only(&all, "etcd-lag");
    let one = Config::new(vec![local(ports[leader])]);
    assert_found(&diagnosed(one), "etcd-members", Severity::Warning, "the URL names 1 of 3 members");
    let down = (leader + 1) % 3;
    cluster.kill(down);
    let all = diagnosed(config());
    let lost = about(&all, down);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_found(&lost, "etcd-member", Severity::Warning, "cannot connect");
    assert_found(&about(&all, leader), "etcd-member", Severity::Good, "the leader");
    assert_found(&all, "etcd-data", Severity::Good, "2 members have the same data");
}

/// From 3.5.30 on etcd tells its status to administrators only.
#[test]
fn a_user_sees_what_it_may_see_and_no_password_is_shown() {
    let rig = with_users(&[]);
    let all = diagnosed(rig.config.clone());
    assert_found(&all, "etcd-user", Severity::Good, "logged in as leasehold");
    let rights = only(&all, "etcd-rights");
    match rights.severity {
        Severity::Good => assert_found(&all, "etcd-alarms", Severity::Good, "no alarm"),
        _ => {
            assert_eq!(rights.severity, Severity::Unknown);
            assert!(rights.found.contains("alarms") && rights.advice.contains("root"), "{rights:?}");
            assert!(
                all.iter().all(|found| found.id != "etcd-alarms"),
                "nothing is claimed about them: {all:?}"
            );
        }
    }
    assert!(!format!("{all:?}").contains(LOCKER.1), "{all:?}");
    let engine = EtcdEngine::new(rig.config.clone().login(LOCKER.0, "canary"), &Env::system());
    let error = rig.run(engine.diagnose()).unwrap_err();
    assert!(error.fault == leasehold_core::Fault::Denied && !error.message.contains("canary"), "{error:?}");
}

#[cfg(feature = "tls")]
#[test]
fn the_end_of_the_certificate_is_read() {
    use leasehold_core::Endpoint;
    use leasehold_etcd::Tls;

    let server = EtcdServer::encrypted();
    let file = |name: &str| server.certificate(name);
    let tls = Tls::system().identity(file("client.pem"), file("client.key")).roots(file("ca.pem"));
    let member = Endpoint { host: "localhost".to_owned(), port: server.port() };
    let all = diagnosed(Config::new(vec![member]).tls(tls));
    assert_found(&all, "etcd-tls", Severity::Good, "expires in");
    let days: u64 = only(&all, "etcd-tls").found.split(' ').rev().nth(1).unwrap().parse().unwrap();
    assert!(days > 10_000, "the certificate of the tests lasts for long: {days}");
    assert_found(&all, "etcd-user", Severity::Good, "by TLS");
    let shown_elsewhere = ["etcd-fsync", "etcd-disk"];
    assert!(
        all.iter().all(|found| !shown_elsewhere.contains(&found.id)),
        "its metrics are elsewhere: {all:?}"
    );
}
