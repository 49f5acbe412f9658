//! The command on etcd: how long a name stays taken, and what it says when it cannot be had.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use leasehold_testkit::{server::etcd_command, stopwatch::Stopwatch};

use crate::{
    alike,
    etcd::Site,
    tools::{HOLD, Running, assert_until, bare, code, finish, one_line, stdout, until},
};

/// How often a command is run again that did not reach its server.
const TRIES: usize = 5;

/// Waits until each of so many leases has more left than it had before.
fn until_renewed(site: &Site, count: usize) {
    let mut least = BTreeMap::new();
    until("all are renewed", || {
        let ids = site.server.command(&["lease", "list"]).split_off(1);
        assert_eq!(ids.len(), count, "{ids:?}");
        let renewed = ids.into_iter().filter(|id| {
            let said = site.server.command(&["lease", "timetolive", id]).concat();
            let left = said.split("remaining(").nth(1).and_then(|rest| rest.split("s)").next());
            let left: u64 = left.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
            let least = least.entry(id.clone()).or_insert(left);
            *least = left.min(*least);
            left > *least
        });
        renewed.count() == count
    });
}

/// A command that ends keeps nobody: the server does it, in whole seconds, of which it knows no fewer than two, and looks
/// every half second.
pub(crate) const COARSE: Duration = Duration::from_millis(3500);

#[test]
fn a_kept_name_stays_taken_after_its_command_for_its_time_and_little_longer() {
    let site = Site::new();
    for at_least in [Duration::from_secs(4), Duration::from_millis(500)] {
        let begin = Instant::now();
        let text = format!("{}ms", at_least.as_millis());
        assert_eq!(site.code(&["run", "--ttl", "30s", "--at-least", &text, "job", "--", "true"]), 0);
        let ended = Stopwatch::start();
        let taken = site.code(&["run", "-n", "job", "--", "true"]) == 75;
        assert_until(begin, at_least, taken, "it is taken");
        let kept = site.show("job")["holders"][0]["owner"] == "kept";
        assert_until(begin, at_least, kept, "by nobody");
        until("it is free", || {
            site.server.command(&["get", "--prefix", "/locks/", "--keys-only"]).is_empty()
        });
        assert!(begin.elapsed() >= at_least, "{at_least:?}: {:?}", begin.elapsed());
        ended.assert_within(at_least + COARSE, "it is free again");
    }
}

/// How many commands wait for a kept name, and for how long each of them keeps it.
const WAITERS: usize = 4;
const KEPT: Duration = Duration::from_millis(500);
/// By how much one of them may be late, with what it takes to start CMD.
const LATE: Duration = Duration::from_millis(250);

/// I7: nobody is left who would end their time, and leases are of whole seconds.
#[test]
fn commands_that_wait_for_a_kept_name_start_when_its_time_is_over() {
    let site = Site::new();
    let begin = Stopwatch::start();
    let options = ["--at-least", "500ms"];
    let first = site.holder(&options, HOLD);
    let waiting: Vec<Running> = (0..WAITERS)
        .map(|_| {
            let args = [&["run"], &options[..], &["job", "--", "true"]].concat();
            Running::start(site.leasehold(&args))
        })
        .collect();
    until("all wait", || site.show("job")["waiters"].as_array().unwrap().len() == WAITERS);
    // From now on each keeps it from its grant; the first one has had it for longer than that.
    let (watch, before) = (Stopwatch::start(), begin.elapsed());
    assert_eq!(code(&first.output()), 0);
    waiting.into_iter().for_each(|running| assert_eq!(code(&running.output()), 0));
    assert_eq!(site.code(&["run", "job", "--", "true"]), 0);
    let least = KEPT * WAITERS as u32;
    assert!(begin.elapsed() >= before + least, "{:?}", begin.elapsed());
    watch.assert_within(least + LATE * (WAITERS as u32 + 1) + KEPT, "all had the name");
}

#[test]
fn a_command_that_fails_keeps_nothing() {
    let site = Site::new();
    assert_eq!(site.code(&["run", "--at-least", "1h", "job", "--", "false"]), 1);
    assert_eq!(site.code(&["run", "-n", "job", "--", "true"]), 0);
}

#[test]
fn a_lease_that_is_not_renewed_ends_its_command() {
    alike::a_hold_that_is_not_renewed_ends_its_command(&Site::new());
}

#[test]
fn a_ttl_that_the_server_does_not_know_is_64_with_those_it_knows() {
    let site = Site::new();
    alike::a_ttl_that_the_server_does_not_know_is_64(&site);
    assert_eq!(site.code(&["run", "--ttl", "2s", "job", "--", "true"]), 0);
}

#[test]
fn what_the_server_says_decides_the_exit_code_and_no_password_is_shown() {
    let site = Site::new();
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
        site.server.command(command);
    }
    let at = |login: &str, query: &str, args: &[&str]| {
        let mut command = bare(args);
        let url = format!("etcd://{login}127.0.0.1:{}{query}", site.server.port());
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
            // A command that the machine kept from its server cannot know more than that.
            for _ in 0..TRIES {
                if code(&output) != 69 {
                    break;
                }
                watch = Stopwatch::start();
                output = at(login, query, args);
            }
            assert_eq!(code(&output), 77, "{login} {query} {args:?}: {output:?}");
            let said = one_line(&output);
            assert!(said.contains(hint) && !said.contains("hunter2"), "{said}");
            watch.assert_within(Duration::from_secs(3), "an answer at once");
        }
    }
    let seen = ["run", "job", "--", "sh", "-c", "tr '\\0' ' ' </proc/$PPID/cmdline; cat /proc/self/cmdline"];
    let seen = at("me:hunter2-right@", "", &seen);
    assert_eq!(code(&seen), 0);
    assert!(!stdout(&seen).contains("hunter2"), "it stands in no command line");
    assert!(
        site.server.command(&[root, "get", "", "--from-key", "--keys-only"]).iter().all(String::is_empty)
    );
}

#[test]
fn a_server_that_is_not_there_is_69() {
    let mut site = Site::new();
    site.server.kill();
    alike::a_server_that_is_not_there_is_69(&site);
}

#[test]
fn a_full_server_refuses_new_claims_only() {
    let site = Site::start(&["--quota-backend-bytes=1000000"]);
    // With room for a busy machine.
    let holder = site.holder(&["--ttl", "12s"], HOLD);
    let waiter = Running::start(site.leasehold(&["run", "--ttl", "12s", "job", "--", "echo", "mine"]));
    until("a waiter", || site.show("job")["waiters"].as_array().unwrap().len() == 1);
    let full = "x".repeat(100_000);
    until("it is full", || !etcd_command(site.server.port(), &["put", "big", &full]).status.success());
    for args in [&["run", "other", "--", "true"][..], &["run", "-n", "job", "--", "true"]] {
        let output = site.call(args);
        assert_eq!(code(&output), 69, "{output:?}");
        assert!(one_line(&output).contains("database is full"), "{output:?}");
    }
    until_renewed(&site, 2);
    assert_eq!(site.show("job")["waiters"].as_array().unwrap().len(), 1);
    assert_eq!(code(&holder.output()), 0, "it was renewed, and let go");
    assert_eq!(stdout(&waiter.output()), "mine\n");
    assert_eq!(stdout(&site.call(&["list"])), "");
}

/// R12: the server takes deletions alone, and no new lease.
#[test]
fn a_name_that_a_full_server_cannot_keep_is_not_said_to_be_kept() {
    let site = Site::start(&["--quota-backend-bytes=1000000"]);
    let holder = site.holder(&["--ttl", "12s", "--at-least", "1h"], HOLD);
    let full = "x".repeat(100_000);
    until("it is full", || !etcd_command(site.server.port(), &["put", "big", &full]).status.success());
    let output = holder.output();
    assert_eq!(code(&output), 69, "{output:?}");
    let said = one_line(&output);
    assert!(said.contains("not kept for --at-least") && said.contains("database is full"), "{said}");
    assert_eq!(said.matches("\"job\"").count(), 1, "{said}");
    assert!(said.contains("etcd lock \"job\": "), "{said}");
}
