//! Users with the least rights, and logins that expire on the server.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
    sync::Arc,
    time::Duration,
};

use leasehold_core::{Env, Locks};
use leasehold_etcd::EtcdEngine;
use leasehold_testkit::{server::etcd_command, stopwatch::Stopwatch, suite};

use crate::rig::{PATIENCE, Rig, acquire};

/// The script of docs/engines/etcd.md that grants the rights.
const ROLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engines/etcd-role.sh");
/// The password of the administrator.
const ROOT_PASSWORD: &str = "correct-horse";
/// The user who locks, and the user who only looks: name and password.
pub(crate) const LOCKER: (&str, &str) = ("leasehold", "battery'staple\\n");
const VIEWER: (&str, &str) = ("leasehold-viewer", "$HOME-hunter2");

/// A server with both users. The clients of the fixture log in as the locker.
pub(crate) fn with_users(arguments: &[&str]) -> Rig {
    add_users(Rig::with(&[CHEAP_HASH, arguments].concat()), &["/locks"])
}

/// A cheap password hash: a test logs in often.
const CHEAP_HASH: &[&str] = &["--bcrypt-cost=4"];

/// The same with `layout=key` and this prefix.
fn with_users_and_lock_keys(prefix: &str) -> Rig {
    add_users(Rig::with_lock_keys_on(prefix, CHEAP_HASH), &[prefix, "key"])
}

/// Makes both users by the script with these arguments.
fn add_users(mut rig: Rig, arguments: &[&str]) -> Rig {
    rig.server.require_logins(ROOT_PASSWORD);
    let mut roles = Command::new("sh");
    roles.arg(ROLES).args(arguments);
    roles.env("ETCDCTL_ENDPOINTS", format!("127.0.0.1:{}", rig.server.port()));
    roles.env("ETCDCTL_USER", format!("root:{ROOT_PASSWORD}"));
    let mut roles =
        roles.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let passwords = format!("{}\n{}\n", LOCKER.1, VIEWER.1);
    roles.stdin.take().unwrap().write_all(passwords.as_bytes()).unwrap();
    let output = roles.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    rig.config = rig.config.clone().login(LOCKER.0, LOCKER.1);
    rig
}

fn locks_of(rig: &Rig, (user, password): (&str, &str)) -> Locks {
    let config = rig.config.clone().login(user, password);
    Locks::builder(Arc::new(EtcdEngine::new(config, &Env::system()))).build()
}

fn etcdctl_of(rig: &Rig, (user, password): (&str, &str), command: &[&str]) -> Output {
    let login = [format!("--user={user}"), format!("--password={password}")];
    let all: Vec<&str> = login.iter().map(String::as_str).chain(command.iter().copied()).collect();
    etcd_command(rig.server.port(), &all)
}

#[test]
fn the_etcd_engine_conforms_with_the_rights_of_a_locker() {
    let rig = with_users(&[]);
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 110, "{report}");
}

#[test]
fn the_etcd_engine_conforms_with_lock_keys_and_the_rights_of_a_locker() {
    let rig = with_users_and_lock_keys("/lock/");
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 90, "{report}");
}

#[test]
fn a_viewer_lists_and_shows_lock_keys_and_neither_locks_nor_breaks() {
    let rig = with_users_and_lock_keys("/lock/");
    let viewer = locks_of(&rig, VIEWER);
    let guard = acquire(&rig.locks(), "held");
    assert_eq!(rig.run(viewer.show("held")).unwrap().holders[0].token, Some(guard.token().number));
    assert_eq!(rig.run(viewer.list("")).unwrap().len(), 1);
    assert!(viewer.mutex("free").blocking().acquire().unwrap_err().is_denied());
    assert!(viewer.read_memo_blocking("held").unwrap_err().is_denied(), "a memo may be confidential");
    for force in [false, true] {
        let broken = rig.run(viewer.break_hold("held", guard.token().number, force));
        assert!(broken.unwrap_err().is_denied());
    }
    let outside = etcdctl_of(&rig, LOCKER, &["put", "/other", "mine"]);
    assert!(!outside.status.success(), "{outside:?}");
    guard.release_blocking().unwrap();
}

#[test]
fn neither_user_reads_or_changes_other_keys() {
    let rig = with_users(&[]);
    rig.server.command(&["put", "other", "theirs"]);
    let guard = acquire(&rig.locks(), "held");
    let allowed = [
        ["get", "/locks/", "--prefix"].as_slice(),
        &["put", "/locks/x/y", "mine"],
        &["get", "leasehold//locks/", "--prefix"],
        &["put", "leasehold//locks/fence/x", "mine"],
    ];
    for command in allowed {
        let output = etcdctl_of(&rig, LOCKER, command);
        assert!(output.status.success(), "{command:?}: {output:?}");
    }
    let output = etcdctl_of(&rig, VIEWER, allowed[0]);
    assert!(output.status.success(), "{output:?}");
    let forbidden = [
        ["get", "other"].as_slice(),
        &["get", "", "--from-key"],
        &["put", "other", "mine"],
        &["del", "other"],
        &["put", "/locks", "mine"],
        &["put", "/locks0", "mine"],
        &["put", "leasehold//locks", "mine"],
        &["get", "leasehold/", "--prefix"],
        &["user", "add", "more:hunter2"],
        &["role", "grant-permission", "leasehold", "readwrite", "other"],
        &["auth", "disable"],
    ];
    let refused = |user, command: &[&str]| {
        let output = etcdctl_of(&rig, user, command);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains("permission denied"), "{command:?}: {output:?}");
    };
    for command in forbidden {
        refused(LOCKER, command);
        refused(VIEWER, command);
    }
    for command in &allowed[1..] {
        refused(VIEWER, command);
    }
    refused(VIEWER, &["del", "/locks/", "--prefix"]);
    assert!(guard.check());
    guard.release_blocking().unwrap();
}

#[test]
fn a_viewer_lists_and_shows_and_neither_locks_nor_breaks() {
    let rig = with_users(&[]);
    let viewer = locks_of(&rig, VIEWER);
    let guard = acquire(&rig.locks(), "held");
    let token = guard.token().number;
    let shown = rig.run(viewer.show("held")).unwrap();
    assert_eq!(shown.holders[0].token, Some(token));
    assert!(shown.holders[0].remaining.is_some());
    assert_eq!(rig.run(viewer.list("")).unwrap().len(), 1);
    rig.run(viewer.guarantee()).unwrap();
    assert!(viewer.mutex("free").blocking().acquire().unwrap_err().is_denied());
    assert!(viewer.read_memo_blocking("held").unwrap_err().is_denied(), "a memo may be confidential");
    for force in [false, true] {
        assert!(rig.run(viewer.break_hold("held", token, force)).unwrap_err().is_denied());
    }
    rig.run(guard.confirm()).unwrap();
    guard.release_blocking().unwrap();
    assert!(rig.run(viewer.list("")).unwrap().is_empty());
}

/// The server keeps a login while it is used, and a little longer.
#[test]
fn a_forgotten_login_is_renewed_without_an_error() {
    let rig = with_users(&["--auth-token-ttl=1"]);
    // Each client has its own login.
    let (idle, holds, lets_go, waits) = (rig.locks(), rig.locks(), rig.locks(), rig.locks());
    for round in ["first", "second"] {
        acquire(&idle, round).release_blocking().unwrap();
        let held = acquire(&holds, "held");
        let handed_on = acquire(&lets_go, "handed on");
        let waiting = {
            let waits = waits.clone();
            std::thread::spawn(move || waits.mutex("handed on").blocking().acquire_within(PATIENCE))
        };
        rig.until("it waits", || rig.show("handed on").waiters.len() == 1);
        // No request keeps the logins alive meanwhile.
        std::thread::sleep(Duration::from_secs(4));
        let watch = Stopwatch::start();
        idle.mutex(round).blocking().try_acquire().unwrap().release_blocking().unwrap();
        watch.assert_within(Duration::from_secs(2), "a lock after a login was forgotten");
        rig.run(held.confirm()).unwrap();
        held.release_blocking().unwrap();
        handed_on.release_blocking().unwrap();
        waiting.join().unwrap().unwrap().release_blocking().unwrap();
    }
}
