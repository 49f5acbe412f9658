//! Redisson and leasehold with `layout=redisson` share names.

use std::{path::Path, thread::spawn, time::Duration};

use leasehold::{Locks, Request};
use leasehold_testkit::server::{RedisCluster, RedisSentinels, RedisServer};

use crate::{
    groups::{Contest, ROUNDS, SIDES, ServerFault, expect_no_overlap, joined, move_slot},
    java, turns,
};

const KEY: &str = "lock:shared";
/// The number of programs of each side, and of sections of each program.
const OF_EACH: usize = 2;
const SECTIONS: usize = 40;
/// A ttl that outlasts the test. Without a message a waiter of Redisson sleeps for this time.
const LONG: Duration = Duration::from_secs(3600);

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}?layout=redisson")
}

fn locks(server: &RedisServer) -> Locks {
    Locks::connect(&url(server.port())).unwrap()
}

/// Programs of both sides share a lock: no sections overlap, and all programs end.
fn take_turns(kind: &str, ours: fn(&Locks) -> Request) {
    let server = RedisServer::start(&[]);
    let port = server.port().to_string();
    let sections = SECTIONS.to_string();
    let theirs = (0..OF_EACH).map(|_| java::start(&["turns", kind, &port, KEY, &sections])).collect();
    // Each thread has its own client, like a separate process.
    let clients: Vec<_> = (0..OF_EACH).map(|_| locks(&server)).collect();
    turns::take_turns(&server, (&clients, ours), theirs, SECTIONS);
}

#[test]
fn r_lock() {
    take_turns("lock", |locks| locks.mutex("shared"));
}

#[test]
fn spin_lock() {
    take_turns("spin", |locks| locks.mutex("shared"));
}

#[test]
fn fenced_lock() {
    take_turns("fenced", |locks| locks.mutex("shared"));
}

#[test]
fn fair_lock() {
    take_turns("fair", |locks| locks.mutex("shared"));
}

#[test]
fn write_lock() {
    take_turns("write", |locks| locks.rw("shared").write());
}

/// Each kind of lock of Redisson, with each kind of ours.
#[test]
fn each_program_sees_the_holds_of_the_other_and_readers_share() {
    let server = RedisServer::start(&[]);
    let port = server.port().to_string();
    let locks = locks(&server);
    let ours = [
        locks.mutex("shared"),
        locks.rw("shared").write(),
        locks.rw("shared").read(),
        locks.semaphore("shared", 2),
    ];
    for kind in ["lock", "spin", "fenced", "fair", "write", "read"] {
        let mut theirs = java::start(&["hold", kind, &port, KEY]);
        assert_eq!(theirs.first_line(), "held", "{kind}");
        for (at, request) in ours.iter().enumerate() {
            let got = request.blocking().try_acquire();
            assert_eq!(got.is_ok(), kind == "read" && at == 2, "{kind}, {at}: {:?}", got.err());
        }
        theirs.finish();
        for (at, request) in ours.iter().enumerate() {
            let guard = request.blocking().acquire().unwrap();
            let mut theirs = java::start(&["hold", kind, &port, KEY]);
            let shares = kind == "read" && at == 2;
            assert_eq!(theirs.first_line(), if shares { "held" } else { "taken" }, "{kind}, {at}");
            theirs.finish();
            assert!(guard.check(), "{kind}, {at}");
            guard.release_blocking().unwrap();
        }
    }
    assert_eq!(server.command(&["EXISTS", KEY]), ["0"]);
}

/// A message wakes the waiters of Redisson, which otherwise sleep until the end of the lease that they saw.
#[test]
fn a_release_wakes_the_waiters_of_the_other_program() {
    let server = RedisServer::start(&[]);
    let port = server.port().to_string();
    let locks = locks(&server);
    for kind in ["lock", "fenced", "fair", "write", "read"] {
        let guard = locks.mutex("shared").ttl(LONG).blocking().acquire().unwrap();
        let theirs = java::start(&["turns", kind, &port, KEY, "1"]);
        let listens = || {
            let fair = server.command(&["EXISTS", "redisson_lock_queue:{lock:shared}"]) == ["1"];
            fair || server.command(&["PUBSUB", "CHANNELS", "redisson_*"]).iter().any(|line| !line.is_empty())
        };
        while !listens() {
            std::thread::sleep(Duration::from_millis(20));
        }
        guard.release_blocking().unwrap();
        theirs.finish();
        let mut theirs = java::start(&["hold", kind, &port, KEY]);
        assert_eq!(theirs.first_line(), "held", "{kind}");
        let request = locks.mutex("shared").blocking();
        let waits = spawn(move || request.acquire());
        theirs.finish();
        waits.join().unwrap().unwrap().release_blocking().unwrap();
    }
}

/// Holders of both sides are killed. No sections overlap, and tokens grow over both sides.
fn kill_holders(kind: &str) {
    let server = RedisServer::start(&[]);
    // A FencedLock is in use, so its tokens and ours are one sequence.
    server.command(&["SET", "redisson_lock_token:{lock:shared}", "0"]);
    let dir = tempfile::tempdir().unwrap();
    let addresses = server.port().to_string();
    let mut contest =
        Contest::of(dir.path(), &url(server.port()), java::command_line(&["until", kind, &addresses, KEY]));
    for _ in 0..ROUNDS {
        SIDES.iter().for_each(|side| contest.kill(side));
    }
    expect_no_overlap(&contest.finish(&format!("Redisson, {kind}")));
}

#[test]
fn r_locks_and_ours_whose_holders_are_killed() {
    kill_holders("lock");
}

#[test]
fn fenced_locks_and_ours_whose_holders_are_killed() {
    kill_holders("fenced");
}

#[test]
fn fair_locks_and_ours_whose_holders_are_killed() {
    kill_holders("fair");
}

#[test]
fn by_sentinels() {
    let mut servers = RedisSentinels::start();
    let addresses = format!("{}/{}", joined(&servers.sentinel_ports()), servers.name());
    let dir = tempfile::tempdir().unwrap();
    let url = format!("{}?layout=redisson", servers.url());
    let mut contest = Contest::of(dir.path(), &url, java::command_line(&["until", "lock", &addresses, KEY]));
    let planned = ServerFault {
        begin: RedisSentinels::failover,
        end: |servers, _| servers.wait_until_stable(),
        loses: true,
    };
    for _ in 0..ROUNDS {
        for side in SIDES {
            contest.kill(side);
            contest.inject(side, &mut servers, &planned);
        }
    }
    expect_no_overlap(&contest.finish("Redisson, Sentinel"));
}

#[test]
fn on_a_cluster() {
    let servers = RedisCluster::start();
    let dir = tempfile::tempdir().unwrap();
    let mut contest = in_cluster(&servers, "cluster", dir.path());
    for _ in 0..ROUNDS {
        SIDES.iter().for_each(|side| contest.kill(side));
    }
    expect_no_overlap(&contest.finish("Redisson, Cluster"));
}

/// Redisson 4.7.0 uses plain channels here. By default it uses sharded channels, and does not subscribe again after the
/// slot has moved.
#[test]
fn on_a_cluster_whose_slot_moves() {
    let mut servers = RedisCluster::start();
    let dir = tempfile::tempdir().unwrap();
    let mut contest = in_cluster(&servers, "plain-cluster", dir.path());
    let moved = ServerFault { begin: move_slot, end: |servers, _| servers.wait_until_stable(), loses: false };
    for _ in 0..ROUNDS {
        for side in SIDES {
            contest.kill(side);
            contest.inject(side, &mut servers, &moved);
        }
    }
    expect_no_overlap(&contest.finish("Redisson, Cluster, slots move"));
}

fn in_cluster<'a>(servers: &RedisCluster, kind: &str, dir: &'a Path) -> Contest<'a> {
    let addresses = format!("{kind}:{}", joined(&servers.ports()));
    let url = format!("{}?layout=redisson", servers.url());
    Contest::of(dir, &url, java::command_line(&["until", "lock", &addresses, KEY]))
}
