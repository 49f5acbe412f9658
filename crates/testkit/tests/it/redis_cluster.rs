//! The private Redis Cluster.

use std::{thread::sleep, time::Duration};

use leasehold_testkit::server::{Proxy, RedisCluster, RedisClusterOptions, RedisFailover};

/// The limit is far longer than it should take, because the machine may be busy.
const LOOKS: usize = 1200;
const LOOK: Duration = Duration::from_millis(50);

#[test]
fn a_migrating_slot_has_keys_on_both_nodes() {
    let mut cluster = RedisCluster::start_with(calm(2, 0));
    let slot = cluster.slot("{name}");
    let from = cluster.owner(slot);
    let to = 1 - from;
    let keys = ["{name}1", "{name}2", "{name}3"];
    keys.iter().for_each(|key| drop(cluster.command(from, &["SET", key, "kept"])));
    cluster.open_slot(slot, to).unwrap();
    assert_eq!(cluster.move_keys(slot, 1), Ok(1));
    let [moved] = cluster.keys_in_slot(to, slot).try_into().unwrap();
    let stayed = cluster.keys_in_slot(from, slot);
    assert_eq!(stayed.len(), 2);
    let there = format!("{slot} 127.0.0.1:{}", cluster.ports()[to]);
    assert_eq!(cluster.answer(from, &["GET", &moved]), Err(format!("ASK {there}")));
    assert_eq!(cluster.asking(to, &["GET", &moved]), Ok(vec!["kept".to_owned()]));
    assert_eq!(cluster.command(from, &["GET", &stayed[0]]), ["kept"]);
    let both = ["MGET", &moved, &stayed[0]];
    assert!(cluster.answer(from, &both).unwrap_err().starts_with("TRYAGAIN"));
    assert!(cluster.asking(to, &both).unwrap_err().starts_with("TRYAGAIN"));
    assert!(cluster.close_slot(slot).unwrap_err().contains("still has {name}"));
    assert_eq!(cluster.owner(slot), from);
    assert_eq!(cluster.move_keys(slot, 10), Ok(2));
    cluster.close_slot(slot).unwrap();
    assert_eq!(cluster.owner(slot), to);
    assert_eq!(cluster.answer(from, &["GET", &moved]), Err(format!("MOVED {there}")));
    assert_eq!(cluster.keys_in_slot(to, slot).len(), 3);
    cluster.migrate_slot(slot, from).unwrap();
    assert_eq!(cluster.owner(slot), from);
    assert_eq!(cluster.command(from, &["GET", keys[0]]), ["kept"]);
    assert!(cluster.move_keys(slot, 1).unwrap_err().contains("is not open"));
}

#[test]
fn a_killed_master_is_replaced_and_returns_as_a_replica() {
    let mut cluster = RedisCluster::start_with(calm(3, 3));
    let slot = cluster.slot("name");
    let first = cluster.owner(slot);
    cluster.command(first, &["SET", "name", "kept"]);
    // `WAIT` on a connection that has written nothing would wait for nothing.
    assert!(happens(|| cluster.command(first + 3, &["DBSIZE"]) == ["1"]));
    cluster.kill(first);
    let second = cluster.owner(slot);
    assert_eq!(second, first + 3);
    cluster.wait_until_stable();
    assert_eq!(cluster.command(second, &["GET", "name"]), ["kept"]);
    cluster.restart(first);
    cluster.wait_until_stable();
    assert!(!cluster.is_master(first));
}

#[test]
fn a_replica_takes_over_with_and_without_agreement() {
    let mut cluster = RedisCluster::start_with(calm(3, 3));
    let slot = cluster.slot("name");
    let first = cluster.owner(slot);
    let second = first + 3;
    cluster.failover(second, RedisFailover::Plain).unwrap();
    assert!(happens(|| cluster.owner(slot) == second));
    cluster.wait_until_stable();
    cluster.failover(first, RedisFailover::Force).unwrap();
    assert!(happens(|| cluster.owner(slot) == first));
    cluster.wait_until_stable();
    // It is cut off from all others, so it gets no vote.
    cluster.cut(second);
    cluster.failover(second, RedisFailover::Takeover).unwrap();
    assert_eq!(cluster.owner(slot), first);
    assert_eq!(cluster.command(second, &["ROLE"])[0], "master");
    cluster.heal(second);
    assert!(happens(|| cluster.owner(slot) == second));
    cluster.wait_until_stable();
    assert!(!cluster.is_master(first));
    assert!(cluster.failover(second, RedisFailover::Plain).is_err(), "it is a master");
}

#[test]
fn a_partitioned_master_stops_serving_when_it_is_replaced() {
    let mut cluster = RedisCluster::start();
    let slot = cluster.slot("name");
    let first = cluster.owner(slot);
    cluster.cut(first);
    assert_ne!(cluster.owner(slot), first);
    assert!(happens(|| cluster
        .answer(first, &["SET", "name", "late"])
        .is_err_and(|error| error.starts_with("CLUSTERDOWN"))));
    cluster.heal(first);
    cluster.wait_until_stable();
}

#[test]
fn a_resumed_master_redirects_to_its_replacement() {
    let mut cluster = RedisCluster::start();
    let slot = cluster.slot("name");
    let first = cluster.owner(slot);
    cluster.pause(first);
    assert_ne!(cluster.owner(slot), first);
    cluster.resume(first);
    let moved = || cluster.answer(first, &["GET", "name"]).is_err_and(|error| error.starts_with("MOVED"));
    assert!(happens(moved));
}

#[test]
fn nodes_come_and_go() {
    let mut cluster = RedisCluster::start_with(calm(1, 0));
    let second = cluster.add();
    let replica = cluster.add_replica(0);
    assert_eq!((second, replica), (1, 2));
    let slot = cluster.slot("name");
    cluster.command(0, &["SET", "name", "kept"]);
    cluster.migrate_slot(slot, second).unwrap();
    assert_eq!(cluster.command(second, &["GET", "name"]), ["kept"]);
    cluster.migrate_slot(slot, 0).unwrap();
    cluster.forget(second);
    cluster.wait_until_stable();
    assert_eq!(cluster.command(0, &["CLUSTER", "NODES"]).len(), 2);
    assert!(!cluster.url().contains(&cluster.ports()[second].to_string()));
}

#[test]
fn a_slot_without_an_owner_stops_the_cluster() {
    let mut cluster = RedisCluster::start_with(calm(2, 0));
    let slot = cluster.slot("name");
    let owner = cluster.owner(slot);
    cluster.unassign_slot(slot);
    assert_eq!([0, 1].map(|node| cluster.owner_by(node, slot)), [None; 2]);
    let down =
        |node| cluster.answer(node, &["GET", "name"]).is_err_and(|error| error.starts_with("CLUSTERDOWN"));
    assert!(happens(|| down(0) && down(1)));
    cluster.assign_slot(slot, 1 - owner);
    cluster.wait_until_stable();
    assert_eq!(cluster.command(1 - owner, &["SET", "name", "new"]), ["OK"]);
}

#[test]
fn a_node_that_announces_another_address_stays_reachable() {
    let mut cluster = RedisCluster::start_with(calm(3, 3));
    let slot = cluster.slot("name");
    let owner = cluster.owner(slot);
    let asked = (owner + 1) % 3;
    let moved = |cluster: &RedisCluster| cluster.answer(asked, &["GET", "name"]).unwrap_err();
    cluster.announce_address(owner, "127.9.9.9");
    assert_eq!(moved(&cluster), format!("MOVED {slot} 127.9.9.9:{}", cluster.ports()[owner]));
    let address = Proxy::start(cluster.ports()[owner]);
    cluster.announce_port(owner, address.port());
    assert_eq!(moved(&cluster), format!("MOVED {slot} 127.9.9.9:{}", address.port()));
    cluster.announce_name(owner, "redis.example");
    assert_eq!(moved(&cluster), format!("MOVED {slot} redis.example:{}", address.port()));
    // Its replica reconnects to the announced address.
    cluster.command(owner, &["CLIENT", "KILL", "TYPE", "REPLICA"]);
    cluster.command(owner, &["SET", "name", "kept"]);
    assert_eq!(cluster.command(owner, &["WAIT", "1", "0"]), ["1"]);
    assert_eq!(cluster.owner(slot), owner);
}

#[test]
fn nodes_have_a_password_and_separate_clocks() {
    let options = RedisClusterOptions { password: Some("secret"), clocks: true, ..calm(2, 0) };
    let mut cluster = RedisCluster::start_with(options);
    assert!(cluster.url().starts_with("redis+cluster://:secret@127.0.0.1:"));
    let slot = cluster.slot("name");
    let from = cluster.owner(slot);
    cluster.command(from, &["SET", "name", "kept"]);
    cluster.migrate_slot(slot, 1 - from).unwrap();
    assert_eq!(cluster.command(1 - from, &["GET", "name"]), ["kept"]);
    let now = |node| cluster.command(node, &["TIME"])[0].parse::<u64>().unwrap();
    cluster.set_clock(1, 100_000);
    assert!(now(1) >= now(0) + 50_000);
}

#[test]
fn nothing_is_left_of_a_cluster_after_a_panic() {
    let cluster = RedisCluster::start_with(calm(2, 0));
    let ports = cluster.ports();
    let directories = ports
        .iter()
        .enumerate()
        .map(|(node, _)| cluster.command(node, &["CONFIG", "GET", "dir"]).pop().unwrap());
    let directories: Vec<_> = directories.collect();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        cluster.command(0, &["NO", "SUCH", "COMMAND"]);
    }));
    assert!(ended.is_err());
    assert!(ports.iter().all(|&port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()));
    assert!(directories.iter().all(|directory| !std::path::Path::new(directory).exists()));
}

/// Options with a long node timeout, so that a busy machine does not cause fail-overs.
fn calm(masters: usize, replicas: usize) -> RedisClusterOptions<'static> {
    let node_timeout = Duration::from_secs(5);
    RedisClusterOptions { masters, replicas, node_timeout, ..RedisClusterOptions::default() }
}

fn happens(it: impl Fn() -> bool) -> bool {
    (0..LOOKS).any(|look| {
        sleep(LOOK * u32::from(look > 0));
        it()
    })
}
