//! Process groups, the death of leasehold itself, and the descriptor that CMD inherits.

use std::fs;

use nix::{sys::signal::Signal, unistd::Pid};

use crate::{
    start::program,
    tools::{Dir, Running, code, is_running, until},
};

/// A script that leaves a process behind, which keeps every descriptor it was given but the streams.
const LEAVES_AN_HEIR: &str = "sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; echo ready; read line; true";

/// A process that outlives its parents, but not its test.
struct Heir(i32);

impl Heir {
    /// As it says its number.
    fn of(running: &mut Running) -> Self {
        let heir = Self(running.number());
        let comm = format!("/proc/{}/comm", heir.0);
        // Before that it is a shell, with descriptors of its own.
        until("sleep", || fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
        heir
    }

    fn is_running(&self) -> bool {
        is_running(self.0)
    }

    fn descriptors(&self) -> usize {
        // Not those of the terminals that other tests of this process have open just then, which are inherited.
        let links = fs::read_dir(format!("/proc/{}/fd", self.0)).unwrap();
        let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        targets.filter(|target| !target.starts_with("/dev/pt")).count()
    }

    /// How many of its descriptors are of lock files.
    fn locks(&self, dir: &Dir) -> usize {
        let locks = dir.locks();
        let links = fs::read_dir(format!("/proc/{}/fd", self.0)).unwrap();
        let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        targets.filter(|target| target.starts_with(&locks)).count()
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(Pid::from_raw(self.0), Signal::SIGKILL);
    }
}

fn with_heir(dir: &Dir, options: &[&str]) -> (Running, Heir) {
    let args = [&["run"], options, &["x", "--", "sh", "-c", LEAVES_AN_HEIR]].concat();
    let mut running = Running::start(dir.leasehold(&args));
    let heir = Heir::of(&mut running);
    assert_eq!(running.line(), "ready");
    (running, heir)
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
fn the_name_is_free_only_when_every_heir_of_the_descriptor_is_gone() {
    let dir = Dir::new();
    let (running, heir) = with_heir(&dir, &[]);
    assert_eq!(code(&running.output()), 0);
    assert!(heir.is_running());
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 75);
    drop(heir);
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
}

#[test]
fn with_close_the_descriptor_stays_at_home() {
    let dir = Dir::new();
    let (running, heir) = with_heir(&dir, &["-o"]);
    assert_eq!(heir.locks(&dir), 0);
    assert_eq!(code(&running.output()), 0);
    assert!(heir.is_running());
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
}

#[test]
fn cmd_inherits_the_lock_and_nothing_else_of_ours() {
    let dir = Dir::new();
    let (_with, heir) = with_heir(&dir, &[]);
    assert_eq!(heir.locks(&dir), 1);
    let other = Dir::new();
    let (_without, other_heir) = with_heir(&other, &["-o"]);
    // A program that begins has more open for a moment, to load its libraries.
    until("one descriptor more", || heir.descriptors() == other_heir.descriptors() + 1);
    let mut plain = program("sh");
    plain.args(["-c", LEAVES_AN_HEIR]);
    let mut plain = Running::start(plain);
    let plain_heir = Heir::of(&mut plain);
    until("as many as without us", || other_heir.descriptors() == plain_heir.descriptors());
}
