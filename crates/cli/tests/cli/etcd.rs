//! The command on an etcd server: leases, losses, names, and programs that lock with the client of etcd.

use std::time::{Duration, Instant};

use leasehold_testkit::server::EtcdServer;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    shared,
    start::program,
    tools::{HOLD, Running, assert_until, bare, code, finish, stdout, until},
};

/// The least time that a lease of `etcdctl lock` has left: its ttl is 10 s and it is renewed every 3 s. With a margin
/// for a busy machine.
const ETCDCTL_LEASE_LEFT: Duration = Duration::from_secs(3);

/// A server, and the command that uses it.
pub(crate) type Fixture = crate::fixture::Fixture<EtcdServer>;

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::start(&[])
    }

    /// Starts `etcd` with these arguments.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let server = EtcdServer::start(arguments);
        Self::at("etcd", server.url(), server)
    }

    /// `etcdctl lock` of the same name. It prints its key once it holds the lock, and releases it when interrupted.
    fn etcdctl_lock(&self) -> Running {
        let mut command = program("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints=127.0.0.1:{}", self.server.port()));
        command.args(["lock", "/locks/job"]);
        Running::start(command)
    }
}

#[test]
fn processes_exclude_each_other_and_are_shown() {
    shared::processes_exclude_each_other_and_are_shown(&Fixture::new(), "/locks/job", "lease-bounded");
}

#[test]
fn cmd_gets_a_token_made_from_the_create_revision_of_its_key() {
    let fixture = Fixture::new();
    let url = fixture.server.url();
    for (url, tokens_of_a_revision) in [(url.clone(), 256), (format!("{url}?hand_over=off"), 1)] {
        let script = "echo ready; echo $LEASEHOLD_TOKEN; read line; true";
        let mut holder = fixture.holder(&["--url", &url], script);
        let token: i64 = holder.line().parse().unwrap();
        let reply = fixture.server.command(&["get", "--prefix", "/locks/job/", "--write-out=json"]).concat();
        let reply: Value = serde_json::from_str(&reply).unwrap();
        let keys = reply["kvs"].as_array().unwrap();
        let revision = keys[0]["create_revision"].as_i64().unwrap();
        assert_eq!((keys.len(), token), (1, revision * tokens_of_a_revision));
        assert_eq!(code(&holder.output()), 0);
    }
}

/// The command prints the holder, and the reason for the failed attempt.
#[test]
fn with_layout_key_the_name_is_the_key_and_a_key_without_a_lease_is_an_obstacle() {
    let fixture = Fixture::new();
    let url = format!("{}?layout=key", fixture.server.url());
    let at = |args: &[&str]| {
        let mut command = bare(args);
        command.env("LEASEHOLD_URL", &url);
        finish(command)
    };
    let mut holder = Running::start({
        let mut command = bare(&["run", "/desk_lock", "--", "sh", "-c", HOLD]);
        command.env("LEASEHOLD_URL", &url);
        command
    });
    assert_eq!(holder.line(), "ready");
    assert_eq!(fixture.server.command(&["get", "/desk_lock", "--keys-only"])[0], "/desk_lock");
    assert_eq!(code(&at(&["run", "-n", "/desk_lock", "--", "true"])), 75);
    assert_eq!(code(&holder.output()), 0);

    fixture.server.command(&["put", "/desk_lock", "locked"]);
    let shown = stdout(&at(&["show", "--json", "/desk_lock"]));
    let token = serde_json::from_str::<Value>(&shown).unwrap()["holders"][0]["token"].to_string();
    let shown = stdout(&at(&["show", "/desk_lock"]));
    assert!(shown.contains("another program (foreign)") && shown.contains("no expiry"), "{shown}");
    let refused = at(&["run", "-w", "300ms", "/desk_lock", "--", "true"]);
    let reason = String::from_utf8_lossy(&refused.stderr);
    assert!(code(&refused) == 78 && reason.contains("its key has no lease"), "{refused:?}");
    assert_eq!(code(&at(&["run", "--shared", "/desk_lock", "--", "true"])), 78);
    assert_eq!(code(&at(&["break", "/desk_lock", "--token", &token, "--force"])), 0);
    assert_eq!(code(&at(&["run", "-n", "/desk_lock", "--", "true"])), 0);
}

#[test]
fn every_name_has_its_own_key() {
    shared::any_name_can_be_locked(&Fixture::new(), "~s0");
}

#[test]
fn a_broken_lock_ends_its_command_and_frees_the_name() {
    shared::a_broken_lock_ends_its_command_and_frees_the_name(&Fixture::new(), &[]);
}

#[test]
fn etcdctl_shares_the_same_queue() {
    let fixture = Fixture::new();
    let mut foreign = fixture.etcdctl_lock();
    let key = foreign.line();
    assert!(key.starts_with("/locks/job/"), "{key}");
    assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 75);
    let holding = fixture.show("job")["holders"][0].clone();
    assert_eq!(holding["foreign"], true);
    assert_eq!(holding["id"], key["/locks/job/".len()..]);
    let waiter = Running::start(fixture.leasehold(&["run", "job", "--", "sh", "-c", HOLD]));
    until("a waiter", || fixture.show("job")["waiters"].as_array().unwrap().len() == 1);
    let mut last = fixture.etcdctl_lock();
    until("another", || fixture.show("job")["waiters"].as_array().unwrap().len() == 2);
    let waiters = fixture.show("job")["waiters"].clone();
    assert_eq!(waiters[1]["owner"], "another program", "behind ours: {waiters}");
    foreign.signal(Signal::SIGINT);
    drop(foreign.wait());
    let mut waiter = waiter;
    assert_eq!(waiter.line(), "ready");
    assert_eq!(fixture.show("job")["waiters"].as_array().unwrap().len(), 1);
    assert_eq!(code(&waiter.output()), 0);
    assert!(last.line().starts_with("/locks/job/"), "then it is granted the lock");
}

/// Such a program cannot be notified: without `--force` the name stays taken for the rest of its lease.
#[test]
fn a_lock_of_etcdctl_is_broken_by_its_token() {
    let fixture = Fixture::new();
    let mut first = fixture.etcdctl_lock();
    first.line();
    let token = fixture.token();
    assert_eq!(fixture.code(&["break", "job", "--token", &token, "--force"]), 0);
    assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 0);
    let mut second = fixture.etcdctl_lock();
    second.line();
    let token = fixture.token();
    let begin = Instant::now();
    assert_eq!(fixture.code(&["break", "job", "--token", &token]), 0);
    let taken = fixture.code(&["run", "-n", "job", "--", "true"]) == 75;
    assert_until(begin, ETCDCTL_LEASE_LEFT, taken, "it is taken");
    let foreign = fixture.show("job")["holders"][0]["foreign"] == true;
    assert_until(begin, ETCDCTL_LEASE_LEFT, foreign, "by another program");
    assert_eq!(fixture.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
    assert!(begin.elapsed() >= ETCDCTL_LEASE_LEFT, "{:?}", begin.elapsed());
    assert!(!second.has_ended());
}

#[test]
fn a_lock_deleted_on_the_server_is_lost_with_76() {
    shared::a_lost_lock_ends_its_command_with_76(&Fixture::new(), "3s", |server| {
        server.command(&["del", "", "--from-key"]);
    });
}

#[test]
fn a_killed_server_ends_the_command_before_its_lease() {
    let (end, begin_again) = (EtcdServer::kill, EtcdServer::restart);
    shared::a_missing_server_ends_the_command_by_term_and_kill(Fixture::new(), end, begin_again);
}

#[test]
fn a_stopped_server_ends_the_command_before_its_lease() {
    let fixture = Fixture::new();
    shared::a_missing_server_ends_the_command_by_term_and_kill(
        fixture,
        |server| server.pause(),
        |server| server.resume(),
    );
}

#[test]
fn the_lock_of_a_killed_holder_is_free_when_its_lease_has_run_out() {
    shared::the_lock_of_a_killed_holder_is_free_after_its_ttl(&Fixture::new(), "3s");
}
