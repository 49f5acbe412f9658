//! What an operator sees of holders that do not go on: broken, stopped, not renewed, or without their record.

use std::thread;

use leasehold_testkit::server::{EtcdServer, MariadbServer, PostgresServer, RedisServer};
use serde_json::Value;

use crate::{
    elect::Fixture,
    tools::{Dir, HOLD, Running, code, one_line, stderr, stdout, until},
};

/// Runs a test on engines whose holds outlive a break, at the same time, because a test mostly waits.
fn each(test: impl Fn(&Fixture) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        scope.spawn(move || {
            let server = RedisServer::start(&[]);
            test(&Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ()));
        });
        scope.spawn(move || {
            let server = EtcdServer::start(&[]);
            test(&Fixture::at("etcd", server.url(), ()));
        });
        scope.spawn(move || {
            let server = PostgresServer::durable(&[]);
            test(&Fixture::at("postgres", server.url(), ()));
        });
    });
}

/// Calls the command, which must succeed. Returns what it prints.
fn printed(fixture: &Fixture, args: &[&str]) -> String {
    let output = fixture.call(args);
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""), "{} {args:?}", fixture.engine);
    stdout(&output)
}

fn holder(fixture: &Fixture) -> Value {
    fixture.show("job")["holders"][0].clone()
}

/// The remarks about the holder, on one line.
fn remarks(holder: &Value) -> String {
    let remarks = holder["remarks"].as_array().unwrap().iter();
    remarks.map(|remark| remark.as_str().unwrap()).collect::<Vec<_>>().join("; ")
}

/// A holder that hangs cannot release: the name stays taken after the break.
#[test]
fn a_broken_hold_is_told_everywhere_until_it_ends() {
    each(|fixture| {
        let mut running = fixture.holder(&["--ttl", "1m", "--owner", "alice"], HOLD);
        assert_eq!(holder(fixture)["broken"], false);
        let watch = ["watch", "--json", "--every", "100ms", "-x", "job"];
        let mut watch = Running::start(fixture.leasehold(&watch));
        let mut event = || serde_json::from_str::<Value>(&watch.line()).unwrap();
        assert_eq!([event(), event()].map(|line| line["event"].clone()), ["snapshot", "holds"]);
        running.freeze();
        let token = fixture.token();
        let told = printed(fixture, &["break", "job", "--token", &token]);
        let beginning = format!("broken: job, token {token}: the name is free when the holder stops, in ");
        assert!(told.starts_with(&beginning) && told.ends_with(" at the latest\n"), "{told}");
        let line = event();
        assert_eq!((&line["event"], &line["broken"]), (&"broken".into(), &true.into()), "{line}");
        let seen = holder(fixture);
        assert_eq!((&seen["broken"], &seen["overdue_ms"]), (&true.into(), &Value::Null), "{seen}");
        assert!(remarks(&seen).starts_with("broken: the name is free when"), "{seen}");
        let text = printed(fixture, &["show", "job"]);
        assert!(text.contains("\nbroken") && text.contains("alice (broken) "), "{text}");
        assert!(printed(fixture, &["list"]).contains("alice (broken) "));
        let told = printed(fixture, &["break", "--json", "job", "--token", &token]);
        let told: Value = serde_json::from_str(&told).unwrap();
        assert!(told["outcome"] == "broken" && told["free_within_ms"].as_u64() <= Some(60_000), "{told}");
        assert_eq!(
            (&told["holders"][0]["owner"], &told["engine"]),
            (&"alice".into(), &fixture.engine.into())
        );
        let told = printed(fixture, &["break", "--force", "job", "--token", &token]);
        assert_eq!(told, format!("ended: job, token {token}: the name is free\n"));
        let line = event();
        assert_eq!((&line["event"], &line["owner"]), (&"ended".into(), &"alice".into()), "{line}");
        running.thaw();
        until(&format!("the end of the run on {}", fixture.engine), || running.has_ended());
        let output = running.wait();
        assert_eq!(code(&output), 76, "{}", one_line(&output));
    });
}

/// R13: the databases notify no holder, and a third of this lease is more than three minutes.
#[test]
fn a_stopped_holder_of_a_long_lease_is_told_of_its_break_when_it_continues() {
    let test = |fixture: &Fixture| {
        let mut running = fixture.holder(&["--ttl", "10m"], HOLD);
        running.freeze();
        let token = fixture.token();
        let told = printed(fixture, &["break", "job", "--token", &token]);
        assert!(told.starts_with("broken: job"), "{} {told}", fixture.engine);
        running.thaw();
        until(&format!("the end of the run on {}", fixture.engine), || running.has_ended());
        let output = running.wait();
        assert_eq!(code(&output), 76, "{} {output:?}", fixture.engine);
        assert!(one_line(&output).contains("broke"), "{output:?}");
    };
    thread::scope(|scope| {
        scope.spawn(|| each(test));
        scope.spawn(move || {
            let server = MariadbServer::durable(&[]);
            test(&Fixture::at("mysql", server.url(), ()));
        });
        scope.spawn(move || {
            let dir = Dir::new();
            let url = format!("sqlite://{}/locks.db", dir.path().display());
            test(&Fixture::at("sqlite", url, ()));
        });
    });
}

/// The lock of a file has no lease, so only the state of the process tells that its holder hangs.
#[test]
fn a_stopped_process_of_a_holder_is_named_on_files() {
    let dir = Dir::new();
    let fixture = Fixture::at("file", dir.url(), ());
    let mut running = fixture.holder(&["--owner", "alice"], HOLD);
    let seen = holder(&fixture);
    let pid = seen["pid"].as_u64().unwrap();
    assert!(
        seen["process_state"].is_string() && remarks(&seen).starts_with(&format!("process: {pid} (")),
        "{seen}"
    );
    running.freeze();
    let seen = holder(&fixture);
    assert_eq!((&seen["pid"], &seen["process_state"]), (&pid.into(), &"T".into()));
    let text = printed(&fixture, &["show", "job"]);
    let told = format!("\nprocess  the holder's process {pid} is stopped (state T), and releases nothing: ");
    assert!(text.contains(&told) && text.contains("alice (stopped) "), "{text}");
    running.thaw();
    until("the process runs again", || holder(&fixture)["process_state"] != "T");
    assert_eq!(code(&running.output()), 0);
}

/// etcd tells when a lease was extended last, so one look is enough.
#[test]
fn a_hung_holder_is_seen_before_its_lease_ends_on_etcd() {
    let server = EtcdServer::start(&[]);
    let fixture = Fixture::at("etcd", server.url(), ());
    let mut running = fixture.holder(&["--ttl", "20s", "--owner", "alice"], HOLD);
    let seen = holder(&fixture);
    assert_eq!((&seen["ttl_ms"], &seen["overdue_ms"]), (&20_000.into(), &Value::Null), "{seen}");
    assert!(remarks(&seen).starts_with("lease: 20s, last renewed "), "{seen}");
    running.freeze();
    until("a renewal that is overdue", || holder(&fixture)["overdue_ms"].is_u64());
    let text = printed(&fixture, &["show", "job"]);
    assert!(text.contains("\noverdue") && text.contains("alice (not renewed) "), "{text}");
    running.thaw();
    // The lease may have ended meanwhile.
    let output = running.output();
    assert!([0, 76].contains(&code(&output)), "{output:?}");
}

/// Without the record of a hold, its key still says which claim holds.
#[test]
fn a_hold_without_its_record_leaves_no_column_empty() {
    let server = RedisServer::start(&[]);
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    let _running = fixture.holder(&["--ttl", "10m", "--owner", "alice"], HOLD);
    let token = fixture.token();
    let keys = server.command(&["--scan", "--pattern", "leasehold:{*}c*"]);
    let [record] = &keys[..] else { panic!("one record: {keys:?}") };
    assert_eq!(server.command(&["DEL", record]), ["1"]);
    let seen = holder(&fixture);
    assert_eq!((&seen["owner"], &seen["held_ms"]), (&Value::Null, &Value::Null), "{seen}");
    assert_eq!(seen["token"].as_u64(), token.parse().ok(), "{seen}");
    assert!(seen["remaining_ms"].as_u64() > Some(0), "{seen}");
    let list = printed(&fixture, &["list"]);
    let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["job", "exclusive", "unknown", &*token, "-", "0", "-"], "{list}");
    let text = printed(&fixture, &["show", "job"]);
    assert!(text.contains("\nunknown  "), "{text}");
}

/// The JSON has all that the text says.
#[test]
fn the_notes_of_show_are_in_its_json() {
    let dir = Dir::new();
    let fixture = Fixture::at("file", dir.url(), ());
    let text = printed(&fixture, &["show", "job"]);
    let notes: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("note ")).map(str::trim).collect();
    let value = fixture.show("job");
    assert!(!notes.is_empty() && value["notes"] == Value::from(notes), "{text} {value}");
}
