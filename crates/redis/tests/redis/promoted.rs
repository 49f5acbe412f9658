//! A plain URL whose host name resolves to another server after a fail-over, as with managed pairs of servers.

use std::{thread::spawn, time::Duration};

use leasehold_core::{Claim, Engine, Hold, How, Loss, Renewed};
use leasehold_testkit::server::{Proxy, RedisServer};

use crate::rig::{PATIENCE, Rig, acquire};

/// Two servers, and a proxy in place of the host name; it leads to the first server.
fn two_servers() -> (Rig, Rig, Proxy) {
    let (first, second) = (Rig::new(), Rig::new());
    let name = Proxy::start(first.server.port());
    (first, second, name)
}

fn locks_through(name: &Proxy) -> leasehold_core::Locks {
    crate::sentinel_rig::locks_of(crate::sentinel_rig::config_of(&format!(
        "redis://127.0.0.1:{}",
        name.port()
    )))
}

fn replicate_from(replica: &Rig, primary: &RedisServer) {
    replica.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    replica.until("it follows", || replica.command(&["ROLE"]).contains("connected"));
}

/// A replica would accept a renewal that only reads, so every renewal must contain a write.
#[test]
fn a_demoted_server_renews_no_hold() {
    let (rig, other) = (Rig::new(), Rig::new());
    let engine = rig.engine();
    rig.run(async {
        let claim: Claim = rig.claim("a");
        let Ok(leasehold_core::Answer::Held(grant)) = engine.claim(&claim, How::Create).await else {
            panic!("it is free")
        };
        let hold = Hold {
            name: claim.name.clone(),
            id: claim.id,
            mode: claim.mode,
            token: grant.token,
            ttl: claim.ttl,
        };
        let hold = std::slice::from_ref(&hold);
        assert!(matches!(engine.renew(hold).await[..], [Renewed::Extended { .. }]));
        rig.command(&["REPLICAOF", "127.0.0.1", &other.server.port().to_string()]);
        for _ in 0..5 {
            let renewed = engine.renew(hold).await;
            assert!(!matches!(renewed[..], [Renewed::Extended { .. }]), "{renewed:?}");
        }
    });
}

/// The demoted server closes no connection; it only refuses writes.
#[test]
fn a_refused_write_makes_the_client_resolve_the_name_again() {
    let (first, second, name) = two_servers();
    let (locks, other) = (locks_through(&name), locks_through(&name));
    replicate_from(&second, &first.server);
    let guard = acquire(&locks, "a");
    let token = guard.token();
    let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
    first.until("it waits", || first.show("a").waiters.len() == 1);
    let offset = |rig: &Rig| {
        rig.command(&["INFO", "replication"])
            .split("master_repl_offset:")
            .nth(1)
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned()
    };
    first.until("the replica has all data", || offset(&first) == offset(&second));
    second.command(&["REPLICAOF", "NO", "ONE"]);
    name.point_to(second.server.port());
    replicate_from(&first, &second.server);
    guard.release_blocking().unwrap();
    let next = waiting.join().unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(second.command(&["EXISTS", "lock:a"]), "1");
}

/// The connection breaks, and the host name leads to another server, which does not have the holds of the old one.
#[test]
fn a_hold_missing_on_the_new_server_is_reported_lost() {
    let (_first, second, name) = two_servers();
    let locks = locks_through(&name);
    let guard = locks.mutex("a").ttl(Duration::from_secs(3600)).blocking().acquire().unwrap();
    let token = guard.token();
    name.point_to(second.server.port());
    name.drop_connections();
    second.until("the loss is reported", || !guard.check());
    let next = acquire(&locks_through(&name), "a");
    assert!(next.token() > token, "{} after {token}", next.token());
    assert_eq!(guard.release_blocking().unwrap_err().kind(), leasehold_core::ErrorKind::Lost(Loss::Gone));
}
