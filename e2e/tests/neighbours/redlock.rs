//! Redlocks of other packages on three independent Redis masters: leasehold and each package exclude each other, even
//! when a holder is killed.

use std::{path::Path, process::Command};

use leasehold::Locks;
use leasehold_testkit::server::RedisServer;

use crate::{
    go,
    groups::{Contest, ROUNDS, SIDES, ServerFault, expect_no_overlap, joined},
    packages::Neighbour,
    turns,
};

/// The number of programs of each side, and of sections of each program.
const OF_EACH: usize = 2;
const SECTIONS: usize = 15;
/// How many seconds the clocks of the nodes are ahead, so that each node seems to be old enough for a vote.
const AGE: i64 = 1_000_000;
/// The ttl of a holder that is killed, in milliseconds.
const LEASE: &str = "3000";

fn nodes() -> Vec<RedisServer> {
    let nodes: Vec<_> = (0..3).map(|_| RedisServer::with_clock(&[])).collect();
    for node in &nodes {
        node.set_clock(AGE);
        node.command(&["SET", "leasehold:{}B", "1 1000"]);
    }
    nodes
}

fn ports(nodes: &[RedisServer]) -> String {
    joined(&nodes.iter().map(RedisServer::port).collect::<Vec<_>>())
}

fn url(nodes: &[RedisServer], prefix: &str) -> String {
    let nodes: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redlock://{}?prefix={prefix}", nodes.join(","))
}

fn locks(nodes: &[RedisServer], prefix: &str) -> Locks {
    Locks::connect(&url(nodes, prefix)).unwrap()
}

fn theirs(kind: &str, what: &str, nodes: &[RedisServer], number: &str) -> Neighbour {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/neighbours");
    let (program, script) = if kind.starts_with("redlock-") || kind == "pottery" {
        ("python3", "masters.py")
    } else {
        ("node", "masters.cjs")
    };
    let mut command = Command::new(program);
    command.arg(folder.join(script)).args([what, kind, &ports(nodes), "shared", number]);
    Neighbour::run(command)
}

fn exclude_each_other(kind: &str, prefix: &str) {
    let nodes = nodes();
    let ours = locks(&nodes, prefix);
    let request = ours.mutex("shared").blocking();
    // A holder of the other package is killed, and our claim waits for the end of its lease.
    let mut holder = theirs(kind, "hold", &nodes, LEASE);
    assert_eq!(holder.first_line(), "held");
    assert!(request.try_acquire().unwrap_err().is_taken());
    drop(holder);
    let guard = request.acquire().unwrap();
    let mut other = theirs(kind, "try", &nodes, LEASE);
    assert_eq!(other.first_line(), "taken");
    other.finish();
    guard.release_blocking().unwrap();
    take_turns(kind, prefix, &nodes);
}

fn take_turns(kind: &str, prefix: &str, nodes: &[RedisServer]) {
    let others = (0..OF_EACH).map(|_| theirs(kind, "turns", nodes, &SECTIONS.to_string())).collect();
    let ours: Vec<_> = (0..OF_EACH).map(|_| locks(nodes, prefix)).collect();
    turns::take_turns(&nodes[0], (&ours, |locks| locks.mutex("shared")), others, SECTIONS);
}

#[test]
fn npm_redlock_4_on_three_masters() {
    exclude_each_other("redlock4", "lock:");
}

#[test]
fn npm_redlock_5_on_three_masters() {
    exclude_each_other("redlock5", "lock:");
}

#[test]
fn redlock_py() {
    exclude_each_other("redlock-py", "lock:");
}

#[test]
fn pottery() {
    exclude_each_other("pottery", "redlock:");
}

/// Holders are killed, and a node hangs while a program of each side holds.
#[test]
fn redsync() {
    let mut nodes = nodes();
    let servers = ports(&nodes);
    let mut other = go::MASTERS.start(&["hold", &servers, "lock:shared", LEASE]);
    assert_eq!(other.first_line(), "held");
    let ours = locks(&nodes, "lock:");
    assert!(ours.mutex("shared").blocking().try_acquire().unwrap_err().is_taken());
    other.finish();
    let guard = ours.mutex("shared").blocking().acquire().unwrap();
    let mut other = go::MASTERS.start(&["try", &servers, "lock:shared", LEASE]);
    assert_eq!(other.first_line(), "taken");
    other.finish();
    guard.release_blocking().unwrap();

    let dir = tempfile::tempdir().unwrap();
    let theirs = go::MASTERS.command_line(&["until", &servers, "lock:shared"]);
    let mut contest = Contest::of(dir.path(), &url(&nodes, "lock:"), theirs);
    for at in 0..ROUNDS {
        // Another node in each round.
        let hangs: ServerFault<Vec<RedisServer>> = ServerFault {
            begin: if at == 0 { |nodes| pause(nodes, 0) } else { |nodes| pause(nodes, 2) },
            end: |nodes, node| nodes[node].resume(),
            loses: false,
        };
        for side in SIDES {
            contest.kill(side);
            contest.inject(side, &mut nodes, &hangs);
        }
    }
    expect_no_overlap(&contest.finish("redsync, three masters"));
}

fn pause(nodes: &mut [RedisServer], node: usize) -> usize {
    nodes[node].pause();
    node
}
