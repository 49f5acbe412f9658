//! All descendants of CMD end with the lock, in any session or process group, also if CMD has no control group.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use leasehold_testkit::server::{EtcdServer, MariadbServer, PostgresServer, RedisServer, ZookeeperServer};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    groups::{Group, leasehold_without, mount},
    start::{LEASEHOLD, program},
    tools::{Dir, HOLD, Running, code, finish, is_running, one_line, until},
};

/// A CMD that prints the pid of its parent and of six processes that it starts: one in its group, one in a session of
/// its own, one under nohup, one that ignores all signals it can, one that is stopped, and one whose parent has ended.
const SCATTERS: &str = "echo $PPID
quietly() { \"$@\" </dev/null >/dev/null 2>&1 & echo $!; }
quietly sleep 1000
quietly setsid sleep 1000
quietly nohup sleep 1000
(trap '' HUP INT TERM USR1 USR2; quietly setsid sleep 1000)
quietly setsid sleep 1000; kill -STOP $!
setsid sh -c 'setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!'
echo ready
read line";

/// The number of these processes.
const SCATTERED: usize = 6;

/// The pids that CMD printed. The processes are killed at the end of the test.
struct Scattered {
    guardian: i32,
    pids: Vec<i32>,
}

impl Scattered {
    fn of(running: &mut Running) -> Self {
        let guardian = running.number();
        let pids = (0..SCATTERED).map(|_| running.number()).collect();
        assert_eq!(running.line(), "ready");
        Self { guardian, pids }
    }

    /// A script that exits with 3 if one of them exists, even as a zombie.
    fn check_script(&self) -> String {
        let pids: Vec<_> = self.pids.iter().map(ToString::to_string).collect();
        format!("for pid in {}; do if kill -0 $pid 2>/dev/null; then exit 3; fi; done", pids.join(" "))
    }

    fn are_gone(&self) -> bool {
        self.pids.iter().all(|pid| !is_running(*pid))
    }
}

impl Drop for Scattered {
    fn drop(&mut self) {
        for pid in self.pids.iter().filter(|pid| is_running(**pid)) {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
    }
}

fn without_group(dir: &Dir, args: &[&str]) -> Command {
    let mut command = leasehold_without(args);
    command.env("LEASEHOLD_URL", dir.url());
    command
}

fn redis(server: &RedisServer) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

/// Whether the output of `show --json` has one waiter.
fn waits(shown: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(shown).unwrap()["waiters"].as_array().unwrap().len() == 1
}

fn next_starts_when_the_tree_is_gone(leasehold: impl Fn(&[&str]) -> Command) {
    let mut holder = Running::start(leasehold(&["run", "--ttl", "1h", "x", "--", "sh", "-c", SCATTERS]));
    let scattered = Scattered::of(&mut holder);
    let check_script = scattered.check_script();
    let next = Running::start(leasehold(&["run", "--wait", "30m", "x", "--", "sh", "-c", &check_script]));
    until("a waiter", || waits(&finish(leasehold(&["show", "--json", "x"])).stdout));
    holder.signal(Signal::SIGKILL);
    // Long before the ttl of the first hold ends, and after the last of its processes has ended.
    assert_eq!(code(&next.wait()), 0);
    assert!(scattered.are_gone());
}

#[test]
fn the_next_cmd_starts_once_the_tree_of_a_killed_run_is_gone() {
    let dir = Dir::new();
    next_starts_when_the_tree_is_gone(|args| without_group(&dir, args));
    let server = RedisServer::start(&[]);
    next_starts_when_the_tree_is_gone(|args| {
        let mut command = leasehold_without(args);
        command.env("LEASEHOLD_URL", redis(&server));
        command
    });
}

#[test]
fn when_the_guardian_is_killed_the_front_ends_the_tree() {
    let dir = Dir::new();
    let mut holder = Running::start(without_group(&dir, &["run", "x", "--", "sh", "-c", SCATTERS]));
    let scattered = Scattered::of(&mut holder);
    kill(Pid::from_raw(scattered.guardian), Signal::SIGKILL).unwrap();
    let output = holder.wait();
    assert!(scattered.are_gone(), "before leasehold has ended");
    assert_eq!(code(&output), 70);
    let message = one_line(&output);
    assert!(message.contains("file lock \"x\": ") && message.contains("SIGKILL"), "{message}");
    assert!(message.trim_end().ends_with("it is free now"), "a kernel lock has no lease: {message}");
}

/// The hold is not renewed any more; the front ends it over a connection of its own.
#[test]
fn when_the_guardian_is_killed_the_name_is_free_after_the_tree() {
    std::thread::scope(|scope| {
        scope.spawn(|| killed_guardian_leaves_the_name_free("redis", &redis(&RedisServer::start(&[]))));
        scope.spawn(|| killed_guardian_leaves_the_name_free("etcd", &EtcdServer::start(&[]).url()));
        scope.spawn(|| killed_guardian_leaves_the_name_free("zookeeper", &ZookeeperServer::start(&[]).url()));
        scope.spawn(|| killed_guardian_leaves_the_name_free("postgres", &PostgresServer::durable(&[]).url()));
        scope.spawn(|| killed_guardian_leaves_the_name_free("mysql", &MariadbServer::durable(&[]).url()));
        let dir = Dir::new();
        let url = format!("sqlite://{}/locks.db", dir.path().display());
        killed_guardian_leaves_the_name_free("sqlite", &url);
    });
}

fn killed_guardian_leaves_the_name_free(engine: &str, url: &str) {
    let leasehold = |args: &[&str]| {
        let mut command = leasehold_without(args);
        command.env("LEASEHOLD_URL", url);
        command
    };
    for mode in [&[][..], &["--shared"], &["--limit", "2"]] {
        let args = [&["run", "--ttl", "50s"], mode, &["x", "--", "sh", "-c", SCATTERS]].concat();
        let mut holder = Running::start(leasehold(&args));
        let scattered = Scattered::of(&mut holder);
        // Another holder of the same name keeps its hold.
        let beside = (!mode.is_empty()).then(|| {
            let args = [&["run", "--ttl", "50s"], mode, &["x", "--", "sh", "-c", HOLD]].concat();
            let mut beside = Running::start(leasehold(&args));
            assert_eq!(beside.line(), "ready");
            beside
        });
        kill(Pid::from_raw(scattered.guardian), Signal::SIGKILL).unwrap();
        let output = holder.wait();
        assert!(scattered.are_gone(), "{engine} {mode:?}: before leasehold has ended");
        assert_eq!(code(&output), 70);
        let message = one_line(&output);
        assert!(message.starts_with(&format!("leasehold: {engine} lock \"x\": SIGKILL")), "{message}");
        assert!(message.trim_end().ends_with("it is free now"), "{engine} {mode:?}: {message}");
        if let Some(beside) = beside {
            let shown = finish(leasehold(&["show", "--json", "x"]));
            let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
            assert_eq!(shown["holders"].as_array().unwrap().len(), 1, "{engine} {mode:?}: {shown}");
            assert_eq!(code(&beside.output()), 0, "{engine} {mode:?}");
        }
        let next = finish(leasehold(&["run", "-n", "x", "--", "true"]));
        assert_eq!(code(&next), 0, "{engine} {mode:?}: {next:?}");
    }
}

/// The hold may have been released with `--at-least` already; then the name must stay taken.
#[test]
fn when_the_guardian_is_killed_a_name_with_at_least_stays_taken() {
    let server = RedisServer::start(&[]);
    let leasehold = |args: &[&str]| {
        let mut command = leasehold_without(args);
        command.env("LEASEHOLD_URL", redis(&server));
        command
    };
    let args = ["run", "--ttl", "50s", "--at-least", "40s", "x", "--", "sh", "-c", SCATTERS];
    let mut holder = Running::start(leasehold(&args));
    let scattered = Scattered::of(&mut holder);
    kill(Pid::from_raw(scattered.guardian), Signal::SIGKILL).unwrap();
    let message = one_line(&holder.wait());
    assert!(scattered.are_gone() && message.trim_end().ends_with("when its lease has run out"), "{message}");
    assert_eq!(code(&finish(leasehold(&["run", "-n", "x", "--", "true"]))), 75);
}

#[test]
fn a_killed_waiting_guardian_is_reported_as_a_waiter() {
    let server = RedisServer::start(&[]);
    let leasehold = |args: &[&str]| {
        let mut command = leasehold_without(args);
        command.env("LEASEHOLD_URL", redis(&server));
        command
    };
    let mut holder = Running::start(leasehold(&["run", "x", "--", "sh", "-c", HOLD]));
    assert_eq!(holder.line(), "ready");
    let mut waiter = Running::start(leasehold(&["run", "x", "--", "true"]));
    until("a waiter", || waits(&finish(leasehold(&["show", "--json", "x"])).stdout));
    waiter.signal_guardian(Signal::SIGKILL);
    let output = waiter.wait();
    assert_eq!(code(&output), 70);
    let message = one_line(&output);
    assert!(message.contains("SIGKILL ended the process that waited for it"), "{message}");
    assert_eq!(code(&holder.output()), 0);
}

#[test]
fn when_both_are_killed_cmd_itself_ends() {
    // In a group of its own no other run can end it too.
    let (dir, group) = (Dir::new(), Group::new());
    let script = "echo $$; exec sleep 1000 >/dev/null 2>&1";
    let mut holder = Running::start(group.leasehold(&dir, &["run", "x", "--", "sh", "-c", script]));
    let cmd = holder.number();
    holder.kill_both();
    drop(holder.wait());
    until("CMD's end", || !is_running(cmd));
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
}

#[test]
fn a_loss_ends_the_whole_tree_before_leasehold_ends() {
    let dir = Dir::new();
    let options = ["run", "--max-hold", "2s", "--grace", "100ms", "x", "--", "sh", "-c", SCATTERS];
    let mut holder = Running::start(without_group(&dir, &options));
    let scattered = Scattered::of(&mut holder);
    assert_eq!(code(&holder.wait()), 76);
    assert!(scattered.are_gone());
}

#[test]
fn signals_aimed_at_leasehold_do_not_reach_the_guardian() {
    let dir = Dir::new();
    let mut holder = Running::start(without_group(&dir, &["run", "x", "--", "sh", "-c", SCATTERS]));
    let scattered = Scattered::of(&mut holder);
    let front = holder.pid();
    let name = fs::read_to_string(format!("/proc/{}/comm", scattered.guardian)).unwrap();
    assert!(!name.contains("leasehold"), "pkill -KILL leasehold");
    let group = nix::unistd::getpgid(Some(front)).unwrap();
    // As `timeout -s KILL` does.
    nix::sys::signal::killpg(group, Signal::SIGKILL).unwrap();
    drop(holder.wait());
    assert_eq!(dir.code(&["run", "x", "--", "sh", "-c", &scattered.check_script()]), 0);
}

/// As in a container: a process namespace of its own, no right to create a cgroup, no other process to reap children.
#[test]
fn the_tree_ends_in_a_namespace_without_rights() {
    let dir = Dir::new();
    let pid = dir.path().join("pid");
    let script = format!(
        "mount -o remount,bind,ro {groups} || exit 99
         {LEASEHOLD} run --ttl 1h x -- sh -c 'setsid sleep 1000 & echo $! >\"$0\"; wait' {pid} & front=$!
         until [ -s {pid} ]; do sleep 0.01; done
         kill -KILL $front
         {LEASEHOLD} run x -- sh -c '! kill -0 $(cat \"$0\") 2>/dev/null' {pid}",
        groups = mount().display(),
        pid = pid.display()
    );
    let mut command = program("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.args(["sh", "-c", &script]).env("LEASEHOLD_URL", dir.url());
    let output = finish(command);
    assert_eq!(code(&output), 0, "{output:?}");
}

/// A CMD that becomes another user and prints its pid.
const BECOMES_ROOT: &str =
    "./become --reuid=0 --regid=0 --clear-groups sh -c 'echo $$; exec sleep 1000'; true";

/// The command as user `nobody`, who may not signal processes that became root.
fn of_nobody(dir: &Dir, url: String) -> impl Fn(&[&str]) -> Command + use<> {
    assert!(nix::unistd::geteuid().is_root(), "becoming another user needs root: run this test as root");
    let copy = |from: &str, name: &str, mode: u32| {
        let to = dir.path().join(name);
        assert!(program("cp").arg(from).arg(&to).status().unwrap().success());
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
        to
    };
    let leasehold = copy(LEASEHOLD, "leasehold", 0o755);
    copy("/usr/bin/setpriv", "become", 0o4755);
    fs::create_dir(dir.locks()).unwrap();
    for path in [dir.path(), &dir.locks()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::os::unix::fs::chown(dir.locks(), Some(65534), Some(65534)).unwrap();
    let home = dir.path().to_owned();
    move |args| {
        let mut command = program("setpriv");
        command.current_dir(&home).args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&leasehold).args(args).env("LEASEHOLD_URL", &url);
        command
    }
}

#[test]
fn the_name_stays_taken_when_a_killed_guardian_leaves_a_root_process() {
    let (dir, server) = (Dir::new(), RedisServer::start(&[]));
    let as_nobody = of_nobody(&dir, redis(&server));
    let args = ["run", "--ttl", "50s", "x", "--", "sh", "-c", BECOMES_ROOT];
    let mut running = Running::start(as_nobody(&args));
    let root = running.number();
    running.signal_guardian(Signal::SIGKILL);
    let message = running.stderr_line();
    assert!(message.contains("end them as root") && message.contains(&format!("{root} (")), "{message}");
    let last = running.stderr_line();
    assert!(last.trim_end().ends_with("when its lease has run out"), "{last}");
    assert!(is_running(root));
    assert_eq!(code(&finish(as_nobody(&["run", "-n", "x", "--", "true"]))), 75);
    kill(Pid::from_raw(root), Signal::SIGKILL).unwrap();
    // Standard error stays open until that process ends.
    assert_eq!(code(&running.wait()), 70);
}

/// CMD's child is root, as under `sudo`, and leasehold is not.
#[test]
fn the_name_stays_taken_while_a_killed_run_leaves_a_root_process() {
    let dir = Dir::new();
    let as_nobody = of_nobody(&dir, dir.url());
    // With -o no inherited descriptor holds the lock.
    let mut running = Running::start(as_nobody(&["run", "-o", "x", "--", "sh", "-c", BECOMES_ROOT]));
    let root = running.number();
    running.signal(Signal::SIGKILL);
    let message = running.stderr_line();
    assert!(message.contains("lock stays held") && message.contains(&format!("{root} (")), "{message}");
    assert!(is_running(root));
    assert_eq!(code(&finish(as_nobody(&["run", "-n", "x", "--", "true"]))), 75);
    kill(Pid::from_raw(root), Signal::SIGKILL).unwrap();
    assert_eq!(code(&finish(as_nobody(&["run", "x", "--", "true"]))), 0);
}
