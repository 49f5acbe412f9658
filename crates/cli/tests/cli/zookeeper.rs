//! The command on a ZooKeeper server: sessions, losses, names, and nodes of other programs.

use std::{
    process::{Command, Output},
    time::{Duration, Instant},
};

use leasehold_testkit::{server::ZookeeperServer, stopwatch::Stopwatch};
use serde_json::Value;

use crate::tools::{
    HOLD, Running, assert_taken_within_limit, assert_until, bare, code, finish, one_line, stderr, stdout,
    until,
};

/// A server, and the command on it.
pub(crate) struct Site(pub(crate) ZookeeperServer);

impl Site {
    pub(crate) fn new() -> Self {
        Self(ZookeeperServer::start(&[]))
    }

    pub(crate) fn leasehold(&self, args: &[&str]) -> Command {
        self.leasehold_with("", args)
    }

    /// With options of the URL.
    pub(crate) fn leasehold_with(&self, query: &str, args: &[&str]) -> Command {
        let mut command = bare(args);
        command.env("LEASEHOLD_URL", format!("{}{query}", self.0.url()));
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

    /// The nodes of sessions that live.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let said = self.0.four_letters("dump");
        said.lines().map(str::trim).filter(|line| line.starts_with('/')).map(str::to_owned).collect()
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
        (&"zookeeper".into(), &"/locks/job".into(), &"exclusive".into(), &"lease-bounded".into())
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
    assert_eq!(site.nodes(), [""; 0], "nor is anything left");
}

#[test]
fn cmd_gets_the_change_that_made_its_node() {
    let site = Site::new();
    let mut holder = site.holder(&[], "echo ready; echo $LEASEHOLD_TOKEN; read line; true");
    let token: i64 = holder.line().parse().unwrap();
    let node = site.nodes().pop().unwrap();
    let said = site.0.command(&["stat", &node]);
    assert!(said.contains(&format!("cZxid = 0x{token:x}")), "{said:?}");
    assert_eq!(code(&holder.output()), 0);
}

#[test]
fn any_name_is_locked_in_a_directory_of_its_own() {
    let site = Site::new();
    let long = ["n".repeat(512), "/".repeat(512)];
    let names = ["a", "a/b", "a%2Fb", "..", "läuft ✓", "zookeeper", &long[0], &long[1]];
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

/// Nothing tells another program, so it is broken by `--force` only.
#[test]
fn a_node_of_another_program_is_waited_for_shown_and_broken() {
    let site = Site::new();
    assert_eq!(site.code(&["run", "job", "--", "true"]), 0, "makes the directory");
    site.0.command(&["create", "-s", "/locks/job/by-hand-lock-", "10.0.0.7"]);
    assert_eq!(site.code(&["run", "-n", "job", "--", "true"]), 75);
    let holding = site.show("job")["holders"][0].clone();
    assert_eq!((&holding["foreign"], &holding["owner"]), (&true.into(), &"10.0.0.7".into()));
    let waiter = Running::start(site.leasehold(&["run", "job", "--", "echo", "mine"]));
    until("a waiter", || site.show("job")["waiters"].as_array().unwrap().len() == 1);
    let token = site.token();
    let refused = site.call(&["break", "job", "--token", &token]);
    assert_eq!(code(&refused), 77);
    assert!(one_line(&refused).contains("--force"), "{refused:?}");
    assert_eq!(site.code(&["break", "job", "--token", &token, "--force"]), 0);
    assert_eq!(stdout(&waiter.output()), "mine\n");
}

#[test]
fn a_lock_whose_node_is_deleted_is_lost_with_76() {
    let site = Site::new();
    let holder = site.holder(&["--ttl", "12s"], "echo ready; exec sleep 1000");
    site.0.command(&["delete", &site.nodes().pop().unwrap()]);
    let ended = holder.wait();
    assert_eq!(code(&ended), 76);
    assert!(one_line(&ended).contains("job"), "{ended:?}");
}

#[test]
fn a_lock_whose_session_ended_is_lost_with_76() {
    let site = Site::new();
    let mut holder = site.holder(&["--ttl", "3s"], HOLD);
    let begin = Instant::now();
    holder.freeze();
    let taken = site.code(&["run", "-n", "job", "--", "true"]) == 75;
    assert_until(begin, Duration::from_secs(1), taken, "the server keeps it for its timeout");
    assert_eq!(site.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
    holder.thaw();
    let ended = holder.wait();
    assert_eq!(code(&ended), 76);
    assert!(stderr(&ended).contains("leasehold: zookeeper lock \"job\": lost"), "{ended:?}");
}

/// The lock is free again when the server is back.
fn without_a_server(end: impl FnOnce(&mut ZookeeperServer), begin_again: impl FnOnce(&mut ZookeeperServer)) {
    let mut site = Site::new();
    let script = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done";
    let mut holder = site.holder(&["--ttl", "4s", "--grace", "1s"], script);
    let watch = Stopwatch::start();
    end(&mut site.0);
    assert_eq!(holder.line(), "told");
    watch.assert_within(Duration::from_secs(4), "TERM at the deadline less the grace");
    let ended = holder.wait();
    assert_eq!(code(&ended), 76, "it did not stop by itself, so it was killed: {ended:?}");
    assert!(stderr(&ended).contains("leasehold: zookeeper lock \"job\": lost"), "{ended:?}");
    begin_again(&mut site.0);
    assert_eq!(site.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}

#[test]
fn when_the_server_is_killed_the_command_is_told_before_the_session_ends_and_killed_by_then() {
    without_a_server(ZookeeperServer::kill, ZookeeperServer::restart);
}

#[test]
fn when_the_server_is_stopped_the_command_is_told_before_the_session_ends_and_killed_by_then() {
    without_a_server(|server| server.pause(), |server| server.resume());
}

#[test]
fn the_lock_of_a_killed_holder_is_free_when_its_session_has_ended() {
    let site = Site::new();
    let mut holder = site.holder(&["--ttl", "3s"], HOLD);
    let begin = Instant::now();
    holder.kill_whole();
    drop(holder.wait());
    let taken = site.code(&["run", "-n", "job", "--", "true"]) == 75;
    assert_until(begin, Duration::from_secs(1), taken, "the server keeps it for its timeout");
    assert_eq!(site.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
}
