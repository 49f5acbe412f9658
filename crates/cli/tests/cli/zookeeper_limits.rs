//! The command on ZooKeeper: how long a name stays taken, options of the URL, and the messages when a lock cannot be
//! acquired.

use std::time::{Duration, Instant};

use leasehold_testkit::stopwatch::Stopwatch;
use nix::sys::signal::Signal;

use crate::{
    shared,
    tools::{HOLD, Running, assert_until, bare, code, finish, one_line, state, stderr, stdout, until},
    zookeeper::Fixture,
};

/// An access list that gives all rights to `me`, whose password is `hunter2-right`.
const OF_ME: &str = "digest:me:GRAkf6EHztJAnIyxLOYw4UaSPgw=:cdrwa";
/// Users whose passwords are `hunter2-lock` and `hunter2-view`.
const LOCKER: &str = "locker:YpqVnMXEVzbZI2P+BQK5SvVr7g8=";
const VIEWER: &str = "viewer:iXiMisHLZvpa7Gqr+BfuDW256Y8=";

/// The nodes of the command end with its session, so the command keeps running.
#[test]
fn a_command_holds_until_at_least_has_passed() {
    let fixture = Fixture::new();
    let (at_least, begin) = (Duration::from_secs(7), Instant::now());
    // Both at once: they run for longer than their ttl, which has a margin for a busy machine.
    let keepers =
        [("renewed", &["--ttl", "5s"][..]), ("fixed", &["--ttl", "5s", "--no-renew", "--max-hold", "4s"])]
            .map(|(name, options)| {
                let args = [&["run"], options, &["--at-least", "7s", name, "--", "echo", "done"]].concat();
                let mut keeper = Running::start(fixture.leasehold(&args));
                assert_eq!(keeper.line(), "done");
                (name, keeper)
            });
    let mut keepers = keepers;
    while begin.elapsed() < at_least - Duration::from_millis(500) {
        for (name, keeper) in &mut keepers {
            let taken = fixture.code(&["run", "-n", name, "--", "true"]) == 75;
            assert_until(begin, at_least, taken, name);
            assert_until(begin, at_least, !keeper.has_ended(), "the command still runs");
        }
        // Not a busy loop, which would take processor time from the observed processes.
        std::thread::sleep(Duration::from_millis(200));
    }
    for (name, keeper) in keepers {
        assert_eq!(code(&keeper.wait()), 0, "{name}");
        assert!(begin.elapsed() >= at_least, "{:?}", begin.elapsed());
        assert_eq!(fixture.code(&["run", "-n", name, "--", "true"]), 0);
    }
    let watch = Stopwatch::start();
    assert_eq!(fixture.code(&["run", "--at-least", "1h", "job", "--", "false"]), 1);
    assert_eq!(fixture.code(&["run", "--at-least", "1s", "job", "--", "sleep", "1"]), 0);
    watch.assert_within(Duration::from_secs(10), "neither waits for longer");
}

#[test]
fn a_signal_ends_the_minimum_hold() {
    let fixture = Fixture::new();
    let args = ["run", "--at-least", "1h", "job", "--", "sh", "-c", "echo $$"];
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut keeper = Running::start(fixture.leasehold(&args));
        let cmd = keeper.number();
        // Until the run has noticed the end of CMD, it would forward the signal to CMD.
        until("CMD's end", || state(cmd).is_none());
        let watch = Stopwatch::start();
        keeper.signal(signal);
        let ended = keeper.wait();
        assert_eq!(code(&ended), 0, "CMD did its work: {ended:?}");
        let message = one_line(&ended);
        assert!(message.contains(signal.as_str()) && message.contains("--at-least"), "{message}");
        watch.assert_within(Duration::from_secs(3), "the minimum hold was ended");
        assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 0, "it is free at once");
    }
}

#[test]
fn a_loss_during_the_minimum_hold_is_76() {
    let fixture = Fixture::new();
    let mut keeper =
        Running::start(fixture.leasehold(&["run", "--at-least", "1h", "job", "--", "echo", "done"]));
    assert_eq!(keeper.line(), "done");
    fixture.server.command(&["delete", &fixture.nodes().pop().unwrap()]);
    assert_eq!(code(&keeper.wait()), 76);
}

#[test]
fn a_ttl_is_limited_by_the_server_or_refused() {
    let fixture = Fixture::new();
    shared::an_unsupported_ttl_is_64(&fixture);
    let holder = fixture.holder(&["--ttl", "24h"], HOLD);
    let left = fixture.show("job")["holders"][0]["remaining_ms"].as_u64().unwrap();
    assert!(left <= 60_000, "the server grants a minute at most: {left}");
    assert_eq!(code(&holder.output()), 0);
    shared::a_hold_that_is_not_renewed_ends_its_command(&fixture);
}

#[test]
fn url_options_set_node_names_paths_and_rights() {
    let fixture = Fixture::new();
    fixture.server.command(&["create", "/apps"]);
    let hold = ["run", "job", "--", "sh", "-c", HOLD];
    for (query, start, word) in [
        ("", "/locks/job/_c_", "-lock-"),
        ("?layout=mutex", "/locks/job/_c_", "-lock-"),
        ("?layout=rw", "/locks/job/_c_", "-__WRIT__"),
        ("?layout=plain", "/locks/job/lock-", "/lock-0"),
        ("/apps?prefix=/a/b", "/apps/a/b/job/_c_", "-lock-"),
        ("/apps?layout=plain&path=/a/job", "/apps/a/job/lock-", "/lock-0"),
        ("?acl=world:anyone:cdr", "/locks/job/_c_", "-lock-"),
    ] {
        let mut holder = Running::start(fixture.leasehold_with(query, &hold));
        assert_eq!(holder.line(), "ready", "{query}");
        let node = fixture.nodes().pop().unwrap();
        assert!(node.starts_with(start) && node.contains(word), "{query}: {node}");
        let rights = fixture.server.command(&["getAcl", &node]);
        let wanted = if query.contains("acl") { ": cdr" } else { ": cdrwa" };
        assert_eq!(rights, ["'world,'anyone", wanted], "{query}");
        assert_eq!(code(&holder.output()), 0);
    }
}

#[test]
fn the_server_error_decides_the_exit_code_and_shows_no_password() {
    let fixture = Fixture::new();
    fixture.server.command(&["create", "/locks", "", OF_ME]);
    let at = |login: &str, query: &str, args: &[&str]| {
        let mut command = bare(args);
        let url = format!("zookeeper://{login}127.0.0.1:{}{query}", fixture.server.port());
        command.env("LEASEHOLD_URL", url);
        finish(command)
    };
    let run = ["run", "job", "--", "true"];
    assert_eq!(code(&at("me:hunter2-right@", "", &run)), 0);
    for (login, query, args) in [
        ("", "", &run[..]),
        ("me:hunter2-wrong@", "", &run),
        ("nobody:hunter2-right@", "", &run),
        ("nobody:hunter2-right@", "", &["show", "job"]),
        ("nobody:hunter2-right@", "", &["list"]),
    ] {
        let watch = Stopwatch::start();
        let output = at(login, query, args);
        assert_eq!(code(&output), 77, "{login} {query} {args:?}: {output:?}");
        let message = one_line(&output);
        assert!(message.contains("docs/engines/zookeeper.md") && !message.contains("hunter2"), "{message}");
        watch.assert_within(Duration::from_secs(3), "an answer at once");
    }
    let output = at("", "?prefix=/other&acl=nonsense:x:r", &run);
    assert_eq!(code(&output), 78, "{output:?}");
    assert!(one_line(&output).contains("acl="), "{output:?}");
    let seen = ["run", "job", "--", "sh", "-c", "tr '\\0' ' ' </proc/$PPID/cmdline; cat /proc/self/cmdline"];
    let seen = at("me:hunter2-right@", "", &seen);
    assert_eq!(code(&seen), 0);
    assert!(!stdout(&seen).contains("hunter2"), "no command line contains it");
}

#[test]
fn a_missing_server_is_69() {
    let mut fixture = Fixture::new();
    fixture.server.kill();
    shared::a_missing_server_is_69(&fixture);
}

#[test]
fn permits_and_readers_are_counted_and_kinds_do_not_mix() {
    let fixture = Fixture::new();
    let hold = ["job", "--", "sh", "-c", HOLD];
    let start = |options: &[&str]| {
        let mut running = Running::start(fixture.leasehold(&[&["run"], options, &hold].concat()));
        assert_eq!(running.line(), "ready", "{options:?}");
        running
    };
    let two = [start(&["--limit", "2"]), start(&["--limit", "2"])];
    assert_eq!(fixture.code(&["run", "-n", "--limit", "2", "job", "--", "true"]), 75);
    let other = fixture.call(&["run", "-n", "job", "--", "true"]);
    assert_eq!(code(&other), 78, "{}", stderr(&other));
    assert!(two.into_iter().all(|holder| code(&holder.output()) == 0));
    until("nothing is left", || fixture.nodes().is_empty());
    let readers = [start(&["-s"]), start(&["-s"])];
    assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 75);
    assert_eq!(fixture.show("job")["holders"].as_array().unwrap().len(), 2);
    assert!(readers.into_iter().all(|holder| code(&holder.output()) == 0));
}

/// The rights of docs/engines/zookeeper-acl.sh.
#[test]
fn the_documented_rights_are_enough() {
    let fixture = Fixture::new();
    fixture.server.command(&["create", "/locks", "", &format!("digest:{LOCKER}:cr,digest:{VIEWER}:r")]);
    let at = |login: &str, query: &str, args: &[&str]| {
        let mut command = bare(args);
        command
            .env("LEASEHOLD_URL", format!("zookeeper://{login}127.0.0.1:{}{query}", fixture.server.port()));
        command
    };
    let acl = format!("?acl=digest:{VIEWER}:r");
    let locker = |args: &[&str]| at("locker:hunter2-lock@", &acl, args);
    let viewer = |args: &[&str]| at("viewer:hunter2-view@", "", args);
    for options in [&["-n"][..], &["-n", "-s"], &["-n", "--at-least", "100ms"]] {
        let mut holder =
            Running::start(locker(&[&["run"], options, &["job", "--", "sh", "-c", HOLD]].concat()));
        assert_eq!(holder.line(), "ready", "{options:?}");
        let listed = finish(viewer(&["list", "--json"]));
        assert_eq!(stdout(&listed).lines().count(), 1, "{listed:?}");
        let shown = finish(viewer(&["show", "--json", "job"]));
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        let token = shown["holders"][0]["token"].to_string();
        for args in [&["run", "-n", "other", "--", "true"][..], &["break", "job", "--token", &token]] {
            assert_eq!(code(&finish(viewer(args))), 77, "{args:?}");
        }
        assert_eq!(code(&finish(at("", "", &["show", "job"]))), 77, "other users may not look");
        assert_eq!(code(&holder.output()), 0);
    }
    let limited = ["run", "-n", "--limit", "2", "calls", "--", "true"];
    for _ in 0..2 {
        assert_eq!(code(&finish(locker(&limited))), 0);
    }
    let sleeper = ["run", "job", "--", "sh", "-c", "echo ready; exec sleep 1000"];
    let mut holder = Running::start(locker(&sleeper));
    assert_eq!(holder.line(), "ready");
    let shown = finish(locker(&["show", "--json", "job"]));
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let token = shown["holders"][0]["token"].to_string();
    assert_eq!(code(&finish(locker(&["break", "job", "--token", &token]))), 0);
    assert_eq!(code(&holder.wait()), 76);
}
