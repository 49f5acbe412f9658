//! Addresses of the nodes of a Redis Cluster: seeds, announced addresses, address maps, and servers of another kind.

use std::time::Duration;

use leasehold_core::{Engine, ErrorKind, Fault, How, Inspect};
use leasehold_redis::{AddressMap, Config, RedisEngine};
use leasehold_testkit::server::{Proxy, RedisServer};

use crate::{
    cluster_rig::{ClusterRig, granted},
    rig::{PATIENCE, Rig, acquire, local},
};

#[test]
fn a_standalone_server_is_refused_with_its_correct_url() {
    let server = RedisServer::start(&[]);
    let config = Config::cluster(vec![local(server.port())]);
    let engine = std::sync::Arc::new(RedisEngine::new(config, &leasehold_core::Env::system()));
    let locks = leasehold_core::Locks::builder(engine).build();
    let error = locks.mutex("a").blocking().acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains(&format!("redis://127.0.0.1:{}", server.port())), "{error}");
}

#[test]
fn one_reachable_seed_is_enough() {
    let mut rig = ClusterRig::with(3, 0, &[]);
    let port = rig.cluster().ports()[1];
    // Nothing listens at the first and the last address.
    rig.config = Config::cluster(vec![local(1), local(port), local(2)]);
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    let mut unreachable = ClusterRig::with(1, 0, &[]);
    unreachable.config = Config::cluster(vec![local(1), local(2)]).connect_timeout(Duration::from_secs(1));
    let error = unreachable.locks().mutex("a").blocking().acquire_within(PATIENCE).unwrap_err();
    assert!(error.to_string().contains("cannot connect to 127.0.0.1"), "{error}");
}

/// A client connects to the nodes that own slots, and uses one connection for each.
#[test]
fn each_needed_node_gets_exactly_one_connection() {
    let rig = ClusterRig::with(3, 3, &[]);
    let locks = rig.locks();
    let our_connections = |node: usize| {
        let clients = rig.cluster().command(node, &["CLIENT", "LIST"]);
        clients.iter().filter(|line| line.contains("lib-name=leasehold")).count()
    };
    let version = rig.cluster().command(0, &["INFO", "server"]);
    let names_libraries = version
        .iter()
        .find_map(|line| line.strip_prefix("redis_version:"))
        .is_some_and(|version| version.trim() >= "7.2");
    for number in 0..100 {
        acquire(&locks, &format!("n{number}")).release_blocking().unwrap();
    }
    let subscribed = |node: usize| {
        let channels = rig.cluster().command(node, &["PUBSUB", "CHANNELS", "leasehold:news:*"]);
        channels.iter().filter(|line| !line.is_empty()).count()
    };
    for node in 0..6 {
        let expected = usize::from(node < 3);
        assert_eq!(subscribed(node), expected, "node {node}");
        assert!(!names_libraries || our_connections(node) == expected, "node {node}");
    }
}

/// A client subscribes to one channel for each slot with a waiter, and to no channel while no claim waits.
#[test]
fn a_slot_is_subscribed_to_once_and_only_for_waiters() {
    let rig = ClusterRig::with(3, 0, &[]);
    let channels = || {
        let masters = rig.masters();
        let cluster = rig.cluster();
        let all = masters.iter().flat_map(|&node| cluster.command(node, &["PUBSUB", "SHARDCHANNELS"]));
        all.filter(|line| !line.is_empty()).count()
    };
    let (locks, other) = (rig.locks(), rig.locks());
    let guards: Vec<_> = (0..4).map(|number| acquire(&locks, &format!("{{x}}{number}"))).collect();
    assert_eq!(channels(), 0);
    let waiting: Vec<_> = (0..4)
        .map(|number| rig.runtime().spawn(other.mutex(format!("{{x}}{number}")).acquire_within(PATIENCE)))
        .collect();
    rig.until("they wait", || (0..4).all(|number| rig.show(&format!("{{x}}{number}")).waiters.len() == 1));
    assert_eq!(channels(), 1);
    for guard in guards {
        guard.release_blocking().unwrap();
    }
    for waited in waiting {
        rig.run(waited).unwrap().unwrap().release_blocking().unwrap();
    }
    drop((locks, other));
    rig.until("no client is subscribed any more", || channels() == 0);
}

/// A node may announce a host name, no name, or an unknown endpoint.
#[test]
fn nodes_are_found_with_and_without_announced_host_names() {
    let mut rig = ClusterRig::with(2, 0, &[]);
    let first = rig.cluster().ports()[0];
    rig.config = Config::cluster(vec![local(first)]);
    rig.cluster().announce_name(1, "localhost");
    let names: Vec<_> = (0..40).map(|number| format!("n{number}")).collect();
    let of_node = |node: usize| names.iter().find(|name| rig.slot_and_nodes(name).1 == node).unwrap();
    // Node 1 announces the host name localhost; node 0 has no name, so the other nodes report its host as "?".
    acquire(&rig.locks(), of_node(1)).release_blocking().unwrap();
    let second_node_only = Config::cluster(vec![local(rig.cluster().ports()[1])]);
    let locks = |config: Config| {
        let engine = std::sync::Arc::new(RedisEngine::new(config, &leasehold_core::Env::system()));
        leasehold_core::Locks::builder(engine).build()
    };
    acquire(&locks(second_node_only.clone()), of_node(1)).release_blocking().unwrap();
    let error = locks(second_node_only.clone()).mutex(of_node(0)).blocking().try_acquire().unwrap_err();
    assert!(error.to_string().contains("cluster-announce-hostname"), "{error}");
    // No node announces a host: clients use the host of the node that answered.
    for node in 0..2 {
        rig.cluster()
            .command(node, &["CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"]);
    }
    for node in 0..2 {
        acquire(&locks(second_node_only.clone()), of_node(node)).release_blocking().unwrap();
    }
    // A redirection names no host of its target either.
    let engine = rig.engine();
    rig.run(async {
        let name = of_node(0);
        let (slot, _, to) = rig.slot_and_nodes(name);
        let grant = granted(&engine, &rig.claim(name)).await;
        rig.cluster().migrate_slot(slot, to).unwrap();
        let answer = engine.claim(&rig.claim(name), How::Create).await.unwrap();
        assert!(matches!(answer, leasehold_core::Answer::Waiting(_)), "{answer:?} beside {grant:?}");
    });
}

/// As behind address translation: the announced addresses are unreachable from the client.
#[test]
fn an_address_map_replaces_unreachable_announced_addresses() {
    let mut rig = ClusterRig::with(3, 0, &[]);
    let ports = rig.cluster().ports();
    let proxies: Vec<_> = ports.iter().map(|&port| Proxy::start(port)).collect();
    for (node, proxy) in proxies.iter().enumerate() {
        rig.cluster().announce_address(node, "127.9.9.9");
        rig.cluster().announce_port(node, proxy.port());
    }
    let seeds = vec![local(ports[0])];
    rig.config = Config::cluster(seeds.clone()).connect_timeout(Duration::from_secs(2));
    let error = rig.locks().mutex("a").blocking().acquire_within(PATIENCE).unwrap_err();
    assert!(error.to_string().contains("127.9.9.9") && error.to_string().contains("map"), "{error}");
    let pairs = proxies.iter().map(|proxy| format!("127.9.9.9:{}=127.0.0.1:{}", proxy.port(), proxy.port()));
    let map = AddressMap::parse(&pairs.collect::<Vec<_>>().join(",")).unwrap();
    rig.config = Config::cluster(seeds).map(map);
    let locks = rig.locks();
    for number in 0..20 {
        acquire(&locks, &format!("n{number}")).release_blocking().unwrap();
    }
}

#[test]
fn a_slot_without_an_owner_is_an_error_until_it_has_one() {
    let rig = ClusterRig::with(2, 0, &[]);
    let (slot, owner, _) = rig.slot_and_nodes("a");
    let engine = rig.engine();
    rig.run(async {
        Inspect::ping(&*engine).await.unwrap();
        rig.cluster().unassign_slot(slot);
        for engine in [std::sync::Arc::clone(&engine), rig.engine()] {
            let error = engine.claim(&rig.claim("a"), How::Create).await.unwrap_err();
            assert_eq!(error.fault, Fault::Retry, "{error:?}");
            assert!(error.message.contains("CLUSTER"), "{error:?}");
        }
        rig.cluster().assign_slot(slot, 1 - owner);
        rig.cluster().wait_until_stable();
        granted(&engine, &rig.claim("a")).await;
    });
}

/// Half of the masters are dead, so the other half is no majority.
#[test]
fn a_cluster_without_a_majority_refuses_claims() {
    let rig = ClusterRig::with(4, 0, &[]);
    let engine = rig.engine();
    let name =
        (0..40).map(|number| format!("n{number}")).find(|name| rig.slot_and_nodes(name).1 == 3).unwrap();
    rig.run(async {
        granted(&engine, &rig.claim(&name)).await;
        rig.cluster().kill(0);
        rig.cluster().kill(1);
        rig.until("the other nodes report CLUSTERDOWN", || {
            rig.cluster().answer(3, &["GET", "lock:x"]).is_err_and(|answer| answer.starts_with("CLUSTERDOWN"))
        });
        let error = engine.claim(&rig.claim(&name), How::Create).await.unwrap_err();
        assert_eq!(error.fault, Fault::Retry, "{error:?}");
        rig.cluster().restart(0);
        rig.cluster().restart(1);
        rig.cluster().wait_until_stable();
        assert!(engine.claim(&rig.claim(&name), How::Create).await.is_ok());
    });
}

#[test]
fn nodes_come_and_go() {
    let rig = ClusterRig::with(2, 0, &[]);
    let (slot, from, _) = rig.slot_and_nodes("{x}");
    let engine = rig.engine();
    let locks = rig.locks();
    let guard = acquire(&locks, "{x}held");
    rig.run(async {
        let grant = granted(&engine, &rig.claim("{x}")).await;
        let new = rig.cluster().add();
        rig.cluster().migrate_slot(slot, new).unwrap();
        let answer = engine.claim(&rig.claim("{x}"), How::Create).await;
        assert!(matches!(answer, Ok(leasehold_core::Answer::Waiting(_))), "{answer:?} beside {grant:?}");
        rig.cluster().migrate_slot(slot, from).unwrap();
        rig.cluster().forget(new);
        rig.cluster().wait_until_stable();
        let answer = engine.claim(&rig.claim("{x}"), How::Create).await;
        assert!(matches!(answer, Ok(leasehold_core::Answer::Waiting(_))), "{answer:?}");
        Inspect::list(&*engine, "").await.unwrap();
    });
    assert!(guard.check());
    rig.run(guard.confirm()).unwrap();
}

#[test]
fn operators_can_list_and_break_holds_of_all_nodes() {
    let rig = ClusterRig::with(3, 0, &[]);
    let locks = rig.locks();
    let guards: Vec<_> = (0..30).map(|number| acquire(&locks, &format!("n{number}"))).collect();
    rig.run(async {
        let engine = rig.engine();
        Inspect::ping(&*engine).await.unwrap();
        let all = Inspect::list(&*engine, "").await.unwrap();
        assert_eq!(all.len(), 30);
        for (number, guard) in guards.iter().enumerate() {
            let name = leasehold_core::Name::new(&format!("n{number}")).unwrap();
            let broken = Inspect::break_hold(&*engine, &name, guard.token().number, true).await.unwrap();
            assert_eq!(broken, leasehold_core::Broken::Done);
        }
        assert!(Inspect::list(&*engine, "").await.unwrap().is_empty());
        let promised = Inspect::guarantee(&*engine).await.unwrap();
        assert_eq!(promised.level, leasehold_core::Level::BestEffort);
        assert!(promised.to_string().contains("fail-over"), "{promised}");
    });
}

#[test]
fn a_cluster_node_is_refused_by_a_plain_url() {
    let rig = ClusterRig::with(2, 0, &[]);
    let port = rig.cluster().ports()[0];
    let mut one = Rig::new();
    one.config = Config::new(leasehold_redis::Address::Tcp(local(port)));
    let error = one.locks().mutex("a").blocking().acquire_within(PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}
