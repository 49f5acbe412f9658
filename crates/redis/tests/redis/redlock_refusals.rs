//! Servers that cannot be nodes of a Redlock, and a Redlock with some unusable nodes.

use leasehold_core::{Claim, Engine, EngineError, Env, Fault, How, Locks};
use leasehold_redis::{RedlockConfig, RedlockEngine};
use leasehold_testkit::server::RedisServer;

use crate::{
    cluster_rig::ClusterRig,
    conformance::{PASSWORD, has_rights_on_channels, without_channel_rights},
    redlock_rig::{RedlockRig, config_of_port},
    rig::{acquire, claim_of},
};

fn refused(rig: &RedlockRig, ports: &[u16]) -> EngineError {
    let config = RedlockConfig::new(ports.iter().map(|port| config_of_port(*port)).collect()).unwrap();
    let engine = RedlockEngine::new(config, &Env::system());
    rig.run(async { engine.claim(&claim_of("a"), How::Create).await.unwrap_err() })
}

#[test]
fn two_names_for_one_server_are_refused() {
    let rig = RedlockRig::new(3);
    let config_at_host = |host: &str, port| {
        leasehold_redis::Config::new(leasehold_redis::Address::Tcp(leasehold_core::Endpoint {
            host: host.to_owned(),
            port,
        }))
    };
    let (one, other) = (rig.nodes[0].port(), rig.nodes[1].port());
    let nodes = vec![
        config_at_host("127.0.0.1", one),
        config_at_host("localhost", one),
        config_at_host("127.0.0.1", other),
    ];
    let engine = RedlockEngine::new(RedlockConfig::new(nodes).unwrap(), &Env::system());
    let error = rig.run(async { engine.claim(&claim_of("a"), How::Create).await.unwrap_err() });
    assert_eq!(error.fault, Fault::Misconfigured);
    assert!(error.message.contains("lead to one server"), "{error:?}");
    assert_eq!(rig.command_all(&["EXISTS", "lock:a"])[1], "0");
}

#[test]
fn a_replica_and_a_cluster_node_are_refused() {
    let rig = RedlockRig::new(3);
    let ports: Vec<_> = rig.nodes.iter().map(RedisServer::port).collect();
    let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &ports[0].to_string()]);
    let error = refused(&rig, &[ports[0], ports[1], replica.port()]);
    assert_eq!(error.fault, Fault::Misconfigured);
    assert!(error.message.contains("is a replica"), "{error:?}");
    let cluster = ClusterRig::with(1, 0, &[]);
    let error = refused(&rig, &[ports[0], ports[1], cluster.cluster().ports()[0]]);
    assert_eq!(error.fault, Fault::Misconfigured);
    assert!(error.message.contains("redis+cluster://"), "{error:?}");
}

#[test]
fn each_node_may_have_its_own_credentials() {
    let mut rig = RedlockRig::new(3);
    for (node, password) in rig.nodes.iter().zip(["one", "two", "three"]) {
        node.command(&["CONFIG", "SET", "requirepass", password]);
    }
    let url = |passwords: [&str; 3]| {
        let nodes = rig.nodes.iter().zip(passwords);
        let nodes: Vec<_> =
            nodes.map(|(node, password)| format!(":{password}@127.0.0.1:{}", node.port())).collect();
        RedlockConfig::from_url(&format!("//{}", nodes.join(","))).unwrap()
    };
    let (right, one_wrong, two_wrong) =
        (url(["one", "two", "three"]), url(["one", "two", "two"]), url(["one", "one", "one"]));
    rig.config = right;
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    // A minority of nodes that refuse the login does no harm.
    rig.config = one_wrong;
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    rig.config = two_wrong;
    let error = rig.locks().mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_denied(), "{error}");
    let port = rig.nodes[1].port().to_string();
    assert!(error.to_string().contains(&port), "the error names the node: {error}");
}

#[test]
fn a_read_only_minority_is_tolerated_and_a_majority_is_an_error() {
    let rig = RedlockRig::new(3);
    let locks = rig.locks();
    let full: [&[&str]; 2] = [&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]];
    let closed: [&[&str]; 2] =
        [&["CONFIG", "SET", "min-replicas-to-write", "1"], &["CONFIG", "SET", "min-replicas-to-write", "0"]];
    for [break_node, repair] in [full, closed] {
        rig.nodes[0].command(break_node);
        let guard = acquire(&locks, "a");
        rig.run(guard.confirm()).unwrap();
        guard.release_blocking().unwrap();
        rig.nodes[1].command(break_node);
        let error = locks.mutex("a").blocking().try_acquire().unwrap_err();
        assert!(error.is_refused(), "{error}");
        rig.nodes[..2].iter().for_each(|node| drop(node.command(repair)));
        rig.until("they heal", || locks.mutex("a").blocking().try_acquire().is_ok());
    }
}

/// An operator may turn nodes into replicas, which refuse writes.
#[test]
fn a_demoted_minority_is_tolerated_and_a_majority_is_an_error() {
    let rig = RedlockRig::new(3);
    let locks = rig.locks();
    let held = acquire(&locks, "held");
    // A node that is made a replica of an unreachable server keeps its data.
    let break_node = |node: usize| drop(rig.nodes[node].command(&["REPLICAOF", "127.0.0.1", "1"]));
    break_node(0);
    let guard = acquire(&locks, "a");
    rig.run(guard.confirm()).unwrap();
    guard.release_blocking().unwrap();
    break_node(1);
    let error = locks.mutex("a").blocking().try_acquire().unwrap_err();
    assert!(!error.is_taken() && error.to_string().contains("replica"), "{error}");
    assert!(held.check(), "its lease has not ended");
    rig.nodes[..2].iter().for_each(|node| drop(node.command(&["REPLICAOF", "NO", "ONE"])));
    rig.until("they are masters again", || locks.mutex("a").blocking().try_acquire().is_ok());
    rig.run(held.confirm()).unwrap();
    held.release_blocking().unwrap();
}

#[test]
fn a_foreign_type_is_an_error_and_a_foreign_string_a_holder() {
    let rig = RedlockRig::new(3);
    let locks = rig.locks();
    rig.command_all(&["HSET", "lock:hash", "field", "1"]);
    let error = locks.mutex("hash").blocking().try_acquire().unwrap_err();
    assert!(
        error.is_misconfigured() && error.to_string().contains("a value that is not a string"),
        "{error}"
    );
    assert!(rig.command_all(&["HGET", "lock:hash", "field"]).iter().all(|value| value == "1"));
    for (name, value) in [("theirs", "x"), ("empty", "")] {
        rig.command_all(&["SET", &format!("lock:{name}"), value]);
        let error = locks.mutex(name).blocking().try_acquire().unwrap_err();
        assert!(error.is_taken(), "{error}");
        assert!(rig.command_all(&["GET", &format!("lock:{name}")]).iter().all(|stored| stored == value));
    }
    let view = rig.show("theirs");
    assert!(view.holders[0].foreign && view.holders[0].token.is_none(), "{view:?}");
    assert!(view.holders[0].remaining.is_none(), "no expiry: {view:?}");
    // A foreign key on one node does not keep the majority from granting.
    rig.nodes[0].command(&["SET", "lock:one", "x"]);
    acquire(&locks, "one").release_blocking().unwrap();
    assert_eq!(rig.command_all(&["GET", "lock:one"])[0], "x");
}

#[test]
fn a_ttl_over_the_maximum_is_refused() {
    let rig = RedlockRig::new(3);
    let error =
        rig.locks().mutex("a").ttl(std::time::Duration::from_secs(61)).blocking().try_acquire().unwrap_err();
    assert!(error.to_string().contains("100ms to 1m"), "{error}");
    let engine = rig.engine();
    let claim = Claim { ttl: std::time::Duration::from_secs(61), ..claim_of("a") };
    let error = rig.run(async { engine.claim(&claim, How::Create).await.unwrap_err() });
    assert!(error.message.contains("max_ttl"), "{error:?}");
}

/// The engine needs INFO to know when a node was started.
#[test]
fn a_user_without_the_right_to_info_is_denied() {
    let mut rig = RedlockRig::new(3);
    rig.command_all(&["ACL", "SETUSER", "blind", "on", "nopass", "~*", "&*", "+@all", "-info"]);
    let config = rig.config.clone();
    rig.config = config.each(|node| Ok(node.login("blind", "x"))).unwrap();
    let error = rig.locks().mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("INFO"), "{error}");
}

#[test]
fn new_nodes_have_no_vote_for_the_longest_lease() {
    let nodes: Vec<_> = (0..3).map(|_| RedisServer::start(&[])).collect();
    let config = RedlockConfig::new(nodes.iter().map(|node| config_of_port(node.port())).collect()).unwrap();
    let locks = Locks::builder(std::sync::Arc::new(RedlockEngine::new(
        config.max_ttl(std::time::Duration::from_secs(1)).unwrap(),
        &Env::system(),
    )))
    .build();
    let lock = || locks.mutex("a").ttl(std::time::Duration::from_secs(1)).blocking();
    let error = lock().try_acquire().unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("has no vote for"), "{error}");
    // A claim that waits is granted when enough nodes have a vote.
    lock().acquire_within(crate::rig::PATIENCE).unwrap().release_blocking().unwrap();
}

/// The users with the documented rights: see docs/engines/redlock.md.
const USERS: &str = include_str!("../../../../docs/engines/redlock.acl");

#[test]
fn the_documented_rights_suffice() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.acl");
    let users = format!("user default on nopass ~* &* +@all\n{}", USERS.replace("CHANGE-ME", PASSWORD));
    let users = if has_rights_on_channels() { users } else { without_channel_rights(&users) };
    std::fs::write(&file, users).unwrap();
    let mut rig = RedlockRig::with(3, &["--aclfile", file.to_str().unwrap()]);
    let config = rig.config.clone();
    rig.config = config.each(|node| Ok(node.login("leasehold", PASSWORD))).unwrap();
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    rig.run(guard.confirm()).unwrap();
    let waiting = std::thread::spawn(move || acquire(&other, "a"));
    rig.until("it waits", || !rig.show("a").waiters.is_empty());
    assert_eq!(rig.run(locks.list("")).unwrap().len(), 1);
    rig.run(locks.guarantee()).unwrap();
    guard.release_blocking().unwrap();
    let token = waiting.join().unwrap();
    let broken = rig.run(locks.break_hold("a", token.token().number, true)).unwrap();
    assert_eq!(broken, leasehold_core::Broken::Done);
}
