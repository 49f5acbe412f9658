//! The command on an etcd server: leases, losses, names, and programs that lock with etcd's own client.

use std::time::{Duration, Instant};

use leasehold_testkit::server::EtcdServer;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    alike,
    start::program,
    tools::{HOLD, Running, assert_until, code, until},
};

/// What a lease of `etcdctl lock` has left at the least: it is one of 10 s, kept alive every 3 s. With room for a busy machine.
const KEPT_BY_ETCDCTL: Duration = Duration::from_secs(3);

/// A server, and the command on it.
pub(crate) type Site = crate::site::Site<EtcdServer>;

impl Site {
    pub(crate) fn new() -> Self {
        Self::start(&[])
    }

    /// With more arguments of `etcd`.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let server = EtcdServer::start(arguments);
        Self::at("etcd", server.url(), server)
    }

    /// `etcdctl lock` of the same name. It prints its key when it holds, and lets go when it is interrupted.
    fn etcdctl_lock(&self) -> Running {
        let mut command = program("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints=127.0.0.1:{}", self.server.port()));
        command.args(["lock", "/locks/job"]);
        Running::start(command)
    }
}

#[test]
fn processes_exclude_each_other_and_are_shown() {
    alike::processes_exclude_each_other_and_are_shown(&Site::new(), "/locks/job", "lease-bounded");
}

#[test]
fn cmd_gets_the_create_revision_of_its_key() {
    let site = Site::new();
    let mut holder = site.holder(&[], "echo ready; echo $LEASEHOLD_TOKEN; read line; true");
    let token: i64 = holder.line().parse().unwrap();
    let said = site.server.command(&["get", "--prefix", "/locks/job/", "--write-out=json"]).concat();
    let said: Value = serde_json::from_str(&said).unwrap();
    let keys = said["kvs"].as_array().unwrap();
    assert_eq!((keys.len(), &keys[0]["create_revision"]), (1, &token.into()));
    assert_eq!(code(&holder.output()), 0);
}

#[test]
fn any_name_is_locked_under_a_key_of_its_own() {
    alike::any_name_is_locked(&Site::new(), "~s0");
}

#[test]
fn a_broken_lock_ends_its_command_and_frees_the_name() {
    alike::a_broken_lock_ends_its_command_and_frees_the_name(&Site::new(), &[]);
}

#[test]
fn etcdctl_stands_in_the_same_line() {
    let site = Site::new();
    let mut foreign = site.etcdctl_lock();
    let key = foreign.line();
    assert!(key.starts_with("/locks/job/"), "{key}");
    assert_eq!(site.code(&["run", "-n", "job", "--", "true"]), 75);
    let holding = site.show("job")["holders"][0].clone();
    assert_eq!(holding["foreign"], true);
    assert_eq!(holding["id"], key["/locks/job/".len()..]);
    let waiter = Running::start(site.leasehold(&["run", "job", "--", "sh", "-c", HOLD]));
    until("a waiter", || site.show("job")["waiters"].as_array().unwrap().len() == 1);
    let mut last = site.etcdctl_lock();
    until("another", || site.show("job")["waiters"].as_array().unwrap().len() == 2);
    let standing = site.show("job")["waiters"].clone();
    assert_eq!(standing[1]["owner"], "another program", "behind ours: {standing}");
    foreign.signal(Signal::SIGINT);
    drop(foreign.wait());
    let mut waiter = waiter;
    assert_eq!(waiter.line(), "ready");
    assert_eq!(site.show("job")["waiters"].as_array().unwrap().len(), 1);
    assert_eq!(code(&waiter.output()), 0);
    assert!(last.line().starts_with("/locks/job/"), "then it is its turn");
}

/// Nothing tells such a program: without `--force` the name stays taken for what its lease had left.
#[test]
fn etcdctl_is_broken_by_its_token() {
    let site = Site::new();
    let mut first = site.etcdctl_lock();
    first.line();
    let token = site.token();
    assert_eq!(site.code(&["break", "job", "--token", &token, "--force"]), 0);
    assert_eq!(site.code(&["run", "-n", "job", "--", "true"]), 0);
    let mut second = site.etcdctl_lock();
    second.line();
    let token = site.token();
    let begin = Instant::now();
    assert_eq!(site.code(&["break", "job", "--token", &token]), 0);
    let taken = site.code(&["run", "-n", "job", "--", "true"]) == 75;
    assert_until(begin, KEPT_BY_ETCDCTL, taken, "it is taken");
    let foreign = site.show("job")["holders"][0]["foreign"] == true;
    assert_until(begin, KEPT_BY_ETCDCTL, foreign, "by another program");
    assert_eq!(site.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
    assert!(begin.elapsed() >= KEPT_BY_ETCDCTL, "{:?}", begin.elapsed());
    assert!(!second.has_ended());
}

#[test]
fn a_lock_that_the_server_forgot_is_lost_with_76() {
    alike::a_lost_lock_ends_its_command_with_76(&Site::new(), "3s", |server| {
        server.command(&["del", "", "--from-key"]);
    });
}

#[test]
fn when_the_server_is_killed_the_command_is_told_before_the_lease_ends_and_killed_by_then() {
    let (end, begin_again) = (EtcdServer::kill, EtcdServer::restart);
    alike::without_a_server_the_command_is_told_and_killed(Site::new(), end, begin_again);
}

#[test]
fn when_the_server_is_stopped_the_command_is_told_before_the_lease_ends_and_killed_by_then() {
    let site = Site::new();
    alike::without_a_server_the_command_is_told_and_killed(
        site,
        |server| server.pause(),
        |server| server.resume(),
    );
}

#[test]
fn the_lock_of_a_killed_holder_is_free_when_its_lease_has_run_out() {
    alike::the_lock_of_a_killed_holder_is_free_after_its_ttl(&Site::new(), "3s");
}
