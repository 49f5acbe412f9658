//! Process groups, a killed leasehold, and the descriptor that CMD inherits.

use std::fs;

use nix::{sys::signal::Signal, unistd::Pid};

use crate::{
    start::program,
    tools::{Dir, Running, code, is_running, until},
};

/// A script that leaves a background process, with all inherited descriptors except the streams.
const LEAVES_A_PROCESS: &str = "sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; echo ready; read line; true";

/// A process that CMD left behind. It is killed at the end of the test.
struct Leftover(i32);

impl Leftover {
    /// The process whose pid the script prints.
    fn of(running: &mut Running) -> Self {
        let leftover = Self(running.number());
        let comm = format!("/proc/{}/comm", leftover.0);
        // Before the exec it is a shell, with descriptors of its own.
        until("sleep", || fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
        leftover
    }

    fn is_running(&self) -> bool {
        is_running(self.0)
    }

    fn descriptors(&self) -> usize {
        // Terminals that other tests of this process have open at that moment are inherited, and are not counted.
        let links = fs::read_dir(format!("/proc/{}/fd", self.0)).unwrap();
        let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        targets.filter(|target| !target.starts_with("/dev/pt")).count()
    }

    /// The number of its descriptors of lock files.
    fn locks(&self, dir: &Dir) -> usize {
        let locks = dir.locks();
        let links = fs::read_dir(format!("/proc/{}/fd", self.0)).unwrap();
        let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        targets.filter(|target| target.starts_with(&locks)).count()
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(Pid::from_raw(self.0), Signal::SIGKILL);
    }
}

fn with_leftover(dir: &Dir, options: &[&str]) -> (Running, Leftover) {
    let args = [&["run"], options, &["x", "--", "sh", "-c", LEAVES_A_PROCESS]].concat();
    let mut running = Running::start(dir.leasehold(&args));
    let leftover = Leftover::of(&mut running);
    assert_eq!(running.line(), "ready");
    (running, leftover)
}

#[test]
fn cmd_leads_a_group_of_its_own() {
    let dir = Dir::new();
    let mut running = Running::start(dir.leasehold(&["run", "x", "--", "sh", "-c", "echo $$; read line"]));
    let cmd = running.number();
    let group = nix::unistd::getpgid(Some(Pid::from_raw(cmd))).unwrap();
    assert_eq!(group.as_raw(), cmd);
    assert_ne!(nix::unistd::getpgid(Some(running.pid())).unwrap(), group);
}

#[test]
fn when_leasehold_is_killed_cmd_dies_and_the_name_is_free_at_once() {
    let dir = Dir::new();
    let args = ["run", "--ttl", "1h", "x", "--", "sh", "-c", "echo $$; read line"];
    let mut running = Running::start(dir.leasehold(&args));
    let cmd = running.number();
    let mut waiting = Running::start(dir.leasehold(&["run", "x", "--", "true"]));
    dir.until_waiters("x", 1);
    assert!(!waiting.has_ended());
    running.signal(Signal::SIGKILL);
    assert_eq!(code(&waiting.output()), 0);
    until("CMD's end", || !is_running(cmd));
}

/// As under `flock`.
#[test]
fn the_name_is_free_only_after_every_descriptor_is_closed() {
    let dir = Dir::new();
    let (running, leftover) = with_leftover(&dir, &[]);
    assert_eq!(code(&running.output()), 0);
    assert!(leftover.is_running());
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 75);
    drop(leftover);
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
}

#[test]
fn with_close_cmd_does_not_inherit_the_descriptor() {
    let dir = Dir::new();
    let (running, leftover) = with_leftover(&dir, &["-o"]);
    assert_eq!(leftover.locks(&dir), 0);
    assert_eq!(code(&running.output()), 0);
    assert!(leftover.is_running());
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
}

#[test]
fn cmd_inherits_only_the_lock_descriptor() {
    let dir = Dir::new();
    let (_with, leftover) = with_leftover(&dir, &[]);
    assert_eq!(leftover.locks(&dir), 1);
    let other = Dir::new();
    let (_without, other_leftover) = with_leftover(&other, &["-o"]);
    // A starting program has more descriptors for a moment, while it loads its libraries.
    until("one descriptor more", || leftover.descriptors() == other_leftover.descriptors() + 1);
    let mut plain = program("sh");
    plain.args(["-c", LEAVES_A_PROCESS]);
    let mut plain = Running::start(plain);
    let plain_leftover = Leftover::of(&mut plain);
    until("as many descriptors as without leasehold", || {
        other_leftover.descriptors() == plain_leftover.descriptors()
    });
}
