//! Names of all kinds, and other nodes in their directories.

use leasehold_core::{MAX_NAME_BYTES, Mode};

use crate::rig::{Rig, acquire};

#[test]
fn names_of_all_kinds_are_held_and_listed_apart() {
    let rig = Rig::new();
    let locks = rig.locks();
    let long = "ä".repeat(MAX_NAME_BYTES / 2);
    let emoji = "\u{1f512}".repeat(MAX_NAME_BYTES / 4);
    let mut names = vec![
        "a",
        "a/b",
        "a%2Fb",
        "/",
        "//",
        ".",
        "..",
        "...",
        "zookeeper",
        "locks",
        "leases",
        "läuft ✓",
        "\u{e000}",
        "\u{ffff}",
        "x-lock-0000000001",
        &long,
        &emoji,
    ];
    let held: Vec<_> = names.iter().map(|name| acquire(&locks, name)).collect();
    names.sort_unstable();
    let listed = rig.run(rig.locks().list("")).unwrap();
    let listed: Vec<_> = listed.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(listed, names);
    let with_prefix = rig.run(rig.locks().list("a")).unwrap();
    assert_eq!(with_prefix.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(), ["a", "a%2Fb", "a/b"]);
    held.into_iter().for_each(|guard| guard.release_blocking().unwrap());
    assert!(rig.run(rig.locks().list("")).unwrap().is_empty());
}

/// Such nodes are neither holders nor waiters, and no claim waits for them.
#[test]
fn nodes_that_are_no_locks_are_ignored() {
    let rig = Rig::new();
    let paths = ["/locks", "/locks/a", "/locks/a/readme", "/locks/a/x-latch-00000001", "/locks/%zz"];
    // One run of the command creates them all, because starting the command takes longest.
    rig.server.command_as_super(&paths.map(|path| format!("create {path} theirs")).join("\n"));
    assert!(rig.server.command(&["ls", "-R", "/locks"]).iter().any(|line| line == paths[3]));
    let locks = rig.locks();
    assert!(rig.show("a").holders.is_empty());
    let guard = acquire(&locks, "a");
    let view = rig.show("a");
    assert_eq!((view.holders.len(), view.waiters.len(), view.mode), (1, 0, Some(Mode::Exclusive)));
    assert_eq!(rig.run(locks.list("")).unwrap().len(), 1);
    guard.release_blocking().unwrap();
}

/// With a chroot that does not exist yet, and another prefix.
#[test]
fn all_paths_are_below_the_chroot_and_the_prefix() {
    let rig = Rig::new();
    let rest = format!("//127.0.0.1:{}/apps/one", rig.server.port());
    let config =
        leasehold_zookeeper::Config::from_url("zookeeper", &rest).unwrap().prefix("/my/locks").unwrap();
    let locks = rig.locks_with(|_| config);
    let guard = acquire(&locks, "a");
    assert!(rig.nodes()[0].starts_with("/apps/one/my/locks/a/_c_"), "{:?}", rig.nodes());
    assert_eq!(rig.run(locks.show("a")).unwrap().key, "/my/locks/a");
    guard.release_blocking().unwrap();
}
