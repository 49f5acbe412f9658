//! Locks across steps on servers and in SQLite: holds that no process renews, and holds of a holder process.

use std::{process::Output, thread};

use leasehold_testkit::server::{
    EtcdServer, MariadbServer, PostgresServer, RedisServer, ZookeeperServer, psql,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    handles::{Work, handle_of, holder_of},
    tools::{Dir, Running, assert_taken_within_limit, code, one_line, stderr, stdout, until},
};

type Fixture = crate::fixture::Fixture<()>;

/// A password that must be in no output.
const CANARY: &str = "canary-7f3a";

/// Runs a test on all engines whose holds are leases, at the same time, because a test mostly waits.
fn each_lease(test: impl Fn(&Fixture) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        scope.spawn(move || {
            let server = RedisServer::start(&["--requirepass", CANARY]);
            test(&Fixture::at("redis", format!("redis://:{CANARY}@127.0.0.1:{}", server.port()), ()));
        });
        scope.spawn(move || {
            let server = PostgresServer::durable(&[]);
            test(&Fixture::at("postgres", server.url(), ()));
        });
        scope.spawn(move || {
            let server = MariadbServer::durable(&[]);
            test(&Fixture::at("mysql", server.url(), ()));
        });
        scope.spawn(move || {
            // Their clocks are ahead: a node that was just started has no vote for as long as the longest lease.
            let nodes: Vec<_> = (0..3).map(|_| RedisServer::with_clock(&[])).collect();
            for node in &nodes {
                node.set_clock(1_000_000);
                node.command(&["SET", "leasehold:{}B", "1 1000"]);
            }
            let addresses: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
            test(&Fixture::at("redlock", format!("redlock://{}?max_ttl=2h", addresses.join(",")), ()));
        });
        scope.spawn(move || {
            let dir = Dir::new();
            test(&Fixture::at("sqlite", format!("sqlite://{}/locks.db", dir.path().display()), ()));
        });
    });
}

/// The lease of a hold whose holder process was killed goes on for a while, and nobody renews it.
#[test]
fn a_killed_holder_of_a_lease_is_told_by_check_and_renew() {
    let dir = Dir::new();
    let fixture = Fixture::at("sqlite", format!("sqlite://{}/locks.db", dir.path().display()), ());
    let mut work = Work::start();
    let acquire = ["acquire", "job", "--ttl", "10m", "--while-pid", &work.pid()];
    let handle = handle_of(fixture.leasehold(&acquire));
    assert_eq!(stderr(&fixture.call(&["check", &handle])), "");
    let holder = holder_of(&work.pid());
    kill(Pid::from_raw(holder), Signal::SIGKILL).unwrap();
    until("it has ended", || !crate::tools::is_running(holder));
    for command in ["check", "renew"] {
        let output = fixture.call(&[command, &handle]);
        assert_eq!(code(&output), 0, "{command}: {output:?}");
        let message = one_line(&output);
        let what = "its holder process has ended, and nobody renews it: it ends in ";
        assert!(message.contains(what), "{command}: {message}");
    }
    assert_eq!(stderr(&fixture.call(&["check", "-q", &handle])), "");
    assert_eq!(fixture.code(&["release", &handle]), 0);
}

/// Runs a test on engines whose holds end with a process or session.
fn each_session(test: impl Fn(&Fixture) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        scope.spawn(move || {
            let server = EtcdServer::start(&[]);
            test(&Fixture::at("etcd", server.url(), ()));
        });
        scope.spawn(move || {
            let server = ZookeeperServer::start(&[]);
            test(&Fixture::at("zookeeper", server.url(), ()));
        });
        scope.spawn(move || {
            let server = PostgresServer::start(&[]);
            test(&Fixture::at("postgres", format!("{}?hold=session&delay=0s", server.url()), ()));
        });
    });
}

impl Fixture {
    /// Checks an exit code, and that the output does not contain the password.
    fn expect(&self, wanted: i32, args: &[&str]) -> String {
        self.checked(wanted, args, &self.call(args))
    }

    /// The same, after further tries if the server of a busy machine does not answer in time (69).
    fn expect_once_answered(&self, wanted: i32, args: &[&str]) -> String {
        let answered = (0..20).map(|_| self.call(args)).find(|output| code(output) != 69);
        self.checked(wanted, args, &answered.expect("the server answers"))
    }

    fn checked(&self, wanted: i32, args: &[&str], output: &Output) -> String {
        let (out, err) = (stdout(output), stderr(output));
        assert_eq!(code(output), wanted, "{} {args:?}: {out} {err}", self.engine);
        assert!(!out.contains(CANARY) && !err.contains(CANARY), "{out} {err}");
        if wanted == 0 { out } else { one_line(output) }
    }

    /// The name is free long before the lease of a hold would end. On a busy machine one try on a Redlock may fail, so
    /// this is a wait.
    fn expect_free(&self) {
        self.expect(0, &["run", "-w", "20s", "job", "--", "true"]);
    }

    fn acquire(&self, options: &[&str]) -> String {
        let handle = handle_of(self.leasehold(&[&["acquire", "job"], options].concat()));
        assert!(!handle.contains(CANARY) && handle.contains(&format!(".{}.", self.engine)), "{handle}");
        handle
    }
}

#[test]
fn a_hold_is_renewed_checked_and_released_by_later_commands() {
    each_lease(|fixture| {
        let handle = fixture.acquire(&["--ttl", "1m"]);
        assert_taken_within_limit(|limit| fixture.code(&["run", "-w", limit, "job", "--", "true"]));
        let token = fixture.expect(0, &["check", "--token", &handle]);
        assert_eq!(token.trim_end(), fixture.token());
        fixture.expect(0, &["renew", "--ttl", "1h", &handle]);
        let left = || fixture.show("job")["holders"][0]["remaining_ms"].as_u64().unwrap();
        assert!(left() > 3_000_000, "it is extended");
        fixture.expect(0, &["check", &handle]);
        assert!(left() > 3_000_000, "a check does not shorten it");
        fixture.expect(0, &["release", &handle]);
        fixture.expect_free();
        for command in ["check", "renew", "release"] {
            let message = fixture.expect(76, &[command, &handle]);
            let when = if command == "release" { "was over before this release" } else { "is over" };
            assert!(message.contains(&format!("the hold of this handle {when}: ")), "{message}");
        }
        if fixture.engine == "redlock" {
            return; // It has no shared holds.
        }
        let reader = fixture.acquire(&["--shared"]);
        let other = fixture.acquire(&["--shared"]);
        fixture.expect(0, &["release", &reader]);
        fixture.expect(0, &["check", &other]);
        fixture.expect(0, &["release", &other]);
    });
}

#[test]
fn a_hold_that_is_not_renewed_in_time_is_over() {
    each_lease(|fixture| {
        let handle = fixture.acquire(&["--ttl", "1s"]);
        let waiter = Running::start(fixture.leasehold(&["run", "job", "--", "echo", "mine"]));
        assert_eq!(stdout(&waiter.output()), "mine\n");
        let reasons = ["check", "renew", "release"].map(|command| {
            let message = fixture.expect_once_answered(76, &[command, &handle]);
            message.split_once(": ").unwrap().1.to_owned()
        });
        // What is most likely comes first.
        let words =
            ["its lease was not renewed", "the renewal arrived after the end of its lease", "ran out"];
        assert!(words.iter().any(|word| reasons[0].contains(word)), "{}: {reasons:?}", fixture.engine);
        assert_eq!(reasons[0], reasons[1], "{}: one reason for all commands", fixture.engine);
        // The release has ended the broken hold, long before its lease ends.
        fixture.expect(0, &["run", "--nonblock", "job", "--", "true"]);
    });
}

/// A broken hold keeps the name until its lease ends, but a step must not go on under it.
#[test]
fn a_broken_hold_is_over_at_once() {
    each_lease(|fixture| {
        let handle = fixture.acquire(&["--ttl", "1h"]);
        let token = fixture.token();
        fixture.expect(0, &["break", "job", "--token", &token]);
        for command in ["check", "renew", "release"] {
            let message = fixture.expect(76, &[command, &handle]);
            assert!(
                message.contains("an operator broke it: check for half-done work"),
                "{command}: {message}"
            );
        }
    });
}

/// A renewal waits for the tables and a look does not: the look decides.
#[test]
fn a_check_whose_renewal_gets_no_answer_is_decided_by_a_look() {
    let server = PostgresServer::durable(&[]);
    let fixture = Fixture::at("postgres", server.url(), ());
    let handle = fixture.acquire(&["--ttl", "2m"]);
    let lock = "BEGIN; LOCK TABLE leasehold_lock, leasehold_claim IN EXCLUSIVE MODE; SELECT pg_sleep(120)";
    let is_locked = "SELECT FROM pg_locks WHERE mode = 'ExclusiveLock' AND granted AND relation = ";
    let is_locked = format!("{is_locked}'leasehold_claim'::regclass");
    let unlock = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'BEGIN; LOCK%'";
    thread::scope(|scope| {
        scope.spawn(|| psql(server.port(), &["-c", lock]));
        until("the tables are locked", || psql_rows(&server, &is_locked) == 1);
        let output = fixture.call(&["check", &handle]);
        server.query(unlock);
        assert_eq!(code(&output), 0, "{output:?}");
    });
}

/// How many rows a query returns.
fn psql_rows(server: &PostgresServer, query: &str) -> usize {
    server.query(&format!("SELECT count(*) FROM ({query}) AS found"))[0].parse().unwrap()
}

/// The server shows no holder, and knows more.
#[test]
fn every_command_tells_the_reason_that_the_server_knows() {
    let server = RedisServer::start(&[]);
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    for command in ["check", "renew", "release"] {
        let handle = fixture.acquire(&[]);
        server.command(&["DEL", "lock:job"]);
        let message = fixture.expect(76, &[command, &handle]);
        let why = "its key is gone, and the rest of its data is there: the renewal arrived after the end of its lease";
        assert!(message.contains(&format!(": {why}, or ")), "{message}");
        let handle = fixture.acquire(&[]);
        server.command(&["SET", "lock:job", "theirs"]);
        let message = fixture.expect(76, &[command, &handle]);
        let why = "another program's value is under its key: ";
        let successor = "; another program (foreign) holds the name now: check for half-done work";
        assert!(message.contains(why) && message.contains(successor), "{message}");
        server.command(&["DEL", "lock:job"]);
    }
}

/// A hold of this server is not one of another URL.
#[test]
fn a_broken_hold_is_over_at_another_address_of_its_server() {
    let server = RedisServer::start(&[]);
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    let handle = fixture.acquire(&[]);
    fixture.expect(0, &["break", "job", "--token", &fixture.token()]);
    let other = format!("redis://localhost:{}", server.port());
    for command in ["check", "renew", "release"] {
        let message = fixture.expect(76, &["--url", &other, command, &handle]);
        assert!(message.contains("broke it"), "{message}");
    }
}

#[test]
fn a_signal_during_a_check_ends_the_holder() {
    let server = RedisServer::start(&[]);
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    let mut work = Work::start();
    let pid = work.pid();
    let handle = fixture.acquire(&["--while-pid", &pid]);
    let holder = holder_of(&pid);
    server.pause();
    let check = Running::start(fixture.leasehold(&["check", &handle]));
    until("the connection of the check", || {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        let mut accepted = sockets.lines().filter(|line| line.contains(" 0001 03 "));
        accepted.any(|line| line.rsplit_once("@leasehold-holder/").is_some_and(|(_, id)| handle.contains(id)))
    });
    kill(Pid::from_raw(holder), Signal::SIGTERM).unwrap();
    until("the signal to be read", || {
        let status = std::fs::read_to_string(format!("/proc/{holder}/status")).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
        u64::from_str_radix(pending.trim(), 16) == Ok(0)
    });
    server.resume();
    check.output();
    until("the end of the holder process", || !crate::tools::is_running(holder));
    fixture.expect(76, &["check", &handle]);
    fixture.expect(0, &["run", "-n", "job", "--", "true"]);
}

#[test]
fn a_handle_that_cannot_be_printed_frees_the_name() {
    each_lease(|fixture| {
        let mut acquire = fixture.leasehold(&["acquire", "job"]);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        acquire.stdin(std::process::Stdio::null()).stdout(full).stderr(std::process::Stdio::null());
        assert_eq!(acquire.status().unwrap().code(), Some(69), "{}", fixture.engine);
        fixture.expect_free();
    });
}

/// An operator must not look for a process that has ended.
#[test]
fn the_owner_of_a_hold_without_a_process_says_so() {
    let dir = Dir::new();
    let fixture = Fixture::at("sqlite", format!("sqlite://{}/locks.db", dir.path().display()), ());
    let owner = || fixture.show("job")["holders"][0]["owner"].as_str().unwrap().to_owned();
    let handle = fixture.acquire(&[]);
    assert!(owner().ends_with(" without a process"), "{}", owner());
    fixture.expect(0, &["release", &handle]);
    let handle = fixture.acquire(&["--owner", "me"]);
    assert_eq!(owner(), "me");
    fixture.expect(0, &["release", &handle]);
}

#[test]
fn a_handle_is_refused_at_another_url() {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    let fixture = Fixture::at("redis", url.clone(), ());
    let handle = fixture.acquire(&[]);
    let other = format!("{url}/1");
    for command in ["check", "renew", "release"] {
        let message = fixture.expect(64, &["--url", &other, command, &handle]);
        assert!(message.contains("made with another URL"), "{message}");
    }
    // Another user, or other options of the connection, are the same place.
    fixture.expect(0, &["--url", &format!("{url}?connect_timeout=4s"), "check", &handle]);
    fixture.expect(0, &["release", &handle]);
}

#[test]
fn a_holder_renews_the_hold_while_the_process_lives() {
    let test = |fixture: &Fixture| {
        let mut work = Work::start();
        let pid = work.pid();
        let handle = fixture.acquire(&["--ttl", "2s", "--while-pid", &pid]);
        // Longer than the ttl: the waiter asks for the name until its own limit ends.
        fixture.expect(75, &["run", "-w", "3s", "job", "--", "true"]);
        fixture.expect(0, &["check", &handle]);
        fixture.expect(0, &["renew", &handle]);
        let waiter = Running::start(fixture.leasehold(&["run", "job", "--", "echo", "mine"]));
        until("a waiter", || !fixture.show("job")["waiters"].as_array().unwrap().is_empty());
        work.end();
        assert_eq!(stdout(&waiter.output()), "mine\n");
        fixture.expect(76, &["check", &handle]);
        let mut work = Work::start();
        let handle = fixture.acquire(&["--while-pid", &work.pid()]);
        fixture.expect(0, &["release", &handle]);
        fixture.expect_free();
        fixture.expect(76, &["release", &handle]);
    };
    thread::scope(|scope| {
        scope.spawn(|| each_lease(test));
        scope.spawn(|| each_session(test));
    });
}

#[test]
fn the_hold_of_a_killed_holder_lapses_after_its_ttl() {
    each_lease(|fixture| {
        let mut work = Work::start();
        let pid = work.pid();
        let handle = fixture.acquire(&["--ttl", "2s", "--while-pid", &pid]);
        kill(Pid::from_raw(holder_of(&pid)), Signal::SIGKILL).unwrap();
        fixture.expect(0, &["run", "job", "--", "true"]);
        fixture.expect(76, &["check", &handle]);
    });
}

#[test]
fn a_hold_of_a_session_is_not_left_without_a_process() {
    each_session(|fixture| {
        let message = fixture.expect(64, &["acquire", "job"]);
        assert!(message.contains("give --while-pid PID"), "{message}");
        let why = match fixture.engine {
            "etcd" => "its lease is shared by all holds of the process that acquired it",
            _ => "a hold ends with the process that acquired it",
        };
        assert!(message.contains(&format!("nothing would hold it, because {why}")), "{message}");
        assert!(fixture.show("job")["holders"].as_array().unwrap().is_empty());
    });
}

/// For a command of another user the holder process is as far away as on another machine: the server is asked.
#[test]
fn the_release_of_another_machine_ends_the_holder() {
    let server = RedisServer::start(&[]);
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    let mut work = Work::start();
    let pid = work.pid();
    let handle = fixture.acquire(&["--ttl", "2s", "--while-pid", &pid]);
    let holder = holder_of(&pid);
    // Another user gets no answer of the holder process, as a command on another machine.
    let mut other = crate::start::program("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let copy = std::env::temp_dir().join(format!("leasehold-copy-{holder}"));
    std::fs::copy(crate::start::LEASEHOLD, &copy).unwrap();
    other
        .arg(&copy)
        .args(["release", &handle])
        .env("LEASEHOLD_URL", format!("redis://127.0.0.1:{}", server.port()));
    let output = crate::tools::finish(other);
    std::fs::remove_file(&copy).unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    until("the end of the holder process", || !crate::tools::is_running(holder));
    fixture.expect(76, &["check", &handle]);
}

/// The holder process leaves the directory of the step, and reads the password again for each connection.
#[test]
fn a_holder_reads_a_relative_password_file_after_the_step() {
    let server = RedisServer::start(&[]);
    server.command(&["ACL", "SETUSER", "me", "on", &format!(">{CANARY}"), "~*", "&*", "+@all"]);
    let dir = Dir::new();
    dir.file("a password", CANARY, 0o600);
    let url = format!("redis://me@127.0.0.1:{}?password_file=a%20password", server.port());
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    let mut work = Work::start();
    let mut acquire = crate::tools::bare(&["--url", &url, "acquire", "job", "--while-pid", &work.pid()]);
    acquire.current_dir(dir.path());
    let handle = handle_of(acquire);
    let holder = holder_of(&work.pid());
    for kind in ["normal", "pubsub"] {
        server.command(&["CLIENT", "KILL", "TYPE", kind]);
    }
    // It asks the engine over a new connection.
    fixture.expect(0, &["check", &handle]);
    assert!(crate::tools::is_running(holder));
    fixture.expect(0, &["release", &handle]);
}
