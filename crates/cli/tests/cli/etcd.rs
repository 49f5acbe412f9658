//! The command on an etcd server: leases, losses, names, and programs that lock with etcd's own client.

use std::{
    process::{Command, Output},
    time::{Duration, Instant},
};

use leasehold_testkit::{server::EtcdServer, stopwatch::Stopwatch};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    start::program,
    tools::{
        HOLD, Running, assert_taken_within_limit, assert_until, bare, code, finish, one_line, stderr, stdout,
        until,
    },
};

/// What a lease of `etcdctl lock` has left at the least: it is one of 10 s, kept alive every 3 s. With room for a busy machine.
const KEPT_BY_ETCDCTL: Duration = Duration::from_secs(3);

/// A server, and the command on it.
pub(crate) struct Site(pub(crate) EtcdServer);

impl Site {
    pub(crate) fn new() -> Self {
        Self(EtcdServer::start(&[]))
    }

    pub(crate) fn leasehold(&self, args: &[&str]) -> Command {
        let mut command = bare(args);
        command.env("LEASEHOLD_URL", self.0.url());
        command
    }

    pub(crate) fn call(&self, args: &[&str]) -> Output {
        finish(self.leasehold(args))
    }

    pub(crate) fn code(&self, args: &[&str]) -> i32 {
        code(&self.call(args))
    }

    /// Starts `leasehold run OPTIONS job -- sh -c SCRIPT` and waits until the script says "ready".
    pub(crate) fn holder(&self, options: &[&str], script: &str) -> Running {
        let args = [&["run"], options, &["job", "--", "sh", "-c", script]].concat();
        let mut running = Running::start(self.leasehold(&args));
        assert_eq!(running.line(), "ready");
        running
    }

    pub(crate) fn show(&self, name: &str) -> Value {
        let output = self.call(&["show", "--json", name]);
        assert_eq!(code(&output), 0, "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The token of who holds it.
    fn token(&self) -> String {
        self.show("job")["holders"][0]["token"].to_string()
    }

    /// `etcdctl lock` of the same name. It prints its key when it holds, and lets go when it is interrupted.
    fn etcdctl_lock(&self) -> Running {
        let mut command = program("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints=127.0.0.1:{}", self.0.port()));
        command.args(["lock", "/locks/job"]);
        Running::start(command)
    }
}

#[test]
fn processes_exclude_each_other_and_are_shown() {
    let site = Site::new();
    let holder = site.holder(&["--owner", "first"], HOLD);
    assert_eq!(site.code(&["run", "-n", "job", "--", "true"]), 75);
    assert_taken_within_limit(|limit| site.code(&["run", "-w", limit, "job", "--", "true"]));
    let shown = site.show("job");
    assert_eq!(
        (&shown["engine"], &shown["key"], &shown["mode"], &shown["guarantee"]),
        (&"etcd".into(), &"/locks/job".into(), &"exclusive".into(), &"lease-bounded".into())
    );
    let holding = &shown["holders"][0];
    assert_eq!((&holding["owner"], &holding["foreign"]), (&"first".into(), &false.into()));
    assert!(holding["remaining_ms"].as_u64().is_some_and(|left| left <= 30_000));
    let args = ["run", "--owner", "second", "job", "--", "sh", "-c", "echo mine"];
    let waiter = Running::start(site.leasehold(&args));
    until("a waiter", || site.show("job")["waiters"].as_array().unwrap().len() == 1);
    assert_eq!(site.show("job")["waiters"][0]["owner"], "second");
    assert_eq!(stdout(&site.call(&["list", "--json", "jo"])).lines().count(), 1);
    assert_eq!(stdout(&site.call(&["list", "--json", "ja"])), "");
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(stdout(&waiter.output()), "mine\n");
    assert_eq!(stdout(&site.call(&["list", "--json"])), "");
}

#[test]
fn cmd_gets_the_create_revision_of_its_key() {
    let site = Site::new();
    let mut holder = site.holder(&[], "echo ready; echo $LEASEHOLD_TOKEN; read line; true");
    let token: i64 = holder.line().parse().unwrap();
    let said = site.0.command(&["get", "--prefix", "/locks/job/", "--write-out=json"]).concat();
    let said: Value = serde_json::from_str(&said).unwrap();
    let keys = said["kvs"].as_array().unwrap();
    assert_eq!((keys.len(), &keys[0]["create_revision"]), (1, &token.into()));
    assert_eq!(code(&holder.output()), 0);
}

#[test]
fn any_name_is_locked_under_a_key_of_its_own() {
    let site = Site::new();
    let long = ["n".repeat(512), "/".repeat(512)];
    let names = ["a", "a/b", "a%2Fb", "..", "läuft ✓", "~s0", &long[0], &long[1]];
    let holders = names.map(|name| {
        let mut running = Running::start(site.leasehold(&["run", "-n", name, "--", "sh", "-c", HOLD]));
        assert_eq!(running.line(), "ready", "{name}");
        assert_eq!(site.code(&["run", "-n", name, "--", "true"]), 75, "{name}");
        running
    });
    let listed = stdout(&site.call(&["list", "--json"]));
    let mut listed: Vec<String> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["name"].as_str().unwrap().to_owned())
        .collect();
    listed.sort_unstable();
    let mut wanted = names.to_vec();
    wanted.sort_unstable();
    assert_eq!(listed, wanted);
    assert_eq!(site.show("a/b")["key"], "/locks/a%2Fb");
    assert_eq!(site.show("läuft ✓")["key"], "/locks/läuft ✓");
    assert!(holders.into_iter().all(|holder| code(&holder.output()) == 0));
}

#[test]
fn a_broken_lock_ends_its_command_and_frees_the_name() {
    let site = Site::new();
    let holder = site.holder(&[], "echo ready; exec sleep 1000");
    let token = site.token();
    assert_eq!(site.code(&["break", "job", "--token", "1"]), 1);
    assert_eq!(site.code(&["break", "job", "--token", &token]), 0);
    let ended = holder.wait();
    assert_eq!(code(&ended), 76);
    assert!(one_line(&ended).contains("broke"), "{ended:?}");
    assert_eq!(site.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
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
    let site = Site::new();
    let holder = site.holder(&["--ttl", "3s"], "echo ready; exec sleep 1000");
    site.0.command(&["del", "", "--from-key"]);
    let ended = holder.wait();
    assert_eq!(code(&ended), 76);
    assert!(one_line(&ended).contains("job"), "{ended:?}");
}

/// The lock is free again when the server is back.
fn without_a_server(end: impl FnOnce(&mut EtcdServer), begin_again: impl FnOnce(&mut EtcdServer)) {
    let mut site = Site::new();
    let script = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done";
    let mut holder = site.holder(&["--ttl", "4s", "--grace", "1s"], script);
    let watch = Stopwatch::start();
    end(&mut site.0);
    assert_eq!(holder.line(), "told");
    watch.assert_within(Duration::from_secs(4), "TERM at the deadline less the grace");
    let ended = holder.wait();
    assert_eq!(code(&ended), 76, "it did not stop by itself, so it was killed: {ended:?}");
    assert!(stderr(&ended).contains("leasehold: etcd lock \"job\": lost"), "{ended:?}");
    begin_again(&mut site.0);
    assert_eq!(site.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}

#[test]
fn when_the_server_is_killed_the_command_is_told_before_the_lease_ends_and_killed_by_then() {
    without_a_server(EtcdServer::kill, EtcdServer::restart);
}

#[test]
fn when_the_server_is_stopped_the_command_is_told_before_the_lease_ends_and_killed_by_then() {
    without_a_server(|server| server.pause(), |server| server.resume());
}

#[test]
fn the_lock_of_a_killed_holder_is_free_when_its_lease_has_run_out() {
    let site = Site::new();
    let mut holder = site.holder(&["--ttl", "3s"], HOLD);
    let begin = Instant::now();
    holder.kill_whole();
    drop(holder.wait());
    let taken = site.code(&["run", "-n", "job", "--", "true"]) == 75;
    assert_until(begin, Duration::from_secs(1), taken, "the server keeps it for its ttl");
    assert_eq!(site.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}
