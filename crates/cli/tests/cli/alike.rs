//! What the command does alike on servers of every kind. Each engine's file has the tests.

use std::time::{Duration, Instant};

use leasehold_testkit::stopwatch::Stopwatch;
use serde_json::Value;

use crate::{
    site::Site,
    tools::{
        HOLD, Running, assert_taken_within_limit, assert_until, code, finish, one_line, stderr, stdout, until,
    },
};

/// Ends a server, or begins it again.
type Act<S> = fn(&mut S);

pub(crate) fn processes_exclude_each_other_and_are_shown<S>(site: &Site<S>, key: &str, guarantee: &str) {
    let holder = site.holder(&["--owner", "first"], HOLD);
    assert_eq!(site.code(&["run", "-n", "job", "--", "true"]), 75);
    assert_taken_within_limit(|limit| site.code(&["run", "-w", limit, "job", "--", "true"]));
    let shown = site.show("job");
    assert_eq!(
        (&shown["engine"], &shown["key"], &shown["mode"], &shown["guarantee"]),
        (&site.engine.into(), &key.into(), &"exclusive".into(), &guarantee.into())
    );
    let holding = &shown["holders"][0];
    assert_eq!((&holding["owner"], &holding["foreign"]), (&"first".into(), &false.into()));
    assert!(holding["remaining_ms"].as_u64().is_some_and(|left| left <= 30_000));
    let args = ["run", "--owner", "second", "job", "--", "sh", "-c", "echo mine"];
    let waiter = Running::start(site.leasehold(&args));
    until("a waiter", || site.show("job")["waiters"].as_array().unwrap().len() == 1);
    assert_eq!(site.show("job")["waiters"][0]["owner"], "second");
    assert_eq!(stdout(&site.call(&["list", "--json", "jo"])).lines().count(), 1);
    assert_eq!(stdout(&site.call(&["list", "--json", "ja"])), "");
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(stdout(&waiter.output()), "mine\n");
    assert_eq!(stdout(&site.call(&["list", "--json"])), "");
}

/// Where `special` is a name that the engine has to write otherwise than most.
pub(crate) fn any_name_is_locked<S>(site: &Site<S>, special: &str) {
    let long = ["n".repeat(512), "/".repeat(512)];
    let names = ["a", "a/b", "a%2Fb", "..", "läuft ✓", special, &long[0], &long[1]];
    let holders = names.map(|name| {
        let mut running = Running::start(site.leasehold(&["run", "-n", name, "--", "sh", "-c", HOLD]));
        assert_eq!(running.line(), "ready", "{name}");
        assert_eq!(site.code(&["run", "-n", name, "--", "true"]), 75, "{name}");
        running
    });
    let listed = stdout(&site.call(&["list", "--json"]));
    let mut listed: Vec<String> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["name"].as_str().unwrap().to_owned())
        .collect();
    listed.sort_unstable();
    let mut wanted = names.to_vec();
    wanted.sort_unstable();
    assert_eq!(listed, wanted);
    assert_eq!(site.show("a/b")["key"], "/locks/a%2Fb");
    assert_eq!(site.show("läuft ✓")["key"], "/locks/läuft ✓");
    assert!(holders.into_iter().all(|holder| code(&holder.output()) == 0));
}

pub(crate) fn a_broken_lock_ends_its_command_and_frees_the_name<S>(site: &Site<S>, options: &[&str]) {
    let holder = site.holder(options, "echo ready; exec sleep 1000");
    let token = site.token();
    assert_eq!(site.code(&["break", "job", "--token", "1"]), 1);
    assert_eq!(site.code(&["break", "job", "--token", &token]), 0);
    let ended = holder.wait();
    assert_eq!(code(&ended), 76);
    assert!(one_line(&ended).contains("broke"), "{ended:?}");
    assert_eq!(site.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}

/// Where `lose` takes from the server what stands for the hold.
pub(crate) fn a_lost_lock_ends_its_command_with_76<S>(site: &Site<S>, ttl: &str, lose: impl FnOnce(&S)) {
    let holder = site.holder(&["--ttl", ttl], "echo ready; exec sleep 1000");
    lose(&site.server);
    let ended = holder.wait();
    assert_eq!(code(&ended), 76);
    assert!(one_line(&ended).contains("job"), "{ended:?}");
}

/// The lock is free again when the server is back.
pub(crate) fn without_a_server_the_command_is_told_and_killed<S>(
    mut site: Site<S>,
    end: Act<S>,
    begin_again: Act<S>,
) {
    let script = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done";
    let mut holder = site.holder(&["--ttl", "4s", "--grace", "1s"], script);
    let watch = Stopwatch::start();
    end(&mut site.server);
    assert_eq!(holder.line(), "told");
    watch.assert_within(Duration::from_secs(4), "TERM at the deadline less the grace");
    let ended = holder.wait();
    assert_eq!(code(&ended), 76, "it did not stop by itself, so it was killed: {ended:?}");
    let lost = format!("leasehold: {} lock \"job\": lost", site.engine);
    assert!(stderr(&ended).contains(&lost), "{ended:?}");
    begin_again(&mut site.server);
    assert_eq!(site.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}

pub(crate) fn the_lock_of_a_killed_holder_is_free_after_its_ttl<S>(site: &Site<S>, ttl: &str) {
    let mut holder = site.holder(&["--ttl", ttl], HOLD);
    let begin = Instant::now();
    holder.kill_whole();
    drop(holder.wait());
    let taken = site.code(&["run", "-n", "job", "--", "true"]) == 75;
    assert_until(begin, Duration::from_secs(1), taken, "the server keeps it for its ttl");
    assert_eq!(site.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}

pub(crate) fn a_hold_that_is_not_renewed_ends_its_command<S>(site: &Site<S>) {
    let watch = Stopwatch::start();
    let ended = site.call(&["run", "--no-renew", "--ttl", "3s", "job", "--", "sleep", "1000"]);
    assert_eq!(code(&ended), 76, "{ended:?}");
    watch.assert_within(Duration::from_secs(6), "the command was ended");
    assert_eq!(site.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}

pub(crate) fn a_ttl_that_the_server_does_not_know_is_64<S>(site: &Site<S>) {
    for ttl in ["1999ms", "25h"] {
        let output = site.call(&["run", "--ttl", ttl, "job", "--", "true"]);
        assert_eq!(code(&output), 64, "{output:?}");
        let said = one_line(&output);
        assert!(said.contains("2s to 24h"), "{said}");
    }
}

/// Where the server was killed.
pub(crate) fn a_server_that_is_not_there_is_69<S>(site: &Site<S>) {
    for args in [&["run", "job", "--", "true"][..], &["run", "-n", "job", "--", "true"], &["list"]] {
        let watch = Stopwatch::start();
        let output = finish(site.leasehold_with("?connect_timeout=500ms", args));
        assert_eq!(code(&output), 69, "{args:?}: {output:?}");
        assert!(one_line(&output).contains("cannot connect"), "{output:?}");
        watch.assert_within(Duration::from_secs(3), "it was given up");
    }
}
