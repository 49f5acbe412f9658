//! Other packages on one Redis.

use std::{thread::spawn, time::Duration};

use leasehold::Locks;
use leasehold_testkit::server::RedisServer;

use crate::{packages::Neighbour, turns};

/// The number of programs of each side, and of sections of each program.
const OF_EACH: usize = 2;
const SECTIONS: usize = 25;

fn locks(server: &RedisServer, options: &str) -> Locks {
    Locks::connect(&format!("redis://127.0.0.1:{}?{options}", server.port())).unwrap()
}

/// Programs of both sides share a lock: no sections overlap, and all programs end.
fn take_turns(kind: &str, options: &str) {
    let server = RedisServer::start(&[]);
    let port = server.port().to_string();
    let theirs = (0..OF_EACH).map(|_| Neighbour::start(kind, "turns", &port, "shared", SECTIONS)).collect();
    // Each thread has its own client, like a separate process.
    let ours: Vec<_> = (0..OF_EACH).map(|_| locks(&server, options)).collect();
    turns::take_turns(&server, (&ours, |locks| locks.mutex("shared")), theirs, SECTIONS);
}

#[test]
fn redis_py() {
    take_turns("redis-py", "");
}

/// Our Python module, beside redis-py and beside our clients in Rust.
#[test]
fn the_python_module() {
    let server = RedisServer::start(&[]);
    let port = server.port().to_string();
    let kinds = ["leasehold", "leasehold", "redis-py"];
    let theirs = kinds.map(|kind| Neighbour::start(kind, "turns", &port, "shared", SECTIONS)).into();
    let ours: Vec<_> = (0..OF_EACH).map(|_| locks(&server, "")).collect();
    turns::take_turns(&server, (&ours, |locks| locks.mutex("shared")), theirs, SECTIONS);
}

/// Its waiters sleep until a release wakes them.
#[test]
fn python_redis_lock() {
    take_turns("python-redis-lock", "wake=prl");
}

#[test]
fn walrus() {
    take_turns("walrus", "wake=walrus");
}

#[test]
fn npm_redlock_4() {
    take_turns("redlock4", "");
}

#[test]
fn npm_redlock_5() {
    take_turns("redlock5", "");
}

#[test]
fn npm_redis_semaphore_mutex() {
    take_turns("mutex", "prefix=mutex:");
}

/// Its lock is a sorted set: our claims wait for it, and it fails while we hold.
#[test]
fn npm_redis_semaphore_semaphore() {
    let server = RedisServer::start(&[]);
    let mut theirs = Neighbour::start("semaphore", "hold", &server.port().to_string(), "shared", 0);
    assert_eq!(theirs.first_line(), "held");
    let locks = locks(&server, "prefix=semaphore:");
    let request = locks.mutex("shared").blocking();
    assert!(request.try_acquire().unwrap_err().is_taken());
    assert!(request.acquire_within(Duration::from_millis(300)).unwrap_err().is_timed_out());
    let waits = spawn(move || request.acquire());
    theirs.finish();
    let guard = waits.join().unwrap().unwrap();
    let mut theirs = Neighbour::start("semaphore", "hold", &server.port().to_string(), "shared", 0);
    assert_eq!(theirs.first_line(), "", "the other program does not hold");
    guard.release_blocking().unwrap();
}
