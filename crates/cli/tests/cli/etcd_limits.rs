//! The command on etcd: how long a name stays taken, and the messages when it cannot be acquired.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use leasehold_testkit::{server::etcd_command, stopwatch::Stopwatch};

use crate::{
    etcd::Fixture,
    shared,
    tools::{HOLD, Running, assert_until, bare, code, finish, one_line, stdout, until},
};

/// How often a command that did not reach its server is run again.
const TRIES: usize = 5;

/// Waits until `count` leases exist and each was renewed: its remaining time has grown.
fn until_renewed(fixture: &Fixture, count: usize) {
    let mut least = BTreeMap::new();
    until("all are renewed", || {
        let ids = fixture.server.command(&["lease", "list"]).split_off(1);
        assert_eq!(ids.len(), count, "{ids:?}");
        let renewed = ids.into_iter().filter(|id| {
            let reply = fixture.server.command(&["lease", "timetolive", id]).concat();
            let left = reply.split("remaining(").nth(1).and_then(|rest| rest.split("s)").next());
            let left: u64 = left.unwrap_or_else(|| panic!("{reply}")).parse().unwrap();
            let least = least.entry(id.clone()).or_insert(left);
            *least = left.min(*least);
            left > *least
        });
        renewed.count() == count
    });
}

/// The inaccuracy of a minimum hold. After the command has ended, a lease of the server ends it. Such a lease lasts
/// whole seconds, at least two, and the server checks every half second.
pub(crate) const COARSE: Duration = Duration::from_millis(3500);

#[test]
fn at_least_keeps_the_name_taken_for_its_time() {
    let fixture = Fixture::new();
    for at_least in [Duration::from_secs(4), Duration::from_millis(500)] {
        let begin = Instant::now();
        let text = format!("{}ms", at_least.as_millis());
        assert_eq!(fixture.code(&["run", "--ttl", "30s", "--at-least", &text, "job", "--", "true"]), 0);
        let ended = Stopwatch::start();
        let taken = fixture.code(&["run", "-n", "job", "--", "true"]) == 75;
        assert_until(begin, at_least, taken, "it is taken");
        let is_min_hold = fixture.show("job")["holders"][0]["owner"] == "kept";
        assert_until(begin, at_least, is_min_hold, "by no client");
        until("it is free", || {
            fixture.server.command(&["get", "--prefix", "/locks/", "--keys-only"]).is_empty()
        });
        assert!(begin.elapsed() >= at_least, "{at_least:?}: {:?}", begin.elapsed());
        ended.assert_within(at_least + COARSE, "it is free again");
    }
}

/// How many commands wait, and the minimum hold of each.
const WAITERS: usize = 4;
const MIN_HOLD: Duration = Duration::from_millis(500);
/// How late each may be, including the start of CMD.
const LATE: Duration = Duration::from_millis(250);

/// I7: the process that could end the minimum hold has ended, and leases last whole seconds.
#[test]
fn waiters_start_when_the_minimum_hold_ends() {
    let fixture = Fixture::new();
    let begin = Stopwatch::start();
    let options = ["--at-least", "500ms"];
    let first = fixture.holder(&options, HOLD);
    let waiting: Vec<Running> = (0..WAITERS)
        .map(|_| {
            let args = [&["run"], &options[..], &["job", "--", "true"]].concat();
            Running::start(fixture.leasehold(&args))
        })
        .collect();
    until("all wait", || fixture.show("job")["waiters"].as_array().unwrap().len() == WAITERS);
    // Each minimum hold counts from its grant. The first holder has already held for longer.
    let (watch, before) = (Stopwatch::start(), begin.elapsed());
    assert_eq!(code(&first.output()), 0);
    waiting.into_iter().for_each(|running| assert_eq!(code(&running.output()), 0));
    assert_eq!(fixture.code(&["run", "job", "--", "true"]), 0);
    let least = MIN_HOLD * WAITERS as u32;
    assert!(begin.elapsed() >= before + least, "{:?}", begin.elapsed());
    watch.assert_within(least + LATE * (WAITERS as u32 + 1) + MIN_HOLD, "all had the name");
}

#[test]
fn a_failed_command_has_no_minimum_hold() {
    let fixture = Fixture::new();
    assert_eq!(fixture.code(&["run", "--at-least", "1h", "job", "--", "false"]), 1);
    assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 0);
}

#[test]
fn a_lease_that_is_not_renewed_ends_its_command() {
    shared::a_hold_that_is_not_renewed_ends_its_command(&Fixture::new());
}

#[test]
fn an_unsupported_ttl_is_64_and_the_range_is_named() {
    let fixture = Fixture::new();
    shared::an_unsupported_ttl_is_64(&fixture);
    assert_eq!(fixture.code(&["run", "--ttl", "2s", "job", "--", "true"]), 0);
}

#[test]
fn the_server_error_decides_the_exit_code_and_shows_no_password() {
    let fixture = Fixture::new();
    let root = "--user=root:hunter2-root";
    for command in [
        &["user", "add", "root:hunter2-root"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "me:hunter2-right"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "locks", "readwrite", "--prefix", "/locks/"],
        &["role", "grant-permission", "locks", "readwrite", "--prefix", "leasehold//locks/"],
        &["user", "grant-role", "me", "locks"],
        &["auth", "enable"],
    ] {
        fixture.server.command(command);
    }
    let at = |login: &str, query: &str, args: &[&str]| {
        let mut command = bare(args);
        let url = format!("etcd://{login}127.0.0.1:{}{query}", fixture.server.port());
        command.env("LEASEHOLD_URL", url);
        finish(command)
    };
    let run = ["run", "job", "--", "true"];
    assert_eq!(code(&at("me:hunter2-right@", "", &run)), 0);
    for (login, query, hint) in [
        ("", "", "etcd://user:password@host"),
        ("me:hunter2-wrong@", "", "user or password"),
        ("nobody:hunter2-right@", "", "user or password"),
        ("me:hunter2-right@", "?prefix=/other", "docs/engines/etcd.md"),
    ] {
        for args in [&run[..], &["show", "job"], &["list"]] {
            let mut watch = Stopwatch::start();
            let mut output = at(login, query, args);
            // A command that a busy machine delayed does not get the server's answer.
            for _ in 0..TRIES {
                if code(&output) != 69 {
                    break;
                }
                watch = Stopwatch::start();
                output = at(login, query, args);
            }
            assert_eq!(code(&output), 77, "{login} {query} {args:?}: {output:?}");
            let message = one_line(&output);
            assert!(message.contains(hint) && !message.contains("hunter2"), "{message}");
            watch.assert_within(Duration::from_secs(3), "an answer at once");
        }
    }
    let seen = ["run", "job", "--", "sh", "-c", "tr '\\0' ' ' </proc/$PPID/cmdline; cat /proc/self/cmdline"];
    let seen = at("me:hunter2-right@", "", &seen);
    assert_eq!(code(&seen), 0);
    assert!(!stdout(&seen).contains("hunter2"), "no command line contains it");
    assert!(
        fixture.server.command(&[root, "get", "", "--from-key", "--keys-only"]).iter().all(String::is_empty)
    );
}

#[test]
fn a_missing_server_is_69() {
    let mut fixture = Fixture::new();
    fixture.server.kill();
    shared::a_missing_server_is_69(&fixture);
}

#[test]
fn a_full_server_refuses_new_claims_only() {
    let fixture = Fixture::start(&["--quota-backend-bytes=1000000"]);
    // A ttl with a margin for a busy machine.
    let holder = fixture.holder(&["--ttl", "12s"], HOLD);
    let waiter = Running::start(fixture.leasehold(&["run", "--ttl", "12s", "job", "--", "echo", "mine"]));
    until("a waiter", || fixture.show("job")["waiters"].as_array().unwrap().len() == 1);
    let full = "x".repeat(100_000);
    until("it is full", || !etcd_command(fixture.server.port(), &["put", "big", &full]).status.success());
    for args in [&["run", "other", "--", "true"][..], &["run", "-n", "job", "--", "true"]] {
        let output = fixture.call(args);
        assert_eq!(code(&output), 69, "{output:?}");
        assert!(one_line(&output).contains("database is full"), "{output:?}");
    }
    until_renewed(&fixture, 2);
    assert_eq!(fixture.show("job")["waiters"].as_array().unwrap().len(), 1);
    assert_eq!(code(&holder.output()), 0, "it was renewed and released");
    assert_eq!(stdout(&waiter.output()), "mine\n");
    assert_eq!(stdout(&fixture.call(&["list"])), "");
}

/// R12: the full server accepts deletions only, and no new lease.
#[test]
fn a_full_server_reports_a_failed_minimum_hold() {
    let fixture = Fixture::start(&["--quota-backend-bytes=1000000"]);
    let holder = fixture.holder(&["--ttl", "12s", "--at-least", "1h"], HOLD);
    let full = "x".repeat(100_000);
    until("it is full", || !etcd_command(fixture.server.port(), &["put", "big", &full]).status.success());
    let output = holder.output();
    assert_eq!(code(&output), 69, "{output:?}");
    let message = one_line(&output);
    assert!(message.contains("not held for --at-least") && message.contains("database is full"), "{message}");
    assert_eq!(message.matches("\"job\"").count(), 1, "{message}");
    assert!(message.contains("etcd lock \"job\": "), "{message}");
}
