//! The command on a ZooKeeper server: sessions, losses, names, and nodes of other programs.

use std::time::{Duration, Instant};

use leasehold_testkit::server::ZookeeperServer;

use crate::{
    shared,
    tools::{HOLD, Running, assert_until, code, finish, one_line, stderr, stdout, until},
};

/// A server, and the command that uses it.
pub(crate) type Fixture = crate::fixture::Fixture<ZookeeperServer>;

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::start(&[])
    }

    /// Starts a server with these lines in `zoo.cfg`.
    pub(crate) fn start(lines: &[&str]) -> Self {
        let server = ZookeeperServer::start(lines);
        Self::at("zookeeper", server.url(), server)
    }

    /// Starts a server that answers only after its log is on the disk.
    fn durable() -> Self {
        let server = ZookeeperServer::durable(&[]);
        Self::at("zookeeper", server.url(), server)
    }

    /// The ephemeral nodes of all sessions.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let reply = self.server.four_letter_command("dump");
        reply.lines().map(str::trim).filter(|line| line.starts_with('/')).map(str::to_owned).collect()
    }
}

#[test]
fn processes_exclude_each_other_and_are_shown() {
    let fixture = Fixture::durable();
    shared::processes_exclude_each_other_and_are_shown(&fixture, "/locks/job", "lease-bounded");
    assert_eq!(fixture.nodes(), [""; 0], "nothing is left");
}

#[test]
fn cmd_gets_a_token_made_from_the_zxid_of_its_node() {
    let fixture = Fixture::new();
    let url = fixture.server.url();
    for (url, tokens_of_a_zxid) in [(url.clone(), 256), (format!("{url}?hand_over=off"), 1)] {
        let script = "echo ready; echo $LEASEHOLD_TOKEN; read line; true";
        let mut holder = fixture.holder(&["--url", &url], script);
        let token: i64 = holder.line().parse().unwrap();
        let node = fixture.nodes().pop().unwrap();
        let reply = fixture.server.command(&["stat", &node]);
        let zxid = token / tokens_of_a_zxid;
        assert!(reply.contains(&format!("cZxid = 0x{zxid:x}")), "{reply:?}");
        assert_eq!(token % tokens_of_a_zxid, 0);
        assert_eq!(code(&holder.output()), 0);
    }
}

#[test]
fn every_name_has_its_own_directory() {
    shared::any_name_can_be_locked(&Fixture::new(), "zookeeper");
}

#[test]
fn a_broken_lock_ends_its_command_and_frees_the_name() {
    shared::a_broken_lock_ends_its_command_and_frees_the_name(&Fixture::new(), &[]);
}

/// Another program cannot be notified, so its lock is broken by `--force` only.
#[test]
fn a_node_of_another_program_is_waited_for_shown_and_broken() {
    let fixture = Fixture::new();
    assert_eq!(fixture.code(&["run", "job", "--", "true"]), 0, "creates the directory");
    fixture.server.command(&["create", "-s", "/locks/job/by-hand-lock-", "10.0.0.7"]);
    assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 75);
    let holding = fixture.show("job")["holders"][0].clone();
    assert_eq!((&holding["foreign"], &holding["owner"]), (&true.into(), &"10.0.0.7".into()));
    let waiter = Running::start(fixture.leasehold(&["run", "job", "--", "echo", "mine"]));
    until("a waiter", || fixture.show("job")["waiters"].as_array().unwrap().len() == 1);
    let token = fixture.token();
    let refused = fixture.call(&["break", "job", "--token", &token]);
    assert_eq!(code(&refused), 77);
    assert!(one_line(&refused).contains("--force"), "{refused:?}");
    assert_eq!(fixture.code(&["break", "job", "--token", &token, "--force"]), 0);
    assert_eq!(stdout(&waiter.output()), "mine\n");
}

/// A program written by hand made its node persistent by mistake, so the node stays when the program has ended.
#[test]
fn a_persistent_node_is_reported_shown_and_broken() {
    let fixture = Fixture::new();
    let url = format!("{}?layout=plain", fixture.server.url());
    let plain = |args: &[&str]| {
        let mut command = fixture.leasehold(args);
        command.env("LEASEHOLD_URL", &url);
        command
    };
    assert_eq!(code(&finish(plain(&["run", "job", "--", "true"]))), 0, "creates the directory");
    fixture.server.command(&["create", "-s", "/locks/job/lock-", "10.0.0.7"]);
    // Within the wait the server has to answer, also on a busy machine.
    for wait in [&["-n"][..], &["-w", "3s"]] {
        let refused = finish(plain(&[&["run"], wait, &["job", "--", "true"]].concat()));
        assert_eq!(code(&refused), 78, "{refused:?}");
        assert!(one_line(&refused).contains("leasehold break --force"), "{refused:?}");
    }
    let shown = stdout(&finish(plain(&["show", "job"])));
    assert!(shown.contains("10.0.0.7 (foreign)") && shown.contains("no expiry"), "{shown}");
    let mut waiter = plain(&["run", "job", "--", "echo", "mine"]);
    waiter.env("RUST_LOG", "warn");
    let waiter = Running::start(waiter);
    until("a waiter", || fixture.show("job")["waiters"].as_array().unwrap().len() == 1);
    let token = fixture.token();
    assert_eq!(code(&finish(plain(&["break", "job", "--token", &token]))), 77);
    assert_eq!(code(&finish(plain(&["break", "job", "--token", &token, "--force"]))), 0);
    let ended = waiter.output();
    assert_eq!(stdout(&ended), "mine\n");
    assert!(
        stderr(&ended).contains("is persistent"),
        "a waiter without a time limit is told, too: {ended:?}"
    );
}

#[test]
fn a_lock_whose_node_is_deleted_is_lost_with_76() {
    let fixture = Fixture::new();
    shared::a_lost_lock_ends_its_command_with_76(&fixture, "12s", |server| {
        server.command(&["delete", &fixture.nodes().pop().unwrap()]);
    });
}

#[test]
fn a_lock_whose_session_ended_is_lost_with_76() {
    let fixture = Fixture::new();
    let mut holder = fixture.holder(&["--ttl", "3s"], HOLD);
    let begin = Instant::now();
    holder.freeze();
    let taken = fixture.code(&["run", "-n", "job", "--", "true"]) == 75;
    assert_until(begin, Duration::from_secs(1), taken, "the name stays taken for the session timeout");
    assert_eq!(fixture.code(&["run", "-w", "5m", "job", "--", "true"]), 0);
    holder.thaw();
    let ended = holder.wait();
    assert_eq!(code(&ended), 76);
    assert!(stderr(&ended).contains("leasehold: zookeeper lock \"job\": lost"), "{ended:?}");
}

#[test]
fn a_killed_server_ends_the_command_before_its_session() {
    let (end, begin_again) = (ZookeeperServer::kill, ZookeeperServer::restart);
    shared::a_missing_server_ends_the_command_by_term_and_kill(Fixture::new(), end, begin_again);
}

#[test]
fn a_stopped_server_ends_the_command_before_its_session() {
    let fixture = Fixture::new();
    shared::a_missing_server_ends_the_command_by_term_and_kill(
        fixture,
        |server| server.pause(),
        |server| server.resume(),
    );
}

#[test]
fn the_lock_of_a_killed_holder_is_free_when_its_session_has_ended() {
    shared::the_lock_of_a_killed_holder_is_free_after_its_ttl(&Fixture::new(), "3s");
}
