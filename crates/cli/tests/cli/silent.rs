//! A wait that ends while its server is away: nobody knows who holds the name, so the answer is not "held by another".

use std::{
    process::Command,
    time::{Duration, Instant},
};

use leasehold_testkit::server::{MariadbServer, PostgresServer, RedisServer};

use crate::tools::{HOLD, Running, bare, code, finish, one_line, until};

/// How long the command waits, in seconds: longer where the machine took half of that time before the server was away.
const LIMITS: [u64; 3] = [6, 24, 96];

/// Holds the name for longer than the test lasts, has a command wait for it, takes the server away, and reads how the wait ends.
fn assert_unreachable<S>(start: impl Fn() -> S, url: impl Fn(&S) -> String, take_away: impl Fn(&mut S)) {
    for limit in LIMITS {
        let mut server = start();
        let leasehold = |args: &[&str]| -> Command {
            let mut command = bare(args);
            command.env("LEASEHOLD_URL", url(&server));
            command
        };
        let mut holder = Running::start(leasehold(&["run", "--ttl", "5m", "job", "--", "sh", "-c", HOLD]));
        assert_eq!(holder.line(), "ready");
        let begin = Instant::now();
        let wait = format!("{limit}s");
        let waiter = Running::start(leasehold(&["run", "-w", &wait, "job", "--", "true"]));
        until("a waiter", || {
            let shown = finish(leasehold(&["show", "--json", "job"]));
            let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
            shown["waiters"].as_array().is_some_and(|waiters| waiters.len() == 1)
        });
        take_away(&mut server);
        let was_quick = begin.elapsed() < Duration::from_secs(limit) / 2;
        let ended = waiter.wait();
        if was_quick {
            assert_eq!(code(&ended), 69, "{ended:?}");
            assert!(!one_line(&ended).contains("held by"), "{ended:?}");
            return;
        }
    }
    panic!("the machine was too slow for every limit");
}

#[test]
fn a_wait_for_a_redis_that_fell_silent_is_69() {
    let url = |server: &RedisServer| format!("redis://127.0.0.1:{}", server.port());
    assert_unreachable(|| RedisServer::start(&[]), url, |server| server.pause());
}

#[test]
fn a_wait_for_a_postgres_that_was_killed_is_69() {
    assert_unreachable(|| PostgresServer::durable(&[]), PostgresServer::url, PostgresServer::kill);
}

#[test]
fn a_wait_for_a_mariadb_that_was_killed_is_69() {
    assert_unreachable(|| MariadbServer::start(&[]), MariadbServer::url, MariadbServer::kill);
}
