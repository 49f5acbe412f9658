//! Behaviour of the command that is the same on every server. The file of each engine has the tests.

use std::time::{Duration, Instant};

use leasehold_testkit::stopwatch::Stopwatch;
use serde_json::Value;

use crate::{
    fixture::Fixture,
    tools::{
        HOLD, Running, assert_taken_within_limit, assert_until, code, finish, one_line, stderr, stdout, until,
    },
};

/// Stops a server, or starts it again.
type Act<S> = fn(&mut S);

pub(crate) fn processes_exclude_each_other_and_are_shown<S>(
    fixture: &Fixture<S>,
    key: &str,
    guarantee: &str,
) {
    let holder = fixture.holder(&["--owner", "first"], HOLD);
    assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 75);
    assert_taken_within_limit(|limit| fixture.code(&["run", "-w", limit, "job", "--", "true"]));
    let shown = fixture.show("job");
    assert_eq!(
        (&shown["engine"], &shown["key"], &shown["mode"], &shown["guarantee"]),
        (&fixture.engine.into(), &key.into(), &"exclusive".into(), &guarantee.into())
    );
    let holding = &shown["holders"][0];
    assert_eq!((&holding["owner"], &holding["foreign"]), (&"first".into(), &false.into()));
    assert!(holding["remaining_ms"].as_u64().is_some_and(|left| left <= 30_000));
    let args = ["run", "--owner", "second", "job", "--", "sh", "-c", "echo mine"];
    let waiter = Running::start(fixture.leasehold(&args));
    until("a waiter", || fixture.show("job")["waiters"].as_array().unwrap().len() == 1);
    assert_eq!(fixture.show("job")["waiters"][0]["owner"], "second");
    assert_eq!(stdout(&fixture.call(&["list", "--json", "jo"])).lines().count(), 1);
    assert_eq!(stdout(&fixture.call(&["list", "--json", "ja"])), "");
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(stdout(&waiter.output()), "mine\n");
    assert_eq!(stdout(&fixture.call(&["list", "--json"])), "");
}

/// `special` is a name that the engine has to encode in another way than most.
pub(crate) fn any_name_can_be_locked<S>(fixture: &Fixture<S>, special: &str) {
    let long = ["n".repeat(512), "/".repeat(512)];
    let names = ["a", "a/b", "a%2Fb", "..", "läuft ✓", special, &long[0], &long[1]];
    let holders = names.map(|name| {
        let mut running = Running::start(fixture.leasehold(&["run", "-n", name, "--", "sh", "-c", HOLD]));
        assert_eq!(running.line(), "ready", "{name}");
        assert_eq!(fixture.code(&["run", "-n", name, "--", "true"]), 75, "{name}");
        running
    });
    let listed = stdout(&fixture.call(&["list", "--json"]));
    let mut listed: Vec<String> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["name"].as_str().unwrap().to_owned())
        .collect();
    listed.sort_unstable();
    let mut wanted = names.to_vec();
    wanted.sort_unstable();
    assert_eq!(listed, wanted);
    assert_eq!(fixture.show("a/b")["key"], "/locks/a%2Fb");
    assert_eq!(fixture.show("läuft ✓")["key"], "/locks/läuft ✓");
    assert!(holders.into_iter().all(|holder| code(&holder.output()) == 0));
}

pub(crate) fn a_broken_lock_ends_its_command_and_frees_the_name<S>(fixture: &Fixture<S>, options: &[&str]) {
    let holder = fixture.holder(options, "echo ready; exec sleep 1000");
    let token = fixture.token();
    assert_eq!(fixture.code(&["break", "job", "--token", "1"]), 1);
    assert_eq!(fixture.code(&["break", "job", "--token", &token]), 0);
    let ended = holder.wait();
    assert_eq!(code(&ended), 76);
    assert!(one_line(&ended).contains("broke"), "{ended:?}");
    assert_eq!(fixture.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}

/// `lose` removes the hold from the server.
pub(crate) fn a_lost_lock_ends_its_command_with_76<S>(
    fixture: &Fixture<S>,
    ttl: &str,
    lose: impl FnOnce(&S),
) {
    let holder = fixture.holder(&["--ttl", ttl], "echo ready; exec sleep 1000");
    lose(&fixture.server);
    let ended = holder.wait();
    assert_eq!(code(&ended), 76);
    assert!(one_line(&ended).contains("job"), "{ended:?}");
}

/// The lock is free again when the server is back.
pub(crate) fn a_missing_server_ends_the_command_by_term_and_kill<S>(
    mut fixture: Fixture<S>,
    end: Act<S>,
    begin_again: Act<S>,
) {
    let script = "trap 'echo got-term' TERM; echo ready; while :; do sleep 0.05; done";
    let mut holder = fixture.holder(&["--ttl", "4s", "--grace", "1s"], script);
    let watch = Stopwatch::start();
    end(&mut fixture.server);
    assert_eq!(holder.line(), "got-term");
    watch.assert_within(Duration::from_secs(4), "TERM at the deadline less the grace");
    let ended = holder.wait();
    assert_eq!(code(&ended), 76, "it did not stop by itself, so it was killed: {ended:?}");
    let lost = format!("leasehold: {} lock \"job\": lost", fixture.engine);
    assert!(stderr(&ended).contains(&lost), "{ended:?}");
    begin_again(&mut fixture.server);
    assert_eq!(fixture.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}

pub(crate) fn the_lock_of_a_killed_holder_is_free_after_its_ttl<S>(fixture: &Fixture<S>, ttl: &str) {
    let mut holder = fixture.holder(&["--ttl", ttl], HOLD);
    let begin = Instant::now();
    holder.kill_whole();
    drop(holder.wait());
    let taken = fixture.code(&["run", "-n", "job", "--", "true"]) == 75;
    assert_until(begin, Duration::from_secs(1), taken, "the name stays taken for the ttl");
    assert_eq!(fixture.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}

pub(crate) fn a_hold_that_is_not_renewed_ends_its_command<S>(fixture: &Fixture<S>) {
    let watch = Stopwatch::start();
    let ended = fixture.call(&["run", "--no-renew", "--ttl", "3s", "job", "--", "sleep", "1000"]);
    assert_eq!(code(&ended), 76, "{ended:?}");
    watch.assert_within(Duration::from_secs(6), "the command was ended");
    assert_eq!(fixture.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}

pub(crate) fn an_unsupported_ttl_is_64<S>(fixture: &Fixture<S>) {
    for ttl in ["1999ms", "25h"] {
        let output = fixture.call(&["run", "--ttl", ttl, "job", "--", "true"]);
        assert_eq!(code(&output), 64, "{output:?}");
        let message = one_line(&output);
        assert!(message.contains("2s to 24h"), "{message}");
    }
}

/// The server was killed before.
pub(crate) fn a_missing_server_is_69<S>(fixture: &Fixture<S>) {
    for args in [&["run", "job", "--", "true"][..], &["run", "-n", "job", "--", "true"], &["list"]] {
        let watch = Stopwatch::start();
        let output = finish(fixture.leasehold_with("?connect_timeout=500ms", args));
        assert_eq!(code(&output), 69, "{args:?}: {output:?}");
        assert!(one_line(&output).contains("cannot connect"), "{output:?}");
        watch.assert_within(Duration::from_secs(3), "the command gave up");
    }
}
