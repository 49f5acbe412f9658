//! The private ZooKeeper servers.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold_testkit::server::{ZookeeperEnsemble, ZookeeperServer};

/// The limit is far longer than it should take, because the machine may be busy.
const LOOKS: usize = 1200;
/// A server that is cut off does not notice for this time, which is less than its ten ticks.
const UNNOTICED: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

#[test]
fn a_killed_server_keeps_its_data() {
    let mut server = ZookeeperServer::start(&[]);
    server.command(&["create", "/name", "kept"]);
    server.kill();
    server.restart();
    assert_eq!(server.command(&["get", "/name"]), ["kept"]);
}

#[test]
fn a_wiped_server_restarts_empty_on_the_same_port() {
    let mut server = ZookeeperServer::start(&[]);
    let url = server.url();
    server.command(&["create", "/name"]);
    server.forget();
    server.restart();
    assert_eq!(server.command(&["ls", "/"]), ["[zookeeper]"]);
    assert_eq!(server.url(), url);
}

#[test]
fn a_restored_server_has_its_saved_state() {
    let mut server = ZookeeperServer::start(&[]);
    server.command(&["create", "/name", "old"]);
    server.save();
    server.restart();
    server.command(&["set", "/name", "new"]);
    for _ in 0..2 {
        server.restore();
        server.restart();
        assert_eq!(server.command(&["get", "/name"]), ["old"]);
        server.command(&["set", "/name", "newer"]);
    }
}

#[test]
fn the_child_counter_of_a_node_can_be_set() {
    let mut server = ZookeeperServer::start(&[]);
    server.command(&["create", "/name"]);
    server.command(&["create", "-s", "/name/child-"]);
    for (counter, child) in [(41, "0000000041"), (i32::MAX, "2147483647"), (i32::MIN, "-2147483648")] {
        server.set_child_counter("/name", counter);
        server.restart();
        let created = server.command(&["create", "-s", "/name/child-"]);
        assert_eq!(created, [format!("Created /name/child-{child}")]);
    }
}

#[test]
fn a_paused_server_does_not_answer() {
    let server = ZookeeperServer::start(&[]);
    server.pause();
    assert!(std::panic::catch_unwind(|| server.four_letter_command("ruok")).is_err());
    server.resume();
    assert_eq!(server.four_letter_command("ruok"), "imok");
}

#[test]
fn a_server_takes_extra_configuration_and_options() {
    let server = ZookeeperServer::start(&["tickTime=250", "-Dleasehold.test=value"]);
    assert!(server.four_letter_command("conf").contains("tickTime=250\n"));
    assert!(server.four_letter_command("envi").contains("java.io.tmpdir="));
}

#[test]
fn a_durable_server_waits_for_the_disk() {
    for (server, waits) in [(ZookeeperServer::durable(&[]), true), (ZookeeperServer::start(&[]), false)] {
        server.command(&["create", "/name"]);
        assert_eq!(flushes(&server) > 0, waits);
    }
}

#[cfg(feature = "tls")]
#[test]
fn an_encrypted_server_refuses_clients_without_a_certificate() {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    let server = ZookeeperServer::encrypted();
    let greet = |certificate: bool| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-verify_return_error", "-verify_hostname", "localhost"]);
        command.arg("-connect").arg(server.url().replace("zookeepers://", ""));
        command.arg("-CAfile").arg(server.certificate("ca.pem"));
        if certificate {
            command.arg("-cert").arg(server.certificate("client.pem"));
            command.arg("-key").arg(server.certificate("client.key"));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // The connection may be refused before anything is sent.
        let input = child.stdin.take().unwrap();
        let _ = (&input).write_all(b"ruok");
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    assert_eq!(greet(true), "imok");
    assert_eq!(greet(false), "");
}

#[test]
fn an_ensemble_survives_a_killed_leader_and_its_return() {
    let mut ensemble = ZookeeperEnsemble::start();
    let first = ensemble.leader();
    ensemble.kill(first);
    let second = ensemble.leader();
    assert_ne!(second, first);
    ensemble.command(second, &["create", "/name", "without it"]);
    ensemble.restart(first);
    assert_eq!(ensemble.command(first, &["get", "/name"]), ["without it"]);
}

#[test]
fn an_ensemble_survives_a_paused_leader() {
    let mut ensemble = ZookeeperEnsemble::start();
    let first = ensemble.leader();
    ensemble.pause(first);
    let second = ensemble.leader();
    assert_ne!(second, first);
    ensemble.command(second, &["create", "/name"]);
    ensemble.resume(first);
    assert_eq!(ensemble.leader(), second);
}

#[test]
fn a_partitioned_leader_is_replaced_and_rejoins() {
    let mut ensemble = ZookeeperEnsemble::start();
    let first = ensemble.leader();
    ensemble.cut(first);
    let second = ensemble.leader();
    assert_ne!(second, first);
    until(|| !serves(&ensemble, first));
    ensemble.command(second, &["create", "/name", "without it"]);
    ensemble.heal(first);
    assert_eq!(ensemble.command(first, &["get", "/name"]), ["without it"]);
    assert_eq!(ensemble.leader(), second);
}

#[test]
fn a_partitioned_follower_answers_until_its_timeout() {
    let mut ensemble = ZookeeperEnsemble::start();
    let leader = ensemble.leader();
    let follower = (leader + 1) % 3;
    ensemble.cut_between([leader, follower]);
    let parted = Instant::now();
    until(|| !serves(&ensemble, follower));
    // A server that is cut off notices after ten ticks of 500 ms.
    assert!(parted.elapsed() > Duration::from_secs(3), "{:?}", parted.elapsed());
    assert_eq!(ensemble.leader(), leader);
    ensemble.heal(follower);
    until(|| serves(&ensemble, follower));
}

#[test]
fn a_short_partition_goes_unnoticed() {
    let mut ensemble = ZookeeperEnsemble::start();
    let leader = ensemble.leader();
    let follower = (leader + 1) % 3;
    let cut = Instant::now();
    ensemble.cut(follower);
    ensemble.command(leader, &["create", "/name", "meanwhile"]);
    assert!(serves(&ensemble, follower) || cut.elapsed() > UNNOTICED, "it noticed at once");
    ensemble.heal(follower);
    assert!(serves(&ensemble, follower) || cut.elapsed() > UNNOTICED, "it noticed in time");
    until(|| serves(&ensemble, follower));
    assert_eq!(ensemble.command(follower, &["sync", "/"]), ["Sync is OK"]);
    assert_eq!(ensemble.command(follower, &["get", "/name"]), ["meanwhile"]);
    assert_eq!(ensemble.leader(), leader);
}

fn flushes(server: &ZookeeperServer) -> u64 {
    let reply = server.four_letter_command("mntr");
    let count = reply.lines().find_map(|line| line.strip_prefix("zk_cnt_fsynctime\t"));
    count.expect("the server reports how often it waited for the disk").parse().unwrap()
}

fn serves(ensemble: &ZookeeperEnsemble, node: usize) -> bool {
    ensemble.four_letter_command(node, "srvr").contains("Mode: ")
}

fn until(happened: impl Fn() -> bool) {
    for _ in 0..LOOKS {
        if happened() {
            return;
        }
        sleep(LOOK);
    }
    panic!("it never happened");
}
