//! The lock is lost while CMD runs.

use std::fs;

use nix::sys::signal::{Signal, kill};

use crate::{
    start::{LEASEHOLD, program},
    tools::{Dir, Running, code, one_line, stdout, until},
};

/// Replaces the lock file by another file.
pub(crate) fn replace(dir: &Dir, name: &str) {
    let key = dir.show(name)["key"].as_str().unwrap().to_owned();
    let other = format!("{key}.new");
    fs::write(&other, "").unwrap();
    fs::rename(other, key).unwrap();
}

#[test]
fn a_replaced_lock_file_ends_cmd_with_76() {
    let dir = Dir::new();
    let script = "trap 'echo got-term; exit 0' TERM; echo ready; while :; do read line; done";
    let running = dir.holder(&["--ttl", "1s"], "x", script);
    replace(&dir, "x");
    let output = running.wait();
    assert_eq!((code(&output), stdout(&output).as_str()), (76, "got-term\n"));
    let message = one_line(&output);
    assert!(message.contains("file lock \"x\"") && message.contains("replaced"), "{message}");
}

#[test]
fn an_unlinked_lock_file_ends_cmd_with_76() {
    // With a ttl below two seconds the keeper starts with the hold, otherwise a moment later.
    for ttl in ["1s", "3s"] {
        let dir = Dir::new();
        let running = dir.holder(&["--ttl", ttl], "x", "echo ready; exec sleep 1000");
        fs::remove_file(dir.show("x")["key"].as_str().unwrap()).unwrap();
        assert_eq!(code(&running.wait()), 76, "{ttl}");
    }
}

#[test]
fn a_loss_is_reported_even_if_cmd_ended_first() {
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
fn term_without_a_break_is_only_forwarded() {
    let dir = Dir::new();
    // Not with a `read` that each signal interrupts: a signal before the `read` would not interrupt it.
    let script = "n=0; trap 'n=$((n+1)); echo got-term' TERM; echo ready; \
        while [ $n -lt 2 ]; do sleep 0.01; done; exit 8";
    let mut running = dir.holder(&[], "x", script);
    running.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(running.line(), "got-term");
    running.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(running.line(), "got-term");
    assert_eq!(code(&running.output()), 8);
}

/// As with `sudo`: CMD, or a process that it starts, becomes root under a `leasehold` of another user.
#[test]
fn processes_that_became_another_user_are_named() {
    assert!(nix::unistd::geteuid().is_root(), "becoming another user needs root: run this test as root");
    // A set-uid copy of setpriv: with it `nobody` becomes root in every respect.
    for (script, is_alone) in
        [("exec ./become ARGS echo-ready", true), ("./become ARGS echo-ready; true", false)]
    {
        let dir = Dir::new();
        let copy = |from: &str, name: &str, mode: u32| {
            let to = dir.path().join(name);
            assert!(program("cp").arg(from).arg(&to).status().unwrap().success());
            fs::set_permissions(&to, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            to
        };
        let leasehold = copy(LEASEHOLD, "leasehold", 0o755);
        copy("/usr/bin/setpriv", "become", 0o4755);
        fs::create_dir(dir.locks()).unwrap();
        for path in [dir.path(), &dir.locks()] {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::chown(dir.locks(), Some(65534), Some(65534)).unwrap();
        let became = "--reuid=0 --regid=0 --clear-groups";
        let script = script.replace("ARGS", became).replace("echo-ready", "sh -c 'echo $$; exec sleep 1000'");
        let mut command = program("setpriv");
        command
            .current_dir(dir.path())
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(leasehold);
        command.env("LEASEHOLD_URL", dir.url());
        command.args(["run", "--ttl", "1s", "--grace", "100ms", "x", "--", "sh", "-c", &script]);
        let mut running = Running::start(command);
        let root = running.number();
        replace(&dir, "x");
        let message = running.stderr_line();
        assert!(
            message.contains("lock \"x\"") && message.contains(&format!("{root} (sleep, of user root)")),
            "{message}"
        );
        assert!(crate::tools::is_running(root));
        if !is_alone {
            // The processes that it may signal have ended.
            until("the end", || running.has_ended());
        }
        kill(nix::unistd::Pid::from_raw(root), Signal::SIGKILL).unwrap();
        assert_eq!(code(&running.wait()), 76);
    }
}
