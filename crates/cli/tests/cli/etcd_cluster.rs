//! The command on an etcd cluster of three members, some of which are down or stopped.

use std::time::Duration;

use leasehold_testkit::{server::EtcdCluster, stopwatch::Stopwatch};

use crate::tools::{HOLD, Running, bare, code, finish, one_line, stdout, until};

fn leasehold(url: &str, args: &[&str]) -> std::process::Command {
    let mut command = bare(args);
    command.env("LEASEHOLD_URL", url);
    command
}

#[test]
fn without_a_quorum_no_lock_is_granted_and_nothing_is_left() {
    let mut cluster = EtcdCluster::start();
    let url = cluster.url();
    let leasehold = |args: &[&str]| leasehold(&url, args);
    let script = "echo ready; exec sleep 1000";
    let mut holder = Running::start(leasehold(&["run", "--ttl", "5s", "held", "--", "sh", "-c", script]));
    assert_eq!(holder.line(), "ready");
    let left = cluster.leader();
    let others = [(left + 1) % 3, (left + 2) % 3];
    others.iter().for_each(|node| cluster.kill(*node));
    let watch = Stopwatch::start();
    let ended = holder.wait();
    assert_eq!(code(&ended), 76, "{ended:?}");
    watch.assert_within(Duration::from_secs(6), "the command was ended");
    let watch = Stopwatch::start();
    let asking = [&["run", "job", "--", "true"][..], &["run", "-w", "3s", "job", "--", "true"]]
        .map(|args| Running::start(leasehold(args)));
    for asking in asking {
        let output = asking.output();
        assert_eq!(code(&output), 69, "{output:?}");
        assert!(one_line(&output).contains("job"), "{output:?}");
        watch.assert_within(Duration::from_secs(12), "the command gave up");
    }
    let alone = format!("etcd://127.0.0.1:{}", cluster.ports()[left]);
    for args in [&["show", "held"][..], &["list"], &["show", "--json", "held"]] {
        let output = finish(leasehold(&[&["--url", &alone], args].concat()));
        assert_eq!((code(&output), stdout(&output).as_str()), (69, ""), "{output:?}");
        assert!(one_line(&output).contains("the member has no leader: is a quorum up?"), "{output:?}");
    }
    others.iter().for_each(|node| cluster.restart(*node));
    let _ = cluster.leader();
    for name in ["held", "job"] {
        assert_eq!(code(&finish(leasehold(&["run", "-w", "5m", name, "--", "true"]))), 0);
    }
    until("no key", || cluster.command(left, &["get", "--prefix", "/locks/", "--keys-only"]).is_empty());
}

#[test]
fn a_member_that_is_down_is_skipped() {
    let mut cluster = EtcdCluster::start();
    let down = (cluster.leader() + 1) % 3;
    cluster.kill(down);
    // A client begins with a random member.
    for _ in 0..4 {
        let output = finish(leasehold(&cluster.url(), &["run", "-n", "job", "--", "sh", "-c", HOLD]));
        assert_eq!((code(&output), stdout(&output).as_str()), (0, "ready\n"), "{output:?}");
    }
}

/// The paused member may be the one that the client is connected to, or the leader.
#[test]
fn a_holder_and_a_waiter_survive_the_pause_of_any_member() {
    let mut cluster = EtcdCluster::start();
    let url = cluster.url();
    let mut holder = Running::start(leasehold(&url, &["run", "job", "--", "sh", "-c", HOLD]));
    assert_eq!(holder.line(), "ready");
    let waiter = Running::start(leasehold(&url, &["run", "job", "--", "echo", "mine"]));
    let show = || finish(leasehold(&url, &["show", "--json", "job"]));
    until("a waiter", || stdout(&show()).contains("waiting_ms"));
    assert!(stdout(&show()).contains("\"guarantee\":\"best effort\""), "etcd pull request 17465");
    for member in 0..3 {
        cluster.pause(member);
        let watch = Stopwatch::start();
        let output = finish(leasehold(&url, &["run", "-w", "5m", "other", "--", "true"]));
        assert_eq!(code(&output), 0, "{output:?}");
        watch.assert_within(Duration::from_secs(8), "another name was granted");
        until("the member was paused for long", || watch.elapsed() > Duration::from_secs(4));
        assert!(!holder.has_ended(), "member {member}, {:?}: {:?}", watch.elapsed(), holder.output());
        cluster.resume(member);
        let _ = cluster.leader();
    }
    let watch = Stopwatch::start();
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(stdout(&waiter.output()), "mine\n");
    watch.assert_within(Duration::from_secs(5), "the waiter was granted");
}
