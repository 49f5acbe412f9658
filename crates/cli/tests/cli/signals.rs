//! Signals while a run waits and while CMD runs, and the signal settings that CMD inherits.

use std::process::Command;

use nix::sys::signal::Signal;

use crate::{
    start::{LEASEHOLD, program},
    tools::{Dir, Running, code, finish, one_line, state, stderr, stdout, until},
};

const ENDING: [(Signal, i32); 6] = [
    (Signal::SIGHUP, 129),
    (Signal::SIGINT, 130),
    (Signal::SIGQUIT, 131),
    (Signal::SIGTERM, 143),
    (Signal::SIGUSR1, 138),
    (Signal::SIGUSR2, 140),
];

#[test]
fn a_signal_ends_the_wait_and_leaves_no_waiter() {
    let dir = Dir::new();
    let holder = dir.hold("x");
    for (signal, expected) in ENDING {
        let mut waiting = Running::start(dir.leasehold(&["run", "x", "--", "true"]));
        dir.until_waiters("x", 1);
        waiting.signal(signal);
        let output = waiting.wait();
        assert_eq!(code(&output), expected, "{signal}");
        let message = one_line(&output);
        assert!(message.contains("\"x\"") && message.contains(signal.as_str()), "{message}");
        dir.until_waiters("x", 0);
    }
    assert_eq!(code(&holder.output()), 0);
}

#[test]
fn a_quiet_wait_ends_silently() {
    let dir = Dir::new();
    let _holder = dir.hold("x");
    let mut waiting = Running::start(dir.leasehold(&["run", "-q", "x", "--", "true"]));
    dir.until_waiters("x", 1);
    waiting.signal(Signal::SIGTERM);
    let output = waiting.wait();
    assert_eq!((code(&output), stderr(&output).as_str()), (143, ""));
}

#[test]
fn a_signal_is_forwarded_and_cmd_sets_the_exit_code() {
    let dir = Dir::new();
    for (signal, expected) in ENDING {
        let name = signal.as_str().trim_start_matches("SIG");
        let script =
            format!("trap 'echo got {name}; exit 9' {name}; echo ready; while :; do read line; done");
        let mut running = dir.holder(&[], "x", &script);
        running.signal(signal);
        let output = running.wait();
        assert_eq!((code(&output), stdout(&output)), (9, format!("got {name}\n")));
        let mut running = dir.hold("x");
        running.signal(signal);
        let output = running.wait();
        assert_eq!((code(&output), stderr(&output).as_str()), (expected, ""), "{signal}: not handled by CMD");
    }
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let dir = Dir::new();
    let script = "sleep 1000 & echo $!; echo ready; wait; exit 3";
    let mut running = Running::start(dir.leasehold(&["run", "x", "--", "sh", "-c", script]));
    let sleeper = running.number();
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGTERM);
    assert_eq!(code(&running.wait()), 143);
    until("the sleeper's end", || !crate::tools::is_running(sleeper));
}

#[test]
fn stop_and_continue_reach_cmd() {
    let dir = Dir::new();
    let mut running =
        Running::start(dir.leasehold(&["run", "x", "--", "sh", "-c", "echo $$; read line; exit 4"]));
    let cmd = running.number();
    running.signal(Signal::SIGTSTP);
    until("a stopped CMD", || state(cmd) == Some('T'));
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 75, "it still holds");
    running.signal(Signal::SIGCONT);
    until("a running CMD", || state(cmd) != Some('T'));
    assert_eq!(code(&running.output()), 4);
}

#[test]
fn cmd_inherits_the_original_signal_settings() {
    let dir = Dir::new();
    // Signals 32 and 33 belong to the C library.
    let mask = |hex: &str| u64::from_str_radix(hex.trim(), 16).unwrap() & !0x1_8000_0000;
    let masks = |command: Command| -> [u64; 2] {
        let text = stdout(&finish(command));
        ["SigBlk:", "SigIgn:"]
            .map(|what| mask(text.lines().find_map(|line| line.strip_prefix(what)).unwrap()))
    };
    let status = ["cat", "/proc/self/status"];
    let mut plain = program("env");
    plain.args(status);
    let expected = masks(plain);
    assert_eq!(masks(dir.leasehold(&[&["run", "x", "--"], &status[..]].concat())), expected);
    assert_eq!(expected, [0, 0], "nothing is blocked or ignored");
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let dir = Dir::new();
    let script = format!("trap '' HUP; exec {LEASEHOLD} run x -- sh -c 'echo ready; read line; exit 5'");
    let mut command = program("sh");
    command.args(["-c", &script]).env("LEASEHOLD_URL", dir.url());
    let mut running = Running::start(command);
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGHUP);
    assert_eq!(code(&running.output()), 5, "as with nohup");
    let holder = dir.hold("x");
    let script = format!("trap '' HUP; exec {LEASEHOLD} run x -- sh -c 'exit 6'");
    let mut command = program("sh");
    command.args(["-c", &script]).env("LEASEHOLD_URL", dir.url());
    let mut waiting = Running::start(command);
    dir.until_waiters("x", 1);
    waiting.signal(Signal::SIGHUP);
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(code(&waiting.output()), 6);
}

#[test]
fn a_parent_that_ignores_sigchld_does_no_harm() {
    let dir = Dir::new();
    let mut command = program("env");
    command.args(["--ignore-signal=CHLD", LEASEHOLD, "run", "x", "--", "sh", "-c", "exit 5"]);
    command.env("LEASEHOLD_URL", dir.url());
    assert_eq!(code(&finish(command)), 5);
}

#[test]
fn a_closed_output_pipe_ends_the_command_silently() {
    let mut command = program("bash");
    command.args(["-c", &format!("{LEASEHOLD} completions bash | true; echo ${{PIPESTATUS[0]}}")]);
    let output = finish(command);
    assert!(["0\n", "141\n"].contains(&stdout(&output).as_str()), "{output:?}");
    assert_eq!(stderr(&output), "");
}
