//! Work that the command runs one time for a key, on files and on servers.

use std::{fs, os::unix::fs::PermissionsExt, process::Stdio};

use leasehold_testkit::server::RedisServer;
use nix::sys::signal::Signal;

use crate::{
    elect::{Fixture, each},
    start::{LEASEHOLD, program},
    tools::{Dir, HOLD, Running, code, finish, is_running, one_line, stderr, stdout, until},
};

/// The arguments of `leasehold once --for 1d OPTIONS job -- sh -c SCRIPT`.
fn once<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["once", "--for", "1d"], options, &["job", "--", "sh", "-c", script]].concat()
}

/// Runs it to its end. Returns its exit code and its output.
fn call(fixture: &Fixture, options: &[&str], script: &str) -> (i32, String) {
    let output = fixture.call(&once(options, script));
    (code(&output), stdout(&output))
}

/// Starts it and waits until the script prints "ready".
fn running(fixture: &Fixture, options: &[&str], script: &str) -> Running {
    let mut running = Running::start(fixture.leasehold(&once(options, script)));
    assert_eq!(running.line(), "ready");
    running
}

fn until_waiters(fixture: &Fixture, count: usize) {
    until("waiters", || fixture.show("job")["waiters"].as_array().unwrap().len() == count);
}

fn printed(text: &str) -> (i32, String) {
    (0, text.to_owned())
}

#[test]
fn cmd_runs_one_time_and_a_failure_stores_nothing() {
    each(|fixture| {
        assert_eq!(call(fixture, &[], "echo failed; exit 3"), (3, "failed\n".into()));
        assert_eq!(call(fixture, &["--show-result"], "kill -9 $$"), (137, String::new()));
        assert_eq!(fixture.code(&["once", "--for", "1d", "job", "--", "/nonexistent"]), 127);
        assert_eq!(call(fixture, &[], "echo $LEASEHOLD_NAME $LEASEHOLD_PREVIOUS"), printed("job clean\n"));
        assert_eq!(call(fixture, &[], "echo again; exit 3"), printed(""));
        assert_eq!(call(fixture, &["--show-result"], "echo again"), printed(""), "no output was stored");
        assert_eq!(call(fixture, &["-n"], "echo again"), printed(""));
    });
}

#[test]
fn each_call_prints_the_output_of_the_run() {
    each(|fixture| {
        let script = "printf 'receipt\\0 1\\n'; echo not this >&2";
        let first = fixture.call(&once(&["--show-result"], script));
        let expected = b"receipt\0 1\n".to_vec();
        assert_eq!((code(&first), &first.stdout, stderr(&first)), (0, &expected, "not this\n".into()));
        let repeat = fixture.call(&once(&["--show-result"], "echo again"));
        assert_eq!((code(&repeat), &repeat.stdout, stderr(&repeat)), (0, &expected, String::new()));
        assert_eq!(call(fixture, &[], "echo again"), printed(""), "only when it is wanted");
    });
}

#[test]
fn a_long_output_is_passed_on_and_stored_up_to_the_limit() {
    each(|fixture| {
        let mut first =
            Running::start(fixture.leasehold(&once(&["--show-result"], "head -c 300000 /dev/zero")));
        first.skip(300_000);
        let first = first.wait();
        assert_eq!((code(&first), stdout(&first).as_str()), (0, ""), "no more than CMD printed");
        assert!(one_line(&first).contains("only the first 65536 bytes of the output are stored"));
        let mut repeat = Running::start(fixture.leasehold(&once(&["--show-result"], "echo again")));
        repeat.skip(65_536);
        let repeat = repeat.wait();
        assert_eq!((code(&repeat), stdout(&repeat).as_str()), (0, ""));
        assert!(one_line(&repeat).contains("its end may be missing"));
    });
}

#[test]
fn a_repeat_waits_for_the_run_and_does_not_run() {
    each(|fixture| {
        let mut first = running(fixture, &["--show-result"], "echo ready; read line; echo done");
        assert_eq!(call(fixture, &["-n"], "echo again"), (75, String::new()));
        assert_eq!(call(fixture, &["-w", "3s", "-q", "-E", "9"], "echo again"), (9, String::new()));
        let repeat = Running::start(fixture.leasehold(&once(&["--show-result"], "echo again")));
        until_waiters(fixture, 1);
        first.write("\n");
        assert_eq!(code(&first.wait()), 0);
        let repeat = repeat.wait();
        assert_eq!(
            (code(&repeat), stdout(&repeat).as_str(), stderr(&repeat).as_str()),
            (0, "ready\ndone\n", "")
        );
    });
}

#[test]
fn of_many_calls_at_once_one_runs() {
    each(|fixture| {
        let dir = Dir::new();
        let log = dir.path().join("log");
        let script = format!("echo ran >>{}", log.display());
        let calls = [(); 12].map(|()| Running::start(fixture.leasehold(&once(&[], &script))));
        for call in calls {
            let output = call.wait();
            assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
        }
        assert_eq!(fs::read_to_string(log).unwrap(), "ran\n", "{}", fixture.engine);
    });
}

/// The front is killed: the guardian ends CMD and releases the lock.
#[test]
fn when_a_run_is_killed_its_command_ends_and_the_next_one_runs() {
    each(|fixture| {
        let mut first = running(fixture, &["--ttl", "300s"], "echo ready; echo $$; exec sleep 1000");
        let cmd = first.number();
        let next = Running::start(fixture.leasehold(&once(&[], &format!("kill -0 {cmd} 2>&-; echo $?"))));
        until_waiters(fixture, 1);
        first.signal(Signal::SIGKILL);
        let next = next.wait();
        assert_eq!(
            (code(&next), stdout(&next).as_str()),
            (0, "1\n"),
            "{}: CMD has ended before",
            fixture.engine
        );
        assert!(!is_running(cmd));
        assert_eq!(call(fixture, &[], "echo again"), printed(""));
    });
}

/// Both processes are killed, as by a power failure.
#[test]
fn a_crashed_run_is_taken_over_and_the_next_one_is_told() {
    each(|fixture| {
        let mut first = running(fixture, &["--ttl", "2s"], "echo ready; exec sleep 1000");
        let next = Running::start(fixture.leasehold(&once(&[], "echo $LEASEHOLD_PREVIOUS")));
        until_waiters(fixture, 1);
        first.kill_whole();
        let next = next.wait();
        assert_eq!((code(&next), stdout(&next).as_str()), (0, "lapsed\n"), "{}", fixture.engine);
        assert_eq!(call(fixture, &[], "echo again"), printed(""));
    });
}

#[test]
fn a_run_that_lost_the_lock_stores_nothing() {
    let server = RedisServer::start(&[]);
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    // CMD ends with 0 when it is told to stop, but it has run without the lock.
    let script = "trap 'exit 0' TERM; echo ready; read line";
    let first = running(&fixture, &[], script);
    assert_eq!(fixture.code(&["break", "job", "--token", &fixture.token()]), 0);
    let output = first.wait();
    assert_eq!(code(&output), 76);
    assert!(one_line(&output).contains("lost while sh ran"), "{output:?}");
    assert_eq!(call(&fixture, &[], "echo $LEASEHOLD_PREVIOUS"), printed("broken\n"));
}

/// The lock is lost shortly before CMD ends: the engine tells that in its answer to the release.
#[test]
fn a_loss_that_the_release_finds_stores_nothing() {
    let server = RedisServer::start(&[]);
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    let mut first = running(&fixture, &["--ttl", "300s"], HOLD);
    server.command(&["DEL", "lock:job"]);
    first.write("\n");
    let output = first.wait();
    assert_eq!(code(&output), 76, "{output:?}");
    assert!(one_line(&output).contains("lost while sh ran, which ended with 0"), "{output:?}");
    assert_eq!(call(&fixture, &[], "echo ran"), printed("ran\n"));
}

#[test]
fn a_replaced_lock_file_stores_nothing() {
    let dir = Dir::new();
    let lock_file = dir.locks().join("job.lock");
    let script = format!("rm {}", lock_file.display());
    let args = once(&[], &script);
    let output = dir.call(&args);
    assert_eq!(code(&output), 76, "{output:?}");
    assert!(one_line(&output).contains("its lock file was replaced or unlinked"), "{output:?}");
    assert_eq!(stdout(&dir.call(&once(&[], "echo ran"))), "ran\n");
}

#[test]
fn the_result_is_kept_for_the_time_that_was_given() {
    each(|fixture| {
        let args = ["once", "--for", "1500ms", "job", "--", "echo", "ran"];
        assert_eq!(stdout(&fixture.call(&args)), "ran\n");
        until("it runs again", || stdout(&fixture.call(&args)) == "ran\n");
        assert_eq!(stdout(&fixture.call(&once(&[], "true"))), "");
    });
}

/// On the file engine, as with `run`.
#[test]
fn what_a_failed_cmd_leaves_behind_keeps_the_key() {
    let dir = Dir::new();
    let script = "exec 3<&0; sh -c 'echo ready; read line <&3' & exit 5";
    let mut first = Running::start(dir.leasehold(&once(&[], script)));
    assert_eq!(first.line(), "ready");
    until("the end of CMD", || first.has_ended());
    assert_eq!(dir.code(&once(&["-n"], "true")), 75, "the process that CMD left still runs");
    assert_eq!(code(&first.output()), 5);
    until("the key is free", || dir.code(&once(&["-n"], "true")) == 0);
}

#[test]
fn a_reader_that_has_gone_ends_cmd_as_without_leasehold() {
    let dir = Dir::new();
    let mut first = Running::start(dir.leasehold(&once(&["--show-result"], "exec yes")));
    assert_eq!(first.line(), "y");
    first.close_output();
    assert_eq!(code(&first.wait()), 141, "SIGPIPE ends CMD");
    assert_eq!(stdout(&dir.call(&once(&[], "echo ran"))), "ran\n", "nothing is stored");
}

/// The reader does not read, so CMD waits for it. The lock is kept meanwhile, and signals reach CMD.
#[test]
fn a_reader_that_does_not_read_loses_no_lock() {
    let server = RedisServer::start(&[]);
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    let script = "echo ready; echo $LEASEHOLD_TOKEN; exec yes";
    let mut first = running(&fixture, &["--ttl", "1s", "--show-result"], script);
    let token = first.line();
    let held_ms = || fixture.show("job")["holders"][0]["held_ms"].as_u64().unwrap();
    until("three leases have passed", || held_ms() > 3000);
    assert_eq!(fixture.token(), token);
    first.signal(Signal::SIGTERM);
    assert_eq!(code(&first.wait()), 143);
}

#[test]
fn a_closed_standard_output_is_no_failure() {
    let dir = Dir::new();
    let mut shell = program("sh");
    let line = format!("{LEASEHOLD} once --for 1d --show-result job -- echo text >&-");
    shell.args(["-c", &line]).env("LEASEHOLD_URL", dir.url()).stdout(Stdio::null());
    let output = finish(shell);
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
    assert_eq!(stdout(&dir.call(&once(&["--show-result"], "echo again"))), "text\n");
}

/// Root may read every file, so the mode alone shows that the result is protected.
#[test]
fn other_users_cannot_read_the_stored_output() {
    let dir = Dir::new();
    assert_eq!(dir.code(&once(&["--show-result"], "echo secret")), 0);
    let memo = dir.locks().join(".state/job.memo");
    let locks = fs::metadata(dir.locks()).unwrap().permissions().mode();
    let file = fs::metadata(memo).unwrap().permissions().mode();
    assert!(locks & 0o007 == 0 || file & 0o004 == 0, "{locks:o} {file:o}");
}

#[test]
fn wrong_arguments_are_refused_before_cmd_runs() {
    let dir = Dir::new();
    for (args, text) in [
        (&["once", "job", "--", "echo"][..], "--for"),
        (&["once", "--for", "1d", "job"], "<CMD>"),
        (&["once", "--for", "10", "job", "--", "echo"], "write 10s"),
        (&["once", "--for", "0s", "job", "--", "echo"], "give 1ms to"),
        (&["once", "--for", "401d", "job", "--", "echo"], "give 1ms to"),
        (&["once", "--for", "1d", "", "--", "echo"], "the name is empty"),
        (&["once", "--for", "1d", "--at-least", "1s", "job", "--", "echo"], "--at-least"),
        (&["once", "--for", "1d", "-n", "-w", "1s", "job", "--", "echo"], "cannot be used with"),
    ] {
        let output = dir.call(args);
        let message = one_line(&output);
        assert!(code(&output) == 64 && message.contains(text), "{args:?}: {message}");
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

#[test]
fn signals_reach_cmd_and_verbose_tells_the_steps() {
    let dir = Dir::new();
    let mut first = Running::start(dir.leasehold(&once(&["-v"], "echo ready; exec sleep 1000")));
    assert_eq!(first.line(), "ready");
    first.signal(Signal::SIGINT);
    let output = first.wait();
    assert_eq!(code(&output), 130);
    let messages = stderr(&output);
    assert!(messages.contains("granted after") && messages.contains("released: waited"), "{messages}");
    assert_eq!(dir.code(&once(&[], HOLD)), 0);
    let repeat = dir.call(&once(&["-v"], HOLD));
    assert!(one_line(&repeat).contains("CMD ran already, and is not run again"), "{repeat:?}");
}
