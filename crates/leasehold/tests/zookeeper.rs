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
