//! What a diagnosis finds where a URL has several servers: a cluster, Sentinels, a Redlock.

use std::time::Duration;

use leasehold_core::{Diagnostic, Inspect, Severity};
use leasehold_testkit::server::RedisSentinelOptions;

use crate::{
    cluster::as_user,
    cluster_rig::ClusterRig,
    diagnoses::only,
    redlock_rig::RedlockRig,
    rig::major,
    sentinel_rig::{SentinelRig, late_failover},
};

/// The server at this port, as diagnostics name it.
fn server_at(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// The diagnostics about this server.
fn about(all: &[Diagnostic], port: u16) -> Vec<Diagnostic> {
    let of_server = |found: &&Diagnostic| found.server.as_deref() == Some(&server_at(port));
    all.iter().filter(of_server).cloned().collect()
}

#[test]
fn every_node_of_a_cluster_is_looked_at() {
    let rig = ClusterRig::with(3, 0, &[]);
    let ports = rig.cluster().ports();
    let all = rig.run(rig.engine().diagnose()).unwrap();
    for port in &ports {
        let about = about(&all, *port);
        assert_eq!(only(&about, "redis-cluster").severity, Severity::Good, "{about:?}");
        let replicas = only(&about, "redis-replicas");
        assert!(
            replicas.severity == Severity::Warning && replicas.found.contains("no replica"),
            "{replicas:?}"
        );
    }
    assert_eq!(only(&all, "redis-clocks").severity, Severity::Good);
    rig.cluster().kill(1);
    let all = rig.run(rig.engine().diagnose()).unwrap();
    let lost = about(&all, ports[1]);
    assert_eq!(lost.len(), 1, "{lost:?}");
    let found = only(&lost, "redis-server");
    assert!(found.severity == Severity::Broken && found.found.contains("cannot be used"), "{found:?}");
    assert!(about(&all, ports[0]).len() > 5, "the others are looked at");
}

#[test]
fn an_operator_of_a_cluster_may_look_at_all() {
    let (_directory, rig) = as_user("leasehold-operator", 0);
    let all = rig.run(rig.engine().diagnose()).unwrap();
    let rights = all.iter().filter(|found| found.id == "redis-rights");
    // Older servers tell of slow commands only by a list that shows arguments, which this user may not read.
    let tells_latencies = major(|words| rig.cluster().command(0, words)) >= 7;
    let expected = if tells_latencies { Severity::Good } else { Severity::Unknown };
    assert!(rights.map(|found| found.severity).eq([expected; 3]), "{all:?}");
}

#[test]
fn a_sentinel_that_is_down_is_named() {
    let options = RedisSentinelOptions { down_after: Duration::from_secs(120), ..late_failover() };
    let mut rig = SentinelRig::new(options);
    rig.redis.kill_sentinel(2);
    let ports = rig.redis.sentinel_ports();
    let all = rig.runtime.block_on(rig.engine().diagnose()).unwrap();
    for (index, port) in ports.into_iter().enumerate() {
        let about = about(&all, port);
        let found = only(&about, "redis-sentinels");
        let (severity, text) = match index {
            2 => (Severity::Warning, "cannot connect"),
            _ => (Severity::Good, "replaces it after 120s"),
        };
        assert!(found.severity == severity && found.found.contains(text), "{found:?}");
    }
    let master = rig.redis.ports()[rig.redis.master()];
    assert_eq!(only(&about(&all, master), "redis-replicas").severity, Severity::Good);
}

#[test]
fn every_node_of_a_redlock_is_looked_at() {
    let mut rig = RedlockRig::new(3);
    let ports: Vec<u16> = rig.nodes.iter().map(|node| node.port()).collect();
    let all = rig.run(rig.engine().diagnose()).unwrap();
    for port in &ports {
        let about = about(&all, *port);
        assert_eq!(only(&about, "redlock-votes").severity, Severity::Good, "{about:?}");
        assert!(about.iter().all(|found| found.id != "redis-persistence"), "a Redlock needs none: {about:?}");
    }
    assert_eq!(only(&all, "redlock-clocks").severity, Severity::Good);
    rig.nodes[1].command(&["FLUSHALL"]);
    rig.nodes[2].kill();
    let all = rig.run(rig.engine().diagnose()).unwrap();
    let emptied = about(&all, ports[1]);
    assert_eq!(only(&emptied, "redlock-votes").severity, Severity::Warning, "{emptied:?}");
    let lost = about(&all, ports[2]);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(only(&lost, "redlock-node").severity, Severity::Warning);
    assert_eq!(only(&about(&all, ports[0]), "redlock-votes").severity, Severity::Good);
}

/// One node that refuses writes does no harm, and the guarantee reports clocks that do not agree.
#[test]
fn a_node_that_cannot_be_used_is_a_warning() {
    let rig = RedlockRig::new(3);
    rig.nodes[0].command(&["CONFIG", "SET", "maxmemory", "1000"]);
    rig.nodes[1].set_clock(crate::redlock_rig::AGE + 60);
    let all = rig.run(rig.engine().diagnose()).unwrap();
    let full = about(&all, rig.nodes[0].port());
    assert_eq!(only(&full, "redis-memory").severity, Severity::Warning, "{full:?}");
    assert!(all.iter().all(|found| found.id != "redlock-clocks"), "{all:?}");
    let guarantee = rig.run(rig.engine().guarantee()).unwrap();
    assert!(guarantee.findings.iter().any(|finding| finding.what == "the clocks"), "{guarantee}");
}
