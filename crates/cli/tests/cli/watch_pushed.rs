//! `leasehold watch` where the engine tells changes: each line comes at once, whatever the pause between two looks.

use leasehold_testkit::server::{EtcdServer, RedisServer, ZookeeperServer};

use crate::{
    elect::Fixture,
    start::{LEASEHOLD, program},
    tools::{Dir, HOLD, PATIENCE, Running, code, stdout, until},
};

/// A watch that looks again after an hour unless the engine tells a change. It ends after [`PATIENCE`], and then prints
/// no more lines.
fn watch(url: &str, args: &[&str]) -> Running {
    let mut command = program("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(LEASEHOLD).args(["watch", "--every", "1h"]).args(args);
    command.env("LEASEHOLD_URL", url);
    Running::start(command)
}

fn run(fixture: &Fixture, owner: &str) -> Running {
    Running::start(fixture.leasehold(&["run", "--owner", owner, "job", "--", "sh", "-c", HOLD]))
}

#[track_caller]
fn assert_next(watches: &mut [Running], words: &str) {
    for watch in watches {
        let line = watch.line();
        assert!(line.contains(words), "{words:?} is not told at once: {line:?}");
    }
}

/// Changes are told at once, to watches of the name and of a prefix, by a user with `viewer_url`.
fn changes_are_told_at_once(fixture: &Fixture, viewer_url: &str) {
    let mut watches = [watch(viewer_url, &["-x", "job"]), watch(viewer_url, &["jo"])];
    assert_next(&mut watches, "snapshot: names in use: 0");
    let mut first = run(fixture, "alice");
    assert_eq!(first.line(), "ready");
    assert_next(&mut watches, "job granted: alice, token ");
    let mut second = run(fixture, "bob");
    assert_next(&mut watches, "job waiting: bob");
    assert_eq!(code(&first.output()), 0);
    assert_next(&mut watches, "job ended: alice, token ");
    assert_next(&mut watches, "job granted: bob, token ");
    assert_eq!(second.line(), "ready");
    assert_eq!(code(&second.output()), 0);
    assert_next(&mut watches, "job ended: bob, token ");
}

#[test]
fn files_tell_changes() {
    let dir = Dir::new();
    let fixture = Fixture::at("file", dir.url(), ());
    assert_eq!(fixture.code(&["run", "other", "--", "true"]), 0, "the directory exists");
    changes_are_told_at_once(&fixture, &dir.url());
    let mut killed = dir.hold("job");
    let mut watches = [watch(&dir.url(), &["-x", "job"])];
    assert_next(&mut watches, "snapshot: names in use: 1");
    assert_next(&mut watches, "job holds: ");
    killed.kill_whole();
    assert_next(&mut watches, "job ended: ");
}

/// The directory does not exist when the watch begins.
#[test]
fn files_tell_changes_of_a_new_directory() {
    let dir = Dir::new();
    let mut watches = [watch(&dir.url(), &["job"])];
    assert_next(&mut watches, "snapshot: names in use: 0");
    assert!(!dir.locks().exists(), "the watch created nothing");
    let holder = dir.hold("job");
    assert_next(&mut watches, "job granted: ");
    assert_eq!(code(&holder.output()), 0);
    assert_next(&mut watches, "job ended: ");
}

#[test]
fn etcd_tells_changes() {
    let server = EtcdServer::start(&[]);
    for query in ["", "?layout=key"] {
        let url = format!("{}{query}", server.url());
        changes_are_told_at_once(&Fixture::at("etcd", url.clone(), ()), &url);
    }
}

/// etcd does not tell when a hold or a wait began: it is known only for how long it was seen.
#[test]
fn the_time_of_a_hold_on_etcd_is_that_since_it_was_seen() {
    let server = EtcdServer::start(&[]);
    let fixture = Fixture::at("etcd", server.url(), ());
    let mut holder = run(&fixture, "alice");
    assert_eq!(holder.line(), "ready");
    let mut watch = watch(&server.url(), &["job"]);
    assert!(watch.line().contains("snapshot"));
    let first = watch.line();
    assert!(first.contains("job holds: alice, token ") && !first.contains("held"), "{first}");
    // The wait makes the watch look again, and so the next look has seen the hold for a while.
    let waiting = run(&fixture, "bob");
    assert!(watch.line().contains("job waiting: bob"));
    assert_eq!(code(&holder.output()), 0);
    let ended = watch.line();
    assert!(ended.contains("job ended: alice, token ") && ended.contains(", held >"), "{ended}");
    drop(waiting);
    let examined = fixture.call(&["doctor"]);
    assert!(stdout(&examined).contains("no deadlock at this engine"), "{examined:?}");
}

/// The watch needs no right that `list` does not need.
#[test]
fn etcd_tells_changes_to_a_user_who_may_only_read_the_locks() {
    let server = EtcdServer::start(&[]);
    for words in [
        &["user", "add", "root:hunter2-root"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "me:hunter2-right"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "locks", "readwrite", "--prefix", "/locks/"],
        &["role", "grant-permission", "locks", "readwrite", "--prefix", "leasehold//locks/"],
        &["user", "grant-role", "me", "locks"],
        &["user", "add", "viewer:hunter2-view"],
        &["role", "add", "view"],
        &["role", "grant-permission", "view", "read", "--prefix", "/locks/"],
        &["user", "grant-role", "viewer", "view"],
        &["auth", "enable"],
    ] {
        server.command(words);
    }
    let url = |login: &str| format!("etcd://{login}@127.0.0.1:{}", server.port());
    let fixture = Fixture::at("etcd", url("me:hunter2-right"), ());
    changes_are_told_at_once(&fixture, &url("viewer:hunter2-view"));
}

#[test]
fn zookeeper_tells_changes() {
    let server = ZookeeperServer::start(&[]);
    for query in ["", "?layout=rw", "?layout=plain&path=/apps/job"] {
        let url = format!("{}{query}", server.url());
        changes_are_told_at_once(&Fixture::at("zookeeper", url.clone(), ()), &url);
    }
}

#[test]
fn redis_tells_changes() {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    changes_are_told_at_once(&Fixture::at("redis", url.clone(), ()), &url);
    // No connection of a view is left.
    until("the views are gone", || !server.command(&["CLIENT", "LIST"]).concat().contains("resp=3"));
}

#[test]
fn sqlite_tells_changes() {
    let dir = Dir::new();
    let url = format!("sqlite://{}/locks.db", dir.path().display());
    let fixture = Fixture::at("sqlite", url.clone(), ());
    assert_eq!(fixture.code(&["run", "other", "--", "true"]), 0, "the database exists");
    changes_are_told_at_once(&fixture, &url);
}
