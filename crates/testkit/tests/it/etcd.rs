//! The private etcd servers.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread::sleep,
    time::Duration,
};

use leasehold_testkit::server::{EtcdCluster, EtcdServer, etcd_command};

/// The limit is far longer than it should take, because the machine may be busy.
const LOOKS: usize = 1200;
const LOOK: Duration = Duration::from_millis(50);

#[test]
fn a_killed_server_keeps_its_data() {
    let mut server = EtcdServer::start(&[]);
    server.command(&["put", "name", "kept"]);
    server.kill();
    assert!(!etcd_command(server.port(), &["--command-timeout=1s", "get", "name"]).status.success());
    server.restart();
    assert_eq!(value(&server), ["kept"]);
}

#[test]
fn a_wiped_server_restarts_empty_on_the_same_port() {
    let mut server = EtcdServer::start(&[]);
    let url = server.url();
    server.command(&["put", "name", "forgotten"]);
    server.forget();
    server.restart();
    assert_eq!(value(&server), [""; 0]);
    assert_eq!(server.url(), url);
}

#[test]
fn a_restored_server_has_its_saved_state() {
    let mut server = EtcdServer::start(&[]);
    server.command(&["put", "name", "old"]);
    server.save();
    server.restart();
    let before = revision(&server);
    server.command(&["put", "name", "new"]);
    assert!(revision(&server) > before);
    for _ in 0..2 {
        server.restore();
        server.restart();
        assert_eq!(value(&server), ["old"]);
        assert_eq!(revision(&server), before);
        server.command(&["put", "name", "newer"]);
    }
}

#[test]
fn a_paused_server_does_not_answer() {
    let server = EtcdServer::start(&[]);
    let health = || etcd_command(server.port(), &["--command-timeout=1s", "endpoint", "health"]).status;
    server.pause();
    assert!(!health().success());
    server.resume();
    // The command's limit is for a server that does not answer, but a busy machine may reach it too.
    assert!(happens(|| health().success()));
}

#[test]
fn the_shortest_lease_is_that_of_the_default_timing() {
    let usual = EtcdServer::start(&[]);
    let quick = EtcdServer::start(&["--heartbeat-interval=10", "--election-timeout=100"]);
    assert!(usual.command(&["lease", "grant", "1"])[0].ends_with("granted with TTL(2s)"));
    assert!(quick.command(&["lease", "grant", "1"])[0].ends_with("granted with TTL(1s)"));
}

#[test]
fn a_durable_server_waits_for_the_disk() {
    for (server, waits) in [(EtcdServer::durable(&[]), true), (EtcdServer::start(&[]), false)] {
        let before = flushes(&server);
        server.command(&["put", "name", "kept"]);
        assert_eq!(flushes(&server) > before, waits);
    }
}

#[cfg(feature = "tls")]
#[test]
fn an_encrypted_server_refuses_clients_without_a_certificate() {
    use std::process::Command;

    let server = EtcdServer::encrypted();
    let get = |certificate: bool| {
        let mut command = Command::new("etcdctl");
        // A refused client retries until then.
        let limit = if certificate { "60s" } else { "2s" };
        command.env("ETCDCTL_API", "3").arg(format!("--command-timeout={limit}"));
        command.arg("--endpoints").arg(server.url().replace("etcds", "https"));
        command.arg("--cacert").arg(server.certificate("ca.pem"));
        if certificate {
            command.arg("--cert").arg(server.certificate("client.pem"));
            command.arg("--key").arg(server.certificate("client.key"));
        }
        command.args(["get", "name"]).output().unwrap()
    };
    server.command(&["put", "name", "secret"]);
    assert!(get(true).status.success());
    assert!(!get(false).status.success());
    assert!(!etcd_command(server.port(), &["--command-timeout=1s", "get", "name"]).status.success());
}

#[test]
fn a_cluster_survives_a_killed_leader_and_its_return() {
    let mut cluster = EtcdCluster::start();
    let first = cluster.leader();
    cluster.kill(first);
    let second = cluster.leader();
    assert_ne!(second, first);
    cluster.command(second, &["put", "name", "without it"]);
    cluster.restart(first);
    assert_eq!(cluster.command(first, &["get", "name", "--print-value-only"]), ["without it"]);
}

#[test]
fn a_cluster_survives_a_paused_leader() {
    let mut cluster = EtcdCluster::start();
    let first = cluster.leader();
    cluster.pause(first);
    let second = cluster.leader();
    assert_ne!(second, first);
    cluster.command(second, &["put", "name", "without it"]);
    cluster.resume(first);
    assert_eq!(cluster.command(first, &["get", "name", "--print-value-only"]), ["without it"]);
}

#[test]
fn a_partitioned_leader_is_replaced_and_steps_down() {
    let mut cluster = EtcdCluster::start();
    let first = cluster.leader();
    cluster.cut(first);
    let second = cluster.leader();
    assert_ne!(second, first);
    cluster.command(second, &["put", "name", "without it"]);
    assert!(happens(|| !has_leader(&cluster, first)));
    let get = ["get", "name", "--print-value-only", "--command-timeout=1s"];
    assert!(!etcd_command(cluster.ports()[first], &get).status.success());
    cluster.heal(first);
    assert_eq!(cluster.command(first, &get[..3]), ["without it"]);
    for node in 0..3 {
        assert!(happens(|| etcd_command(cluster.ports()[node], &["endpoint", "health"]).status.success()));
    }
}

#[test]
fn a_partitioned_follower_misses_writes() {
    let mut cluster = EtcdCluster::start();
    let leader = cluster.leader();
    let follower = (leader + 1) % 3;
    cluster.cut(follower);
    cluster.command(leader, &["put", "name", "missed"]);
    // From its own copy, because the others cannot be reached.
    let local = ["get", "name", "--print-value-only", "--consistency=s"];
    assert_eq!(cluster.command(follower, &local), [""; 0]);
    cluster.heal(follower);
    assert_eq!(cluster.command(follower, &local[..3]), ["missed"]);
}

#[test]
fn a_restarted_cluster_keeps_its_data() {
    let mut cluster = EtcdCluster::start();
    cluster.command(0, &["put", "name", "kept"]);
    (0..3).for_each(|node| cluster.kill(node));
    (0..3).for_each(|node| cluster.restart(node));
    let urls = cluster.ports().map(|port| format!("127.0.0.1:{port}")).join(",");
    assert_eq!(cluster.url(), format!("etcd://{urls}"));
    for node in 0..3 {
        assert_eq!(cluster.command(node, &["get", "name", "--print-value-only"]), ["kept"]);
    }
}

fn happens(it: impl Fn() -> bool) -> bool {
    (0..LOOKS).any(|look| {
        sleep(LOOK * u32::from(look > 0));
        it()
    })
}

fn value(server: &EtcdServer) -> Vec<String> {
    server.command(&["get", "name", "--print-value-only"])
}

fn revision(server: &EtcdServer) -> u64 {
    let answer = server.command(&["get", "name", "-w", "json"]).concat();
    serde_json::from_str::<serde_json::Value>(&answer).unwrap()["header"]["revision"].as_u64().unwrap()
}

fn has_leader(cluster: &EtcdCluster, node: usize) -> bool {
    let answer = cluster.command(node, &["endpoint", "status", "-w", "json"]).concat();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    answer[0]["Status"]["leader"].as_u64().is_some_and(|leader| leader != 0)
}

/// How often the server has waited for the disk.
fn flushes(server: &EtcdServer) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    let count =
        metrics.lines().find_map(|line| line.strip_prefix("etcd_disk_wal_fsync_duration_seconds_count "));
    count.unwrap().parse().unwrap()
}
