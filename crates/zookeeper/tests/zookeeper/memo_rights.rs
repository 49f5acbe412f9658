//! Memos of several logins below one prefix, whose directory the administrator has created.

use std::time::Duration;

use leasehold_core::{Locks, MemoKind, NewMemo};
use leasehold_zookeeper::Config;

use crate::{
    memo_ends::names_of_one_directory,
    rig::{Rig, acquire},
};

/// The page with the commands for an administrator.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engines/zookeeper.md");
/// The password of all logins.
const PASSWORD: &str = "secret";
/// How ZooKeeper identifies the logins `one`, `two` and `viewer`.
const ONE: &str = "digest:one:Ufs9EbiqWN6tU8NHmHTo2twhzQU=";
const TWO: &str = "digest:two:zYhNweCdbjH1SiHcE0egvike7rk=";
const VIEWER: &str = "digest:viewer:7dEkykJaEx72sa+EU9RwlWBJ2QQ=";

/// A server with a prefix in which `one` and `two` may create the directories of their names.
fn with_logins() -> Rig {
    let rig = Rig::new();
    rig.server.command_as_super(&format!("create /locks \"\" {ONE}:cr,{TWO}:cr,{VIEWER}:r"));
    rig
}

/// The locks of a login that names these others.
fn locks_of(rig: &Rig, login: &str, others: &[String]) -> Locks {
    let with_others = |config: Config| match others {
        [] => config,
        others => config.acl(&others.join(",")).unwrap(),
    };
    rig.locks_with(|config| with_others(config.login(login, PASSWORD)))
}

/// The locks of `one` and of `two`, who name each other and `viewer`.
fn naming_each_other(rig: &Rig) -> [Locks; 2] {
    [("one", TWO), ("two", ONE)]
        .map(|(login, other)| locks_of(rig, login, &[format!("{other}:cdrwa"), format!("{VIEWER}:r")]))
}

fn memo(bytes: &str) -> NewMemo {
    NewMemo::new(MemoKind::ONCE, bytes, Duration::from_secs(600)).unwrap()
}

fn store(locks: &Locks, name: &str) {
    acquire(locks, name).release_with_memo_blocking(memo(name)).unwrap();
}

fn read(locks: &Locks, name: &str) -> Option<Vec<u8>> {
    locks.read_memo_blocking(name).unwrap().map(|memo| memo.bytes)
}

#[test]
fn logins_that_name_each_other_use_the_memos_of_one_prefix() {
    let rig = with_logins();
    let [one, two] = naming_each_other(&rig);
    let viewer = locks_of(&rig, "viewer", &[]);
    for (locks, other, name) in [(&one, &two, "a"), (&two, &one, "b")] {
        assert_eq!(read(locks, name), None);
        store(locks, name);
        assert_eq!([other, &viewer].map(|locks| read(locks, name)), [Some(name.into()), Some(name.into())]);
        // The directory of the memo belongs to the other login.
        store(other, name);
    }
}

/// The first login that writes a memo owns the directory of all memos. The page says how to give rights to others
/// later.
#[test]
fn logins_that_do_not_name_each_other_are_told_to_and_an_administrator_gives_the_rights_later() {
    let rig = with_logins();
    let names: Vec<String> = names_of_one_directory().take(2).collect();
    let [first, second] = &names[..] else { unreachable!() };
    let [one, two, viewer] = ["one", "two", "viewer"].map(|login| locks_of(&rig, login, &[]));
    store(&one, first);
    let guard = acquire(&two, "held");
    for error in [
        guard.write_memo_blocking(memo("x")).unwrap_err(),
        two.read_memo_blocking("held").unwrap_err(),
        viewer.read_memo_blocking(first).unwrap_err(),
        acquire(&two, "released").release_with_memo_blocking(memo("x")).unwrap_err(),
    ] {
        let message = error.to_string();
        assert!(error.is_denied(), "{message}");
        assert!(message.contains("the memos in /locks/%memos") && message.contains("acl="), "{message}");
    }
    assert!(guard.check(), "the hold goes on");
    drop(guard);
    let page = std::fs::read_to_string(PAGE).unwrap();
    let commands: Vec<_> = page.lines().filter(|line| line.starts_with("setAcl ")).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        let command = command.replace("digest:one:...", ONE).replace("digest:two:...", TWO);
        rig.server.command_as_super(&command.replace("digest:viewer:...", VIEWER));
    }
    let [one, two] = naming_each_other(&rig);
    store(&two, second);
    for (locks, name) in [(&two, first), (&one, second), (&viewer, first), (&viewer, second)] {
        assert_eq!(read(locks, name), Some(name.as_bytes().into()));
    }
}
