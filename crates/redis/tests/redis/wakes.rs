//! The option `wake=`: a release wakes the waiters of another lock program. These tests send the commands of such
//! programs; the programs themselves run in `e2e/tests/neighbours`.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    thread::{JoinHandle, spawn},
};

use leasehold_core::{Inspect, Name};
use leasehold_redis::Wake;

use crate::{
    conformance::as_user,
    rig::{PATIENCE, Rig, acquire},
};

/// The timeout of `BLPOP` in seconds: longer than the time until the release adds an item to the list.
const BLOCK_SECONDS: &str = "30";

fn with(wake: Wake) -> Rig {
    let mut rig = Rig::new();
    rig.config = rig.config.wake(wake).unwrap();
    rig
}

/// Starts a program that blocks on a list; it returns the list and the item that wakes it.
fn blocked_program(rig: &Rig, list: &'static str) -> JoinHandle<Vec<String>> {
    let port = rig.server.port();
    let blocked = spawn(move || {
        let message = leasehold_testkit::server::redis_command(port, &["BLPOP", list, BLOCK_SECONDS]);
        String::from_utf8(message.stdout).unwrap().lines().map(ToOwned::to_owned).collect()
    });
    rig.until("it blocks", || rig.command(&["CLIENT", "LIST"]).contains("cmd=blpop"));
    blocked
}

/// Asserts that the woken program can acquire the lock.
fn is_free(rig: &Rig) {
    assert_eq!(rig.command(&["SET", "lock:a", "theirs", "NX", "EX", "30"]), "OK");
    rig.command(&["DEL", "lock:a"]);
}

#[test]
fn a_release_wakes_programs_that_block_on_a_list() {
    for (wake, list, life) in
        [(Wake::PythonRedisLock, "lock-signal:a", 1000), (Wake::Walrus, "lock.event:a", 3_600_000)]
    {
        let rig = with(wake);
        let locks = rig.locks();
        for request in [locks.mutex("a"), locks.rw("a").read(), locks.semaphore("a", 2)] {
            let guard = request.blocking().acquire().unwrap();
            let blocked = blocked_program(&rig, list);
            guard.release_blocking().unwrap();
            assert_eq!(blocked.join().unwrap(), [list, "1"]);
            is_free(&rig);
        }
        // An item that no program removes from the list expires, and the list never has more than one item.
        for _ in 0..2 {
            acquire(&locks, "a").release_blocking().unwrap();
        }
        let remaining_ms: i64 = rig.command(&["PTTL", list]).parse().unwrap();
        assert!(
            remaining_ms <= life && matches!(&*rig.command(&["LLEN", list]), "0" | "1"),
            "{remaining_ms}"
        );
        assert!(remaining_ms != -1, "the item expires");
    }
}

#[test]
fn a_release_wakes_spring() {
    let mut rig = Rig::new();
    rig.config = rig.config.prefix("registry:").unwrap().wake(Wake::Spring).unwrap();
    let mut listener = TcpStream::connect(("127.0.0.1", rig.server.port())).unwrap();
    listener.write_all(b"PSUBSCRIBE registry-channel:*\r\n").unwrap();
    rig.until("it listens", || rig.command(&["PUBSUB", "NUMPAT"]) == "1");
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    let mut lines = BufReader::new(listener).lines().map(Result::unwrap);
    lines.find(|line| line == "pmessage").unwrap();
    let message: Vec<_> = lines.filter(|line| !line.starts_with('$')).take(3).collect();
    assert_eq!(message, ["registry-channel:*", "registry-channel:registry:a", "registry:a"]);
}

/// After a hand-over, and during a minimum hold time, the lock is not free.
#[test]
fn a_release_that_does_not_free_the_lock_wakes_no_program() {
    let rig = with(Wake::PythonRedisLock);
    let (locks, other) = (rig.locks(), rig.locks());
    let wakes = || rig.command(&["LLEN", "lock-signal:a"]);
    let guard = acquire(&locks, "a");
    let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
    rig.until("it waits", || rig.show("a").waiters.len() == 1);
    guard.release_blocking().unwrap();
    let guard = waiting.join().unwrap().unwrap();
    assert_eq!(wakes(), "0", "the hold was handed over");
    rig.run(guard.release_at_least(PATIENCE)).unwrap();
    assert_eq!(wakes(), "0", "the name is taken for the minimum hold time");
}

#[test]
fn a_forced_break_wakes_programs() {
    let rig = with(Wake::PythonRedisLock);
    let guard = acquire(&rig.locks(), "a");
    let blocked = blocked_program(&rig, "lock-signal:a");
    let (engine, name) = (rig.engine(), Name::new("a").unwrap());
    rig.run(engine.break_hold(&name, guard.token().number, true)).unwrap();
    assert_eq!(blocked.join().unwrap(), ["lock-signal:a", "1"]);
}

#[test]
fn a_forbidden_wake_does_not_stop_a_release() {
    let (_directory, mut rig) = as_user("leasehold");
    rig.config = rig.config.wake(Wake::PythonRedisLock).unwrap();
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    assert_eq!(rig.command(&["EXISTS", "lock:a", "lock-signal:a"]), "0");
}
