//! The lock is lost while CMD runs.

use std::fs;

use crate::tools::{Dir, Running, code, one_line, stdout};

/// Puts another file where the lock file is.
fn replace(dir: &Dir, name: &str) {
    let key = dir.show(name)["key"].as_str().unwrap().to_owned();
    let other = format!("{key}.new");
    fs::write(&other, "").unwrap();
    fs::rename(other, key).unwrap();
}

#[test]
fn a_replaced_lock_file_ends_cmd_with_76() {
    let dir = Dir::new();
    let script = "trap 'echo told; exit 0' TERM; echo ready; while :; do read line; done";
    let running = dir.holder(&["--ttl", "1s"], "x", script);
    replace(&dir, "x");
    let output = running.wait();
    assert_eq!((code(&output), stdout(&output).as_str()), (76, "told\n"));
    let said = one_line(&output);
    assert!(said.contains("file lock \"x\"") && said.contains("replaced"), "{said}");
}

#[test]
fn an_unlinked_lock_file_ends_cmd_with_76() {
    let dir = Dir::new();
    let running = dir.holder(&["--ttl", "1s"], "x", "echo ready; exec sleep 1000");
    fs::remove_file(dir.show("x")["key"].as_str().unwrap()).unwrap();
    assert_eq!(code(&running.wait()), 76);
}

#[test]
fn a_loss_is_told_even_if_cmd_ends_before_it_is_noticed() {
    let dir = Dir::new();
    let running = dir.holder(&["--ttl", "1h"], "x", "echo ready; read line; exit 0");
    replace(&dir, "x");
    let output = running.output();
    assert_eq!(code(&output), 76);
    one_line(&output);
}

#[test]
fn a_stopped_cmd_is_ended_too() {
    let dir = Dir::new();
    let mut running = Running::start(dir.leasehold(&[
        "run",
        "--max-hold",
        "1s",
        "x",
        "--",
        "sh",
        "-c",
        "echo $$; kill -STOP $$; exit 0",
    ]));
    let cmd = running.number();
    assert_eq!(code(&running.wait()), 76);
    assert!(!crate::tools::is_running(cmd));
}

#[test]
fn term_that_is_no_breaking_only_goes_on_to_cmd() {
    let dir = Dir::new();
    // Not by a read that each signal ends: one that comes before the read would end none.
    let script =
        "n=0; trap 'n=$((n+1)); echo told' TERM; echo ready; while [ $n -lt 2 ]; do sleep 0.01; done; exit 8";
    let mut running = dir.holder(&[], "x", script);
    running.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(running.line(), "told");
    running.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(running.line(), "told");
    assert_eq!(code(&running.output()), 8);
}
