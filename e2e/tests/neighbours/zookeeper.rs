//! A program in Go that locks on ZooKeeper by a recipe written by hand, and leasehold, on one directory.

use std::path::Path;

use leasehold::Locks;
use leasehold_testkit::server::ZookeeperServer;

use crate::{
    go::ZOOKEEPER_BY_HAND,
    groups::{Contest, ROUNDS, SIDES, expect_no_overlap},
    packages::Neighbour,
};

/// The session timeout of a program that holds or tries once, in milliseconds.
const TTL: &str = "8000";

fn address(server: &ZookeeperServer) -> String {
    format!("127.0.0.1:{}", server.port())
}

fn theirs(server: &ZookeeperServer, what: &str, path: &str) -> Neighbour {
    ZOOKEEPER_BY_HAND.start(&[what, &address(server), path, TTL])
}

/// Programs of both sides take turns on the directory at `path`, and holders of both sides are killed.
fn kill_holders(options: &str, path: &str) {
    let server = ZookeeperServer::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let url = format!("{}?layout=plain{options}", server.url());
    let theirs = ZOOKEEPER_BY_HAND.command_line(&["until", &address(&server), path]);
    let mut contest = Contest::of(Path::new(dir.path()), &url, theirs);
    for _ in 0..ROUNDS {
        SIDES.iter().for_each(|side| contest.kill(side));
    }
    expect_no_overlap(&contest.finish(&format!("by hand, layout=plain{options}")));
}

#[test]
fn a_directory_for_each_name() {
    kill_holders("", "/locks/shared");
}

#[test]
fn a_directory_that_is_the_lock() {
    kill_holders("&path=/shared", "/shared");
}

/// In both layouts each program sees the holds of the other one. Only with `layout=plain` may both wait.
#[test]
fn each_program_sees_the_holds_of_the_other() {
    let server = ZookeeperServer::start(&[]);
    for (options, shows) in [("", "unknown kind"), ("?layout=plain", "another program")] {
        let locks = Locks::connect(&format!("{}{options}", server.url())).unwrap();
        let request = locks.mutex("shared").blocking();
        let mut holder = theirs(&server, "hold", "/locks/shared");
        assert_eq!(holder.first_line(), "held", "{options}");
        assert!(request.try_acquire().unwrap_err().is_taken(), "{options}");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let view = runtime.block_on(locks.show("shared")).unwrap();
        assert_eq!(view.holders[0].owner, shows, "{options}");
        holder.finish();
        let guard = request.acquire().unwrap();
        let mut other = theirs(&server, "try", "/locks/shared");
        assert_eq!(other.first_line(), "taken", "{options}");
        other.finish();
        guard.release_blocking().unwrap();
        let mut other = theirs(&server, "try", "/locks/shared");
        assert_eq!(other.first_line(), "held", "{options}");
        other.finish();
    }
}
