//! A URL with several hosts: the client finds the primary.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Env, Locks};
use leasehold_sql::postgres::{Config, engine};
use leasehold_testkit::server::{FakeServer, PostgresServer};

use crate::rig::{PATIENCE, Rig, acquire, until};

/// A client with these ports of this machine as its hosts, in this order.
fn locks(ports: &[u16], parameters: &[(&str, String)]) -> Locks {
    let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let rest = format!("//postgres@{}/postgres", hosts.join(","));
    let config = Config::with_parameters(&rest, parameters).unwrap();
    Locks::builder(Arc::new(engine(config, &Env::system()))).build()
}

/// A primary with our tables, and its replica.
fn pair() -> (Rig, PostgresServer) {
    let rig = Rig::of(PostgresServer::durable(&["wal_level=replica"]));
    acquire(&rig.locks(), "warm").release_blocking().unwrap();
    let replica = rig.server.replica();
    (rig, replica)
}

#[test]
fn a_replica_is_skipped_unless_the_url_accepts_any() {
    let (rig, replica) = pair();
    let ports = [replica.port(), rig.server.port()];
    let (first, second) = (locks(&ports, &[]), locks(&ports, &[]));
    let guard = acquire(&first, "a");
    let waiting = std::thread::spawn(move || acquire(&second, "a").release_blocking().unwrap());
    until("the claim waits", || rig.show("a").waiters.len() == 1);
    guard.release_blocking().unwrap();
    waiting.join().unwrap();
    for (ports, session) in [(&ports[..], "any"), (&ports[..1], "read-write")] {
        let session = [("target_session_attrs", session.to_owned())];
        let error = locks(ports, &session).mutex("a").blocking().try_acquire().unwrap_err();
        assert!(error.to_string().contains("replica"), "{error}");
    }
}

#[test]
fn dead_and_silent_hosts_are_skipped() {
    let rig = Rig::new();
    let silent = FakeServer::start(|connection| connection.receive_all().map(drop));
    for first in [1, silent.port()] {
        let locks = locks(&[first, rig.server.port()], &[]);
        acquire(&locks, "a").release_blocking().unwrap();
    }
}

/// Two writable servers are two sets of locks: a client that moves to the other one is notified that its holds are
/// lost.
#[test]
fn a_new_primary_is_found_and_holders_are_notified() {
    let (mut rig, replica) = pair();
    let locks = locks(&[rig.server.port(), replica.port()], &[]);
    let guard = locks.mutex("a").ttl(Duration::from_secs(3)).blocking().acquire().unwrap();
    until("the replica has the row", || {
        let row_count = "SELECT count(*) FROM leasehold_lock WHERE name = 'a'";
        let output = leasehold_testkit::server::psql(replica.port(), &["-c", row_count]);
        String::from_utf8_lossy(&output.stdout).trim() == "1"
    });
    let token = guard.token();
    replica.promote();
    rig.server.kill();
    let lost = rig.run(async { tokio::time::timeout(PATIENCE, guard.lost()).await });
    assert!(lost.is_ok(), "the holder is notified");
    let next = acquire(&locks, "a");
    assert_ne!(next.token().lineage, token.lineage);
}

/// When the old primary is back, the client stays with the new one.
#[test]
fn the_last_used_host_is_tried_first() {
    let (mut first, second) = (Rig::new(), Rig::new());
    let locks = locks(&[first.server.port(), second.server.port()], &[]);
    first.server.kill();
    acquire(&locks, "a").release_blocking().unwrap();
    first.server.restart();
    second
        .server
        .query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'");
    acquire(&locks, "b").release_blocking().unwrap();
    assert_eq!(second.server.query("SELECT count(*) FROM leasehold_lock WHERE name = 'b'"), ["1"]);
}
