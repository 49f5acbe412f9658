//! A wait that ends while its server is unreachable: the holder is unknown then, so the message must not say "held by
//! another".

use std::{
    net::TcpListener,
    process::Command,
    time::{Duration, Instant},
};

use leasehold_testkit::{
    server::{MariadbServer, PostgresServer, RedisServer},
    stopwatch::Stopwatch,
};

use crate::tools::{HOLD, Running, bare, code, finish, one_line, until};

/// How long the command waits, in seconds. The next limit is tried if the machine needed half of it before the server
/// was stopped.
const LIMITS: [u64; 3] = [6, 24, 96];

/// How late the command may end: less than it waits for an engine that answers.
const IN_TIME: Duration = Duration::from_millis(700);

/// How long the command may run on after its message: a fifth of what it allows an engine that answers.
const GOODBYE: Duration = Duration::from_millis(200);

/// Holds the name for the whole test, starts a waiting command, stops the server with `take_away`, and checks how the
/// wait ends.
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
        let watch = Stopwatch::start();
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
            // The command does not wait for an answer to its release either.
            watch.assert_within(Duration::from_secs(limit) + IN_TIME, "a wait");
            return;
        }
    }
    panic!("the machine was too slow for every limit");
}

#[test]
fn a_wait_on_a_paused_redis_is_69() {
    let url = |server: &RedisServer| format!("redis://127.0.0.1:{}", server.port());
    assert_unreachable(|| RedisServer::start(&[]), url, |server| server.pause());
}

#[test]
fn a_wait_on_a_killed_postgres_is_69() {
    assert_unreachable(|| PostgresServer::durable(&[]), PostgresServer::url, PostgresServer::kill);
}

#[test]
fn a_wait_on_a_killed_mariadb_is_69() {
    assert_unreachable(|| MariadbServer::start(&[]), MariadbServer::url, MariadbServer::kill);
}

/// A host that accepts connections and never answers. Neither `--wait` nor `connect_timeout` waits for the end of one
/// attempt, which may take 3 s.
#[test]
fn a_host_that_never_answers_is_69_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for scheme in ["redis://", "etcd://", "zookeeper://", "postgres://me@", "mysql://me@"] {
        let path = if scheme.contains('@') { "/db" } else { "" };
        let timeout = "?connect_timeout=500ms";
        for (query, args) in [
            ("", &["run", "-w", "500ms", "job", "--", "true"][..]),
            (timeout, &["run", "job", "--", "true"]),
            (timeout, &["run", "-n", "job", "--", "true"]),
            (timeout, &["show", "job"]),
        ] {
            let url = format!("{scheme}{address}{path}{query}");
            let mut command = bare(&[&["--url", url.as_str()], args].concat());
            // The check whether an outer run holds the name must not take longer either.
            command.env("LEASEHOLD_NAME", "job").env("LEASEHOLD_CLAIM", "0123456789abcdef0123456789abcdef");
            let watch = Stopwatch::start();
            let ended = finish(command);
            watch.assert_within(Duration::from_millis(2500), &format!("{args:?} of {url}"));
            assert_eq!(code(&ended), 69, "{args:?} of {url}: {ended:?}");
            let line = one_line(&ended);
            assert!(query.is_empty() || line.contains("no answer within 500ms"), "{args:?} of {url}: {line}");
        }
    }
}

/// The waiter was granted the name, and the grant can neither be confirmed nor released: the command ends in time all
/// the same.
#[test]
fn an_unconfirmed_grant_of_a_silent_redis_ends_in_time() {
    let server = RedisServer::start(&[]);
    let leasehold = |args: &[&str]| -> Command {
        let mut command = bare(args);
        command.env("LEASEHOLD_URL", format!("redis://127.0.0.1:{}", server.port()));
        command
    };
    let mut holder = Running::start(leasehold(&["run", "job", "--", "sh", "-c", HOLD]));
    assert_eq!(holder.line(), "ready");
    let mut waiter = Running::start(leasehold(&["run", "-w", "4s", "job", "--", "true"]));
    until("a waiter", || {
        let shown = finish(leasehold(&["show", "--json", "job"]));
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown["waiters"].as_array().is_some_and(|waiters| waiters.len() == 1)
    });
    waiter.freeze();
    assert_eq!(code(&holder.output()), 0);
    server.pause();
    waiter.thaw();
    let message = waiter.stderr_line();
    assert!(message.starts_with("leasehold: redis lock"), "{message}");
    let watch = Stopwatch::start();
    let ended = waiter.wait();
    watch.assert_within(GOODBYE, "the end of the command after its message");
    assert_eq!(code(&ended), 69, "{ended:?}");
}
