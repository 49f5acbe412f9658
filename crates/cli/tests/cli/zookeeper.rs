//! The command on a ZooKeeper server: sessions, losses, names, and nodes of other programs.

use std::time::{Duration, Instant};

use leasehold_testkit::server::ZookeeperServer;

use crate::{
    alike,
    tools::{HOLD, Running, assert_until, code, one_line, stderr, stdout, until},
};

/// A server, and the command on it.
pub(crate) type Site = crate::site::Site<ZookeeperServer>;

impl Site {
    pub(crate) fn new() -> Self {
        Self::start(&[])
    }

    /// With more lines of `zoo.cfg`.
    pub(crate) fn start(lines: &[&str]) -> Self {
        let server = ZookeeperServer::start(lines);
        Self::at("zookeeper", server.url(), server)
    }

    /// The nodes of sessions that live.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let said = self.server.four_letters("dump");
        said.lines().map(str::trim).filter(|line| line.starts_with('/')).map(str::to_owned).collect()
    }
}

#[test]
fn processes_exclude_each_other_and_are_shown() {
    let site = Site::new();
    alike::processes_exclude_each_other_and_are_shown(&site, "/locks/job", "lease-bounded");
    assert_eq!(site.nodes(), [""; 0], "nor is anything left");
}

#[test]
fn cmd_gets_the_change_that_made_its_node() {
    let site = Site::new();
    let mut holder = site.holder(&[], "echo ready; echo $LEASEHOLD_TOKEN; read line; true");
    let token: i64 = holder.line().parse().unwrap();
    let node = site.nodes().pop().unwrap();
    let said = site.server.command(&["stat", &node]);
    assert!(said.contains(&format!("cZxid = 0x{token:x}")), "{said:?}");
    assert_eq!(code(&holder.output()), 0);
}

#[test]
fn any_name_is_locked_in_a_directory_of_its_own() {
    alike::any_name_is_locked(&Site::new(), "zookeeper");
}

#[test]
fn a_broken_lock_ends_its_command_and_frees_the_name() {
    alike::a_broken_lock_ends_its_command_and_frees_the_name(&Site::new(), &[]);
}

/// Nothing tells another program, so it is broken by `--force` only.
#[test]
fn a_node_of_another_program_is_waited_for_shown_and_broken() {
    let site = Site::new();
    assert_eq!(site.code(&["run", "job", "--", "true"]), 0, "makes the directory");
    site.server.command(&["create", "-s", "/locks/job/by-hand-lock-", "10.0.0.7"]);
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
    alike::a_lost_lock_ends_its_command_with_76(&site, "12s", |server| {
        server.command(&["delete", &site.nodes().pop().unwrap()]);
    });
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

#[test]
fn when_the_server_is_killed_the_command_is_told_before_the_session_ends_and_killed_by_then() {
    let (end, begin_again) = (ZookeeperServer::kill, ZookeeperServer::restart);
    alike::without_a_server_the_command_is_told_and_killed(Site::new(), end, begin_again);
}

#[test]
fn when_the_server_is_stopped_the_command_is_told_before_the_session_ends_and_killed_by_then() {
    let site = Site::new();
    alike::without_a_server_the_command_is_told_and_killed(
        site,
        |server| server.pause(),
        |server| server.resume(),
    );
}

#[test]
fn the_lock_of_a_killed_holder_is_free_when_its_session_has_ended() {
    alike::the_lock_of_a_killed_holder_is_free_after_its_ttl(&Site::new(), "3s");
}
