//! On a Redis.

use std::{thread::spawn, time::Duration};

use leasehold::Locks;
use leasehold_testkit::server::RedisServer;

use crate::packages::Neighbour;

/// Programs of each side, and how often each of them has its turn.
const OF_EACH: usize = 2;
const SECTIONS: usize = 25;

fn locks(server: &RedisServer, options: &str) -> Locks {
    Locks::connect(&format!("redis://127.0.0.1:{}?{options}", server.port())).unwrap()
}

/// Ours and theirs take turns: nobody meets another, and everybody gets through.
fn take_turns(kind: &str, options: &str) {
    let server = std::sync::Arc::new(RedisServer::start(&[]));
    let port = server.port().to_string();
    let theirs: Vec<_> =
        (0..OF_EACH).map(|_| Neighbour::start(kind, "turns", &port, "shared", SECTIONS)).collect();
    let ours: Vec<_> = (0..OF_EACH)
        .map(|_| {
            // A client of its own each, as processes have.
            let (locks, server) = (locks(&server, options), std::sync::Arc::clone(&server));
            spawn(move || {
                let says = |command: &[&str]| server.command(command).join("");
                for _ in 0..SECTIONS {
                    let guard = locks.mutex("shared").blocking().acquire().unwrap();
                    if says(&["SET", "inside", "rust", "NX"]) != "OK" {
                        says(&["INCR", "overlaps"]);
                    }
                    let count: usize = says(&["GET", "count"]).parse().unwrap_or(0);
                    says(&["SET", "count", &(count + 1).to_string()]);
                    says(&["DEL", "inside"]);
                    guard.release_blocking().unwrap();
                }
            })
        })
        .collect();
    ours.into_iter().for_each(|thread| thread.join().unwrap());
    theirs.into_iter().for_each(Neighbour::finish);
    let says = |command: &[&str]| server.command(command).join("");
    assert_eq!(says(&["GET", "overlaps"]), "", "nobody was inside with another");
    assert_eq!(says(&["GET", "count"]), (2 * OF_EACH * SECTIONS).to_string(), "no section was lost");
}

#[test]
fn redis_py() {
    take_turns("redis-py", "");
}

/// Its waiters sleep for ever, unless our releases wake them.
#[test]
fn python_redis_lock() {
    take_turns("python-redis-lock", "bell=prl");
}

#[test]
fn walrus() {
    take_turns("walrus", "bell=walrus");
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

/// Its lock is a sorted set: we wait while it stands, and it fails while ours does.
#[test]
fn npm_redis_semaphore_semaphore() {
    let server = RedisServer::start(&[]);
    let mut theirs = Neighbour::start("semaphore", "hold", &server.port().to_string(), "shared", 0);
    assert_eq!(theirs.says(), "held");
    let locks = locks(&server, "prefix=semaphore:");
    let request = locks.mutex("shared").blocking();
    assert!(request.try_acquire().unwrap_err().is_taken());
    assert!(request.acquire_within(Duration::from_millis(300)).unwrap_err().is_timed_out());
    let waits = spawn(move || request.acquire());
    theirs.finish();
    let guard = waits.join().unwrap().unwrap();
    let mut theirs = Neighbour::start("semaphore", "hold", &server.port().to_string(), "shared", 0);
    assert_eq!(theirs.says(), "", "it does not hold");
    guard.release_blocking().unwrap();
}
