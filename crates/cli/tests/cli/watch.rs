//! `leasehold watch`.

use leasehold_testkit::server::{Proxy, RedisServer};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    elect::{Fixture, each},
    tools::{Dir, HOLD, Running, bare, code, finish, one_line, stdout, until},
};

fn watch(fixture: &Fixture, args: &[&str]) -> Running {
    Running::start(fixture.leasehold(&[&["watch", "--every", "100ms"], args].concat()))
}

/// The next line as JSON. Checks that the lines are numbered.
fn next(watch: &mut Running, seq: &mut u64) -> Value {
    let line = watch.line();
    let value: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no object: {line:?}"));
    *seq += 1;
    assert_eq!(value["seq"], *seq, "{line}");
    value
}

/// The event, the name and the owner of a line.
fn words(value: &Value) -> [&str; 3] {
    ["event", "name", "owner"].map(|field| value[field].as_str().unwrap_or("-"))
}

fn run(fixture: &Fixture, owner: &str, name: &str) -> Running {
    Running::start(fixture.leasehold(&["run", "--owner", owner, name, "--", "sh", "-c", HOLD]))
}

#[test]
fn a_line_for_each_change_follows_the_snapshot() {
    each(|fixture| {
        let mut first = run(fixture, "alice", "job");
        assert_eq!(first.line(), "ready");
        let (mut watch, mut seq) = (watch(fixture, &["--json", "j"]), 0);
        let snapshot = next(&mut watch, &mut seq);
        assert_eq!((&snapshot["names"], &snapshot["engine"]), (&1.into(), &fixture.engine.into()));
        let holds = next(&mut watch, &mut seq);
        assert_eq!(words(&holds), ["holds", "job", "alice"]);
        let mut second = run(fixture, "bob", "job");
        let waiting = next(&mut watch, &mut seq);
        assert_eq!(words(&waiting), ["waiting", "job", "bob"]);
        assert_eq!(code(&first.output()), 0);
        let ended = next(&mut watch, &mut seq);
        assert_eq!((words(&ended), &ended["id"]), (["ended", "job", "alice"], &holds["id"]));
        let granted = next(&mut watch, &mut seq);
        assert_eq!((words(&granted), &granted["id"]), (["granted", "job", "bob"], &waiting["id"]));
        assert!(
            granted["token"].as_u64() > ended["token"].as_u64() && granted["waited_ms"].is_u64(),
            "{granted}"
        );
        let mut third = run(fixture, "carol", "job");
        assert_eq!(words(&next(&mut watch, &mut seq)), ["waiting", "job", "carol"]);
        third.signal(Signal::SIGTERM);
        assert_eq!(words(&next(&mut watch, &mut seq)), ["left", "job", "carol"]);
        assert_eq!(second.line(), "ready");
        assert_eq!(code(&second.output()), 0);
        assert_eq!(words(&next(&mut watch, &mut seq)), ["ended", "job", "bob"]);
        watch.signal(Signal::SIGTERM);
        assert_eq!(code(&watch.wait()), 143);
    });
}

#[test]
fn text_and_exact_names() {
    let dir = Dir::new();
    let fixture = Fixture::at("file", dir.url(), ());
    let longer = dir.holder(&["--owner", "bob"], "job/2", HOLD);
    let mut watch = watch(&fixture, &["-x", "job"]);
    assert!(watch.line().ends_with(" * snapshot: names in use: 0"));
    assert_eq!(code(&longer.output()), 0);
    let holder = dir.holder(&["--owner", "alice\u{202e}"], "job", HOLD);
    let granted = watch.line();
    assert!(granted.contains(" job granted: alice\\u{202e}, token 1"), "{granted}");
    assert_eq!(code(&holder.output()), 0);
    let ended = watch.line();
    assert!(ended.contains(" job ended: alice\\u{202e}, token 1, held "), "{ended}");
}

/// The end of the reader ends the watch, although nothing changes.
#[test]
fn the_end_of_the_reader_ends_the_watch() {
    let dir = Dir::new();
    let mut watch = watch(&Fixture::at("file", dir.url(), ()), &[]);
    assert!(watch.line().contains("snapshot"));
    watch.close_output();
    let output = watch.wait();
    assert_eq!((code(&output), output.stderr.as_slice()), (141, &b""[..]));
    assert!(!dir.locks().exists(), "it created nothing");
}

#[test]
fn an_outage_is_told_once_and_ends_with_a_resync() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(server.port());
    let direct = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    let mut holder = run(&direct, "alice", "job");
    assert_eq!(holder.line(), "ready");
    let by_proxy = format!("redis://127.0.0.1:{}?connect_timeout=1s", proxy.port());
    let (mut watch, mut seq) = (watch(&Fixture::at("redis", by_proxy, ()), &["--json"]), 0);
    assert_eq!(words(&next(&mut watch, &mut seq)), ["snapshot", "-", "-"]);
    assert_eq!(words(&next(&mut watch, &mut seq)), ["holds", "job", "alice"]);
    proxy.block();
    let message = watch.stderr_line();
    assert!(message.contains("redis engine") && message.contains("a line `resync` follows"), "{message}");
    assert_eq!(code(&holder.output()), 0);
    let mut next_holder = run(&direct, "bob", "job");
    assert_eq!(next_holder.line(), "ready");
    proxy.unblock();
    let resync = next(&mut watch, &mut seq);
    assert!(words(&resync) == ["resync", "-", "-"] && resync["away_ms"].is_u64(), "{resync}");
    assert_eq!(words(&next(&mut watch, &mut seq)), ["ended", "job", "alice"]);
    assert_eq!(words(&next(&mut watch, &mut seq)), ["granted", "job", "bob"]);
    watch.signal(Signal::SIGINT);
    let output = watch.wait();
    assert_eq!((code(&output), output.stderr.as_slice()), (130, &b""[..]), "one message for one outage");
    assert_eq!(code(&next_holder.output()), 0);
}

/// A holder that dies with its process keeps a lease, which runs out.
#[test]
fn a_lease_that_runs_out_has_lapsed() {
    let server = RedisServer::start(&[]);
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    let args = ["run", "--ttl", "3s", "--owner", "alice", "job", "--", "sh", "-c", HOLD];
    let mut holder = Running::start(fixture.leasehold(&args));
    assert_eq!(holder.line(), "ready");
    let mut watch = watch(&fixture, &[]);
    assert!(watch.line().contains("snapshot") && watch.line().contains(" job holds: alice, token "));
    holder.kill_whole();
    let lapsed = watch.line();
    assert!(lapsed.contains(" job lapsed: alice, token "), "{lapsed}");
}

#[test]
fn errors_at_first_contact_and_wrong_arguments() {
    let output = finish(bare(&["--url", "redis://:canary@127.0.0.1:1", "watch"]));
    assert_eq!(code(&output), 69, "{output:?}");
    assert!(!one_line(&output).contains("canary") && stdout(&output).is_empty(), "{output:?}");
    for args in [&["watch", "--every", "99ms"][..], &["watch", "--every", "2h"], &["watch", "-x", ""]] {
        let output = finish(bare(args));
        assert_eq!(code(&output), 64, "{args:?}: {output:?}");
        one_line(&output);
    }
    let dir = Dir::new();
    until("a usage error creates nothing", || !dir.locks().exists());
}
