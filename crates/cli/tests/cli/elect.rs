//! Elections by the command: `elect` and `leader`, on files and on servers.

use std::thread;

use leasehold_testkit::server::{PostgresServer, RedisServer};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    fixture::Fixture as EngineFixture,
    tools::{Dir, HOLD, Running, bare, code, finish, is_running, one_line, stderr, stdout, until},
};

/// An engine, and the command that uses it.
pub(crate) type Fixture = EngineFixture<()>;

/// Runs a test on files, Redis and PostgreSQL at once, because a test mostly waits.
pub(crate) fn each(test: impl Fn(&Fixture) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        scope.spawn(move || {
            let dir = Dir::new();
            test(&Fixture::at("file", dir.url(), ()));
        });
        scope.spawn(move || {
            let server = RedisServer::start(&[]);
            test(&Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ()));
        });
        scope.spawn(move || {
            let server = PostgresServer::durable(&[]);
            test(&Fixture::at("postgres", server.url(), ()));
        });
    });
}

/// Starts `leasehold elect OPTIONS job -- sh -c SCRIPT`.
fn candidate(fixture: &Fixture, options: &[&str], script: &str) -> Running {
    let args = [&["elect"], options, &["job", "--", "sh", "-c", script]].concat();
    Running::start(fixture.leasehold(&args))
}

/// As [`candidate`], and waits until CMD runs.
fn leader(fixture: &Fixture, options: &[&str], script: &str) -> Running {
    let mut leader = candidate(fixture, options, script);
    assert_eq!(leader.line(), "ready");
    leader
}

fn until_waiters(fixture: &Fixture, count: usize) {
    until("waiters", || fixture.show("job")["waiters"].as_array().unwrap().len() == count);
}

/// The term and the value that `leader` prints.
fn shown(fixture: &Fixture) -> (u64, String) {
    let output = fixture.call(&["leader", "job"]);
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""), "{output:?}");
    let line = stdout(&output);
    let (term, value) = line.trim_end().split_once(' ').unwrap();
    (term.parse().unwrap(), value.to_owned())
}

#[test]
fn a_leader_publishes_its_value_and_hands_over_when_it_resigns() {
    each(|fixture| {
        let vacant = fixture.call(&["leader", "job"]);
        assert_eq!((code(&vacant), stdout(&vacant).as_str()), (1, ""));
        assert!(one_line(&vacant).contains("election \"job\": vacant"), "{vacant:?}");
        let mut first = leader(
            fixture,
            &["--value", "10.0.0.7:80"],
            "echo ready; echo $LEASEHOLD_TOKEN; read line; exit 3",
        );
        let term: u64 = first.line().parse().unwrap();
        assert_eq!(shown(fixture), (term, "10.0.0.7:80".to_owned()));
        let mut second = candidate(fixture, &["--value", "b"], HOLD);
        until_waiters(fixture, 1);
        assert_eq!(fixture.code(&["elect", "-n", "job", "--", "true"]), 75, "the lead is taken");
        first.write("\n");
        assert_eq!(code(&first.wait()), 3, "the code of CMD");
        assert_eq!(second.line(), "ready");
        let (next_term, value) = shown(fixture);
        assert!(next_term > term && value == "b", "{next_term} {value}");
        assert_eq!(code(&second.output()), 0);
        let json = fixture.call(&["leader", "--json", "job"]);
        assert_eq!((code(&json), stderr(&json).as_str()), (1, ""));
        let json: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!((&json["state"], &json["value"]), (&"vacant".into(), &Value::Null));
        assert_eq!((&json["term"], &json["engine"]), (&Value::Null, &fixture.engine.into()));
    });
}

#[test]
fn leader_creates_nothing() {
    let dir = Dir::new();
    assert_eq!(dir.code(&["leader", "job"]), 1);
    assert!(!dir.locks().exists());
}

#[test]
fn json_has_the_value_as_it_is_and_text_escapes_it() {
    let dir = Dir::new();
    let value = "a b\n\u{1b}[31m";
    let mut leader =
        Running::start(dir.leasehold(&["elect", "--value", value, "job", "--", "sh", "-c", HOLD]));
    assert_eq!(leader.line(), "ready");
    let output = stdout(&dir.call(&["leader", "--json", "job"]));
    assert!(output.lines().count() == 1 && !output.contains('\u{1b}'), "{output:?}");
    let json: Value = serde_json::from_str(&output).unwrap();
    let expected = (&"job".into(), &"held".into(), &Value::from(value));
    assert_eq!((&json["name"], &json["state"], &json["value"]), expected);
    let lineage = json["lineage"].as_str().unwrap();
    assert!(json["term"].is_u64() && lineage.len() == 32, "{json}");
    assert!(stdout(&dir.call(&["leader", "job"])).ends_with(" a b\\u{a}\\u{1b}[31m\n"));
    assert_eq!(code(&leader.output()), 0);
    let mut leader = Running::start(dir.leasehold(&["elect", "job", "--", "sh", "-c", HOLD]));
    assert_eq!(leader.line(), "ready");
    assert!(stdout(&dir.call(&["leader", "job"])).ends_with(" -\n"), "no value");
}

/// The front is killed: the guardian ends CMD and resigns.
#[test]
fn when_the_leader_is_killed_its_command_ends_and_the_next_one_leads() {
    each(|fixture| {
        // The lease is longer than the test waits.
        let options = ["--ttl", "300s", "--value", "a"];
        let mut first = leader(fixture, &options, "echo ready; echo $$; exec sleep 1000");
        let cmd = first.number();
        let mut second = candidate(fixture, &["--value", "b"], HOLD);
        until_waiters(fixture, 1);
        first.signal(Signal::SIGKILL);
        assert_eq!(second.line(), "ready");
        assert!(!is_running(cmd), "{}: CMD runs beside the next leader", fixture.engine);
        assert_eq!(shown(fixture).1, "b");
        assert_eq!(code(&second.output()), 0);
    });
}

/// Both processes are killed, as by a power failure: nobody resigns.
#[test]
fn after_a_crash_the_next_one_leads_when_the_lease_has_ended() {
    each(|fixture| {
        let mut first = leader(fixture, &["--ttl", "2s", "--value", "a"], "echo ready; exec sleep 1000");
        let (term, _) = shown(fixture);
        let mut second = candidate(fixture, &["--value", "b"], HOLD);
        until_waiters(fixture, 1);
        first.kill_whole();
        assert_eq!(second.line(), "ready");
        let (next_term, value) = shown(fixture);
        assert!(next_term > term && value == "b", "{next_term} {value}");
        assert_eq!(code(&second.output()), 0);
    });
}

#[test]
fn a_lost_lead_ends_cmd_with_76() {
    let server = RedisServer::start(&[]);
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    let leader = leader(&fixture, &["--value", "a"], "echo ready; exec sleep 1000");
    assert_eq!(fixture.code(&["break", "job", "--token", &fixture.token()]), 0);
    let output = leader.wait();
    assert_eq!(code(&output), 76);
    assert!(one_line(&output).contains("lost while sh ran"), "{output:?}");
    assert_eq!(fixture.code(&["leader", "job"]), 1);
}

#[test]
fn follow_prints_each_change_until_a_signal() {
    each(|fixture| {
        let mut text = Running::start(fixture.leasehold(&["leader", "--follow", "job"]));
        let mut json = Running::start(fixture.leasehold(&["leader", "-f", "--json", "job"]));
        let mut state = || serde_json::from_str::<Value>(&json.line()).unwrap()["state"].clone();
        assert_eq!((text.line().as_str(), state()), ("vacant", "vacant".into()));
        let first = leader(fixture, &["--value", "a"], HOLD);
        let (term, _) = shown(fixture);
        assert_eq!((text.line(), state()), (format!("{term} a"), "held".into()));
        assert_eq!(code(&first.output()), 0);
        assert_eq!((text.line().as_str(), state()), ("vacant", "vacant".into()));
        for (mut follower, signal, expected) in [(text, Signal::SIGTERM, 143), (json, Signal::SIGINT, 130)] {
            follower.signal(signal);
            let output = follower.wait();
            assert_eq!((code(&output), stderr(&output).as_str()), (expected, ""));
        }
    });
}

#[test]
fn follow_ends_when_its_reader_has_gone() {
    let dir = Dir::new();
    let mut follower = Running::start(dir.leasehold(&["leader", "--follow", "job"]));
    assert_eq!(follower.line(), "vacant");
    // Nothing changes, so nothing is written.
    follower.close_output();
    until("its end", || follower.has_ended());
    let output = follower.wait();
    assert_eq!((code(&output), stderr(&output).as_str()), (141, ""));
}

#[test]
fn a_leader_inside_its_own_election_is_refused() {
    let dir = Dir::new();
    let inner = [crate::start::LEASEHOLD, "elect", "job", "--", "true"];
    let output = dir.call(&[&["elect", "--pass-url", "job", "--"], &inner[..]].concat());
    let message = one_line(&output);
    assert_eq!(code(&output), 64, "{message}");
    assert!(message.contains("waiting would never end: use another name"), "{message}");
}

#[test]
fn wrong_arguments_are_refused_before_cmd_runs() {
    let dir = Dir::new();
    let long = "x".repeat(65_537);
    for (args, text) in [
        (&["elect", "job"][..], "<CMD>"),
        (&["elect", "job", "--"], "<CMD>"),
        (&["elect", "", "--", "echo"], "the name is empty"),
        (&["elect", "--value", "", "job", "--", "echo"], "the value of a leader is empty"),
        (&["elect", "--value", &long, "job", "--", "echo"], "65537 bytes: at most 65536"),
        (&["elect", "--shared", "job", "--", "echo"], "--shared"),
        (&["elect", "--ttl", "1ns", "job", "--", "echo"], "ttl"),
        (&["leader"], "<NAME>"),
        (&["leader", "a\nb"], "control character"),
        (&["leader", "--folow", "job"], "--follow"),
        (&["leader", "job", "other"], "other"),
    ] {
        let output = dir.call(args);
        let message = one_line(&output);
        assert!(code(&output) == 64 && message.contains(text), "{args:?}: {message}");
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

/// A lock of a session has nothing beside it, so its leader has a term and no value.
#[test]
fn an_engine_without_memos_elects_without_a_value() {
    let server = PostgresServer::durable(&[]);
    let url = server.url();
    let mark = if url.contains('?') { '&' } else { '?' };
    let fixture = Fixture::at("postgres", format!("{url}{mark}hold=session"), ());
    let leader = leader(&fixture, &[], HOLD);
    assert_eq!(fixture.code(&["elect", "-n", "job", "--", "true"]), 75);
    assert_eq!(fixture.code(&["leader", "job"]), 78);
    assert_eq!(code(&leader.output()), 0);
    assert_eq!(fixture.code(&["elect", "-n", "job", "--", "true"]), 0);
}

/// Nothing listens on these ports: the refusal comes before anything is sent.
#[test]
fn engines_without_memos_refuse_with_78() {
    let url = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    for args in [
        &["leader", "job"][..],
        &["leader", "--follow", "job"],
        &["elect", "--value", "a", "job", "--", "true"],
        &["once", "--for", "1d", "job", "--", "true"],
    ] {
        let mut command = bare(args);
        command.env("LEASEHOLD_URL", url);
        let output = finish(command);
        let message = one_line(&output);
        assert!(code(&output) == 78 && message.contains("stores no memos"), "{args:?}: {message}");
    }
}

#[test]
fn an_engine_that_cannot_be_reached_is_69() {
    for args in [&["leader", "job"][..], &["leader", "--follow", "job"]] {
        let mut command = bare(args);
        command.env("LEASEHOLD_URL", "redis://127.0.0.1:1");
        let output = finish(command);
        assert_eq!(code(&output), 69, "{}", one_line(&output));
    }
}
