//! Process groups, the death of leasehold itself, and the descriptor that CMD inherits.

use std::fs;

use nix::{sys::signal::Signal, unistd::Pid};

use crate::tools::{Dir, Running, code, is_running, until};

/// A script that leaves a process behind which keeps every descriptor it was given.
const LEAVES_A_CHILD: &str = "sleep 1000 & echo $!; echo ready; read line; true";

fn kill(pid: i32) {
    nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
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
    let mut running =
        Running::start(dir.leasehold(&["run", "--ttl", "1h", "x", "--", "sh", "-c", "echo $$; read line"]));
    let cmd = running.number();
    let mut waiting = Running::start(dir.leasehold(&["run", "x", "--", "true"]));
    dir.until_waiters("x", 1);
    assert!(!waiting.has_ended());
    running.signal(Signal::SIGKILL);
    assert_eq!(code(&waiting.output()), 0);
    until("CMD's end", || !is_running(cmd));
}

#[test]
fn the_name_is_free_only_when_every_heir_of_the_descriptor_is_gone() {
    let dir = Dir::new();
    let mut running = Running::start(dir.leasehold(&["run", "x", "--", "sh", "-c", LEAVES_A_CHILD]));
    let heir = running.number();
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGKILL);
    drop(running.wait());
    assert!(is_running(heir));
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 75);
    kill(heir);
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
}

#[test]
fn with_close_the_descriptor_stays_at_home() {
    let dir = Dir::new();
    let args = ["run", "-o", "x", "--", "sh", "-c", LEAVES_A_CHILD];
    let mut running = Running::start(dir.leasehold(&args));
    let heir = running.number();
    assert_eq!(running.line(), "ready");
    assert_eq!(lock_descriptors(&dir, heir), 0);
    running.signal(Signal::SIGKILL);
    drop(running.wait());
    assert!(is_running(heir));
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
    kill(heir);
}

#[test]
fn cmd_inherits_one_descriptor_and_its_end_frees_the_name_even_if_heirs_live() {
    let dir = Dir::new();
    let mut running = Running::start(dir.leasehold(&["run", "x", "--", "sh", "-c", LEAVES_A_CHILD]));
    let heir = running.number();
    assert_eq!(running.line(), "ready");
    assert_eq!(lock_descriptors(&dir, heir), 1);
    let fds = fs::read_dir(format!("/proc/{heir}/fd")).unwrap().count();
    assert_eq!(fds, 4, "stdin, stdout, stderr and the lock");
    // The heir keeps our pipes open, too: only the end of leasehold itself can be waited for.
    running.write("\n");
    until("leasehold's end", || running.has_ended());
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
    kill(heir);
}

fn lock_descriptors(dir: &Dir, pid: i32) -> usize {
    let locks = dir.locks();
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(&locks)).count()
}
