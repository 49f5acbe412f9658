//! Programs that create the key of a lock by hand, or by a package that does, share the key with leasehold's
//! `layout=key`, while holders of both sides are killed.

use leasehold_testkit::server::EtcdServer;

use crate::{
    go,
    groups::{Contest, ROUNDS, SIDES, expect_no_overlap},
};

/// The key that the programs use: for the packages of Python, the name after their own prefix.
const KEY: &str = "/locks/shared";

/// Both sides exclude each other. `command_line` makes the command line of the other side from the port of the server.
fn exclude_each_other(what: &str, command_line: impl Fn(&str) -> Vec<String>) {
    let server = EtcdServer::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let url = format!("etcd://127.0.0.1:{}?layout=key&prefix=/locks/", server.port());
    let mut contest = Contest::of(dir.path(), &url, command_line(&server.port().to_string()));
    for _ in 0..ROUNDS {
        SIDES.iter().for_each(|side| contest.kill(side));
    }
    expect_no_overlap(&contest.finish(what));
}

fn script(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn go_by_hand_on_etcd() {
    exclude_each_other("Go with etcd's client", |port| go::ETCD_BY_HAND.command_line(&[port, KEY]));
}

#[test]
fn python_etcd3() {
    exclude_each_other("PyPI etcd3", |port| script(&["python3", "etcd.py", "etcd3", port, "shared"]));
}

#[test]
fn python_etcd3gw() {
    exclude_each_other("PyPI etcd3gw", |port| script(&["python3", "etcd.py", "etcd3gw", port, "shared"]));
}

#[test]
fn npm_etcd3() {
    exclude_each_other("npm etcd3", |port| script(&["node", "etcd.cjs", port, KEY]));
}
