//! `--on-lost`: a text for the shell that runs when the lock is lost, while CMD is ended.

use std::fs;

use crate::{
    loss::replace,
    tools::{Dir, Running, code, is_running, stderr, stdout, until},
};

/// Prints what the shell was told.
const TELL: &str = "echo \"$LEASEHOLD_NAME $LEASEHOLD_TOKEN $LEASEHOLD_LOSS ${LEASEHOLD_URL-none}\"";
/// A CMD that ignores TERM.
const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.01; done";

fn start(dir: &Dir, command: &[&str], hook: &str, options: &[&str], script: &str) -> Running {
    // The check of the lock file is at a third of the ttl.
    let ttl: &[&str] = if options.contains(&"--ttl") { &[] } else { &["--ttl", "1s"] };
    let args = [command, &["--on-lost", hook], ttl, options, &["x", "--", "sh", "-c", script]].concat();
    Running::start(dir.leasehold(&args))
}

#[test]
fn the_shell_is_told_what_was_lost_and_why() {
    for command in [&["run"][..], &["elect"], &["once", "--for", "1d"]] {
        let dir = Dir::new();
        let mut running = start(&dir, command, TELL, &[], "echo ready; exec sleep 1000");
        assert_eq!(running.line(), "ready");
        let token = dir.show("x")["holders"][0]["token"].to_string();
        replace(&dir, "x");
        let output = running.wait();
        assert_eq!(code(&output), 76, "{command:?}: {output:?}");
        assert_eq!(stdout(&output), format!("x {token} replaced none\n"), "{command:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    }
}

/// The shell is no descendant of the process that ends CMD and its descendants.
#[test]
fn the_shell_survives_the_end_of_cmd_and_does_not_delay_it() {
    let dir = Dir::new();
    let go = dir.path().join("go");
    let hook = format!("until [ -e {} ]; do sleep 0.01; done; echo told", go.display());
    let mut running = start(&dir, &["run"], &hook, &["--grace", "300ms"], STUBBORN);
    let cmd = running.number();
    replace(&dir, "x");
    // CMD is killed although the shell runs until the file is there.
    until("the end of CMD", || !is_running(cmd));
    // The front, which runs the shell, waits for its end, too.
    let front = running.pid();
    let children = || fs::read_to_string(format!("/proc/{front}/task/{front}/children")).unwrap_or_default();
    let comm = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    until("the end of the guardian", || !children().split(' ').any(|pid| comm(pid) == "lh-guardian\n"));
    fs::write(&go, "").unwrap();
    let output = running.wait();
    assert_eq!((code(&output), stdout(&output).as_str()), (76, "told\n"), "{output:?}");
}

#[test]
fn a_shell_that_hangs_is_killed_with_its_children() {
    let dir = Dir::new();
    let pids = dir.path().join("pids");
    let hook = format!("sleep 1000 & echo $$ $! >{}; wait", pids.display());
    let mut running = start(&dir, &["run"], &hook, &["--grace", "300ms"], STUBBORN);
    let cmd = running.number();
    replace(&dir, "x");
    until("the end of CMD", || !is_running(cmd));
    let output = running.wait();
    assert_eq!(code(&output), 76);
    assert!(stderr(&output).contains("file lock \"x\": --on-lost did not end within 10 s"), "{output:?}");
    let pids = fs::read_to_string(pids).unwrap();
    for pid in pids.split_whitespace() {
        until("the end of the shell", || !is_running(pid.parse().unwrap()));
    }
}

#[test]
fn a_shell_that_fails_is_reported_and_changes_no_exit_code() {
    for (hook, message) in
        [("exit 3", "--on-lost ended with 3"), ("kill -9 $$", "--on-lost was ended by SIGKILL")]
    {
        let dir = Dir::new();
        let mut running = start(&dir, &["run"], hook, &[], "echo ready; exec sleep 1000");
        assert_eq!(running.line(), "ready");
        replace(&dir, "x");
        let output = running.wait();
        assert_eq!(code(&output), 76);
        assert!(stderr(&output).contains(message), "{output:?}");
    }
}

/// The keeper would check the lock only after 20 s, so the loss is found at the release.
#[test]
fn a_loss_that_is_found_after_the_end_of_cmd_runs_the_shell_too() {
    let dir = Dir::new();
    let mut running = start(&dir, &["run"], TELL, &["--ttl", "1h"], "echo ready; read line; exit 0");
    assert_eq!(running.line(), "ready");
    replace(&dir, "x");
    let output = running.output();
    assert_eq!(code(&output), 76, "{output:?}");
    assert!(stdout(&output).contains(" replaced "), "{output:?}");
}

#[test]
fn max_hold_is_a_loss_and_a_release_is_none() {
    let dir = Dir::new();
    let running = start(&dir, &["run"], TELL, &["--max-hold", "300ms"], "exec sleep 1000");
    let output = running.wait();
    assert_eq!(code(&output), 76);
    assert!(stdout(&output).contains(" max_hold "), "{output:?}");
    for (script, wanted) in [("true", 0), ("exit 5", 5), ("kill -9 $$", 137)] {
        let output = start(&dir, &["run"], TELL, &[], script).wait();
        assert_eq!((code(&output), stdout(&output).as_str()), (wanted, ""), "{output:?}");
    }
}

/// The guardian ends without a loss, while the front waits for its line.
#[test]
fn a_taken_lock_runs_no_shell() {
    let dir = Dir::new();
    let _holder = dir.hold("x");
    let output = start(&dir, &["run"], TELL, &["-n"], "true").wait();
    assert_eq!((code(&output), stdout(&output).as_str()), (75, ""), "{output:?}");
}
