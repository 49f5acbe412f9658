//! Features of the ZooKeeper engine only.
#![cfg(all(feature = "zookeeper", feature = "memory"))]

use leasehold::{Locks, ZookeeperCheck};
use leasehold_testkit::server::ZookeeperServer;

#[test]
fn the_check_of_a_hold_is_its_node_below_the_chroot() {
    let server = ZookeeperServer::start(&[]);
    server.command(&["create", "/apps"]);
    let locks = Locks::connect(&format!("{}/apps", server.url())).unwrap();
    let guard = locks.mutex("a").blocking().acquire().unwrap();
    let ZookeeperCheck { path, version, .. } = locks.zookeeper_check(&guard).unwrap();
    assert!(path.starts_with("/locks/a/"), "{path}");
    let stat = server.command(&["stat", &format!("/apps{path}")]);
    assert!(stat.contains(&format!("dataVersion = {version}")), "{stat:?}");
    let elsewhere = Locks::connect("memory:").unwrap();
    assert!(elsewhere.zookeeper_check(&guard).is_none(), "on another engine");
    guard.release_blocking().unwrap();
}

#[test]
fn the_layout_of_leader_latches_is_an_option() {
    let locks = Locks::connect("zookeeper://h?layout=latch").unwrap();
    let profile = locks.profile();
    assert_eq!((profile.modes, profile.breaking), (leasehold::Modes::Exclusive, leasehold::Breaking::Force));
    assert_eq!(profile.no_memos, None);
}

#[test]
fn the_directory_of_a_plain_lock_is_an_option() {
    for options in ["layout=plain", "layout=plain&prefix=/apps", "layout=plain&path=/apps/orders"] {
        let locks = Locks::connect(&format!("zookeeper://h?{options}")).unwrap();
        assert_eq!(locks.profile().modes, leasehold::Modes::Exclusive, "{options}");
    }
    for (options, part) in [
        ("path=/orders", "needs layout=plain"),
        ("layout=mutex&path=/orders", "needs layout=plain"),
        ("layout=plain&path=/orders&prefix=/apps", "no prefix="),
        ("layout=plain&path=/", "must be a path"),
        ("layout=plain&path=orders", "must be a path"),
        ("layout=plain&path=/zookeeper/x", "outside of /zookeeper"),
        ("layout=latch&path=/orders", "needs layout=plain"),
        ("layout=hunter2", "rw, latch and plain are known"),
    ] {
        let error = Locks::connect(&format!("zookeeper://h?{options}")).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains(part), "{options}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
