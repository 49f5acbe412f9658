//! Each option of `run`, and its exit codes.

use std::time::{Duration, Instant};

use crate::tools::{Dir, HOLD, Running, code, one_line, stderr};

const TRUE: [&str; 3] = ["x", "--", "true"];

fn run(dir: &Dir, options: &[&str]) -> std::process::Output {
    dir.call(&[&["run"], options, &TRUE].concat())
}

#[test]
fn a_taken_name_is_75_or_the_requested_code() {
    let dir = Dir::new();
    let holder = dir.hold("x");
    for options in
        [&["-n"][..], &["--nonblock"], &["-w", "0s"], &["-w", "50ms"], &["--wait", "50ms"], &["-n", "-s"]]
    {
        let output = run(&dir, options);
        assert_eq!(code(&output), 75, "{options:?}");
        let message = one_line(&output);
        assert!(message.contains("file lock \"x\"") && message.contains("not acquired"), "{message}");
    }
    for code_asked in ["0", "1", "255"] {
        let asked = code_asked.parse::<i32>().unwrap();
        assert_eq!(code(&run(&dir, &["-n", "-E", code_asked])), asked);
        assert_eq!(code(&run(&dir, &["-w", "50ms", "--conflict-exit-code", code_asked])), asked);
    }
    assert_eq!(code(&holder.output()), 0);
}

#[test]
fn quiet_hides_only_the_message_about_a_taken_name() {
    let dir = Dir::new();
    let holder = dir.hold("x");
    for options in [&["-q", "-n"][..], &["--quiet", "-w", "20ms"]] {
        let output = run(&dir, options);
        assert_eq!((code(&output), stderr(&output).as_str()), (75, ""));
    }
    drop(holder);
    let output = dir.call(&["run", "-q", "x", "--", "no-such-command"]);
    assert_eq!(code(&output), 127);
    one_line(&output);
}

#[test]
fn a_wait_ends_when_the_name_is_free_and_not_before() {
    let dir = Dir::new();
    let holder = dir.hold("x");
    let mut waiting = Running::start(dir.leasehold(&["run", "-w", "1h", "x", "--", "true"]));
    let mut forever = Running::start(dir.leasehold(&["run", "x", "--", "true"]));
    dir.until_waiters("x", 2);
    assert!(!waiting.has_ended() && !forever.has_ended());
    assert_eq!(code(&holder.output()), 0);
    assert_eq!([code(&waiting.output()), code(&forever.output())], [0, 0]);
}

#[test]
fn a_limited_wait_lasts_its_limit() {
    let dir = Dir::new();
    let holder = dir.hold("x");
    let begin = Instant::now();
    assert_eq!(code(&run(&dir, &["-w", "300ms"])), 75);
    assert!(begin.elapsed() >= Duration::from_millis(300));
    drop(holder);
}

#[test]
fn readers_share_and_exclude_a_writer() {
    let dir = Dir::new();
    let reader = dir.holder(&["-s"], "x", HOLD);
    assert_eq!(code(&run(&dir, &["-n", "--shared"])), 0);
    assert_eq!(code(&run(&dir, &["-n"])), 75);
    assert_eq!(code(&reader.output()), 0);
    assert_eq!(code(&run(&dir, &["-n"])), 0);
}

#[test]
fn permits_are_counted() {
    let dir = Dir::new();
    let two = dir.holder(&["--permits", "2", "--limit", "3"], "x", HOLD);
    assert_eq!(code(&run(&dir, &["-n", "--permits", "2", "--limit", "3"])), 75);
    let one = dir.holder(&["--limit", "3"], "x", HOLD);
    assert_eq!(code(&run(&dir, &["-n", "--limit", "3"])), 75);
    for options in [&["-n", "--limit", "4"][..], &["-n"]] {
        let output = run(&dir, options);
        assert_eq!(code(&output), 78, "another limit or mode on the name: {options:?}");
        one_line(&output);
    }
    assert_eq!([code(&two.output()), code(&one.output())], [0, 0]);
    assert_eq!(code(&run(&dir, &["-n", "--permits", "3", "--limit", "3"])), 0);
}

#[test]
fn at_least_keeps_the_name_taken_after_success_only() {
    let dir = Dir::new();
    let at_least = ["run", "-n", "--at-least", "1h", "x", "--", "sh", "-c"];
    assert_eq!(dir.code(&[&at_least[..], &["exit 3"]].concat()), 3);
    assert_eq!(dir.code(&[&at_least[..], &["kill -TERM $$"]].concat()), 143);
    assert_eq!(dir.code(&[&at_least[..], &["exit 0"]].concat()), 0);
    for options in [&["-n"][..], &["-n", "-s"]] {
        assert_eq!(code(&run(&dir, options)), 75, "{options:?}");
    }
    assert_eq!(
        dir.show("x")["holders"].as_array().unwrap().len(),
        1,
        "the minimum hold is shown as a holder"
    );
}

#[test]
fn at_least_counts_from_the_grant() {
    let dir = Dir::new();
    let begin = Instant::now();
    assert_eq!(code(&run(&dir, &["--at-least", "400ms"])), 0);
    assert_eq!(code(&run(&dir, &[])), 0, "it is free afterwards");
    assert!(begin.elapsed() >= Duration::from_millis(400));
    let begin = Instant::now();
    assert_eq!(dir.code(&["run", "--at-least", "300ms", "y", "--", "sleep", "0.3"]), 0);
    assert_eq!(dir.code(&["run", "-n", "y", "--", "true"]), 0);
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[test]
fn max_hold_ends_cmd_with_76() {
    let dir = Dir::new();
    let output = dir.call(&["run", "--max-hold", "200ms", "x", "--", "sleep", "1000"]);
    assert_eq!(code(&output), 76);
    let message = one_line(&output);
    assert!(
        message.contains("file lock \"x\"")
            && message.contains("--max-hold ended")
            && message.contains("sleep"),
        "{message}"
    );
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
    let output = dir.call(&[
        "run",
        "--max-hold",
        "200ms",
        "x",
        "--",
        "sh",
        "-c",
        "trap 'exit 0' TERM; sleep 1000 & wait",
    ]);
    assert_eq!(code(&output), 76, "the exit code of CMD does not matter");
    assert_eq!(dir.code(&["run", "--max-hold", "1h", "x", "--", "true"]), 0);
}

#[test]
fn a_cmd_that_ignores_term_is_killed_after_the_grace() {
    let dir = Dir::new();
    let ignores_term = "trap '' TERM; sleep 1000 & echo $!; while :; do wait; done";
    let args = ["run", "--grace", "300ms", "x", "--", "sh", "-c", ignores_term];
    let mut running = Running::start(dir.leasehold(&args));
    let sleeper = running.number();
    let begin = Instant::now();
    assert_eq!(dir.code(&["break", "x", "--token", "1"]), 0);
    assert_eq!(code(&running.output()), 76);
    assert!(begin.elapsed() >= Duration::from_millis(300));
    crate::tools::until("the group's end", || !crate::tools::is_running(sleeper));
}

#[test]
fn processes_left_in_the_group_get_the_grace_too() {
    let dir = Dir::new();
    let done = dir.path().join("done");
    let script = format!(
        "(trap 'sleep 0.2; echo ended >{}; exit' TERM; echo ready; sleep 1000 & wait) & wait",
        done.display()
    );
    let running = dir.holder(&["--grace", "1h"], "x", &script);
    assert_eq!(dir.code(&["break", "x", "--token", "1"]), 0);
    assert_eq!(code(&running.wait()), 76);
    assert_eq!(std::fs::read_to_string(done).unwrap(), "ended\n");
}

#[test]
fn the_ttl_has_a_range() {
    let dir = Dir::new();
    for ttl in ["0s", "1ms", "18446744073709551615ms", "1000d"] {
        let output = run(&dir, &["--ttl", ttl]);
        assert_eq!(code(&output), 64, "{ttl}");
        assert!(one_line(&output).contains("are allowed"), "{ttl}");
    }
    for ttl in ["1s", "30s", "1h"] {
        assert_eq!(code(&run(&dir, &["--ttl", ttl])), 0, "{ttl}");
    }
    assert_eq!(code(&run(&dir, &["--no-renew", "--ttl", "1s"])), 0);
}

#[test]
fn wrong_arguments_are_64_and_touch_nothing() {
    let dir = Dir::new();
    let long = "n".repeat(513);
    let wrong: [&[&str]; 16] = [
        &[],
        &["frobnicate"],
        &["run"],
        &["run", "x"],
        &["run", "x", "true"],
        &["run", "--frobnicate", "x", "--", "true"],
        &["run", "-n", "-w", "1s", "x", "--", "true"],
        &["run", "-w", "10", "x", "--", "true"],
        &["run", "-w", "-5s", "x", "--", "true"],
        &["run", "--max-hold", "0s", "x", "--", "true"],
        &["run", "--permits", "2", "x", "--", "true"],
        &["run", "-s", "--limit", "2", "x", "--", "true"],
        &["run", "", "--", "true"],
        &["run", "a\nb", "--", "true"],
        &["run", &long, "--", "true"],
        &["run", "--owner", "a\u{1b}b", "x", "--", "true"],
    ];
    for args in wrong {
        let output = dir.call(args);
        assert_eq!(code(&output), 64, "{args:?}");
        one_line(&output);
        assert!(output.stdout.is_empty());
    }
    for option in ["-w", "--ttl", "--max-hold", "--at-least", "--grace"] {
        let message = one_line(&dir.call(&["run", option, "-5s", "x", "--", "true"]));
        assert!(
            message.contains("\"-5s\" is not a duration"),
            "the message names only this option: {message}"
        );
    }
    let mut no_utf8 = dir.leasehold(&["run"]);
    no_utf8.arg(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"a\xff")).args(["--", "true"]);
    assert_eq!(code(&crate::tools::finish(no_utf8)), 64);
}

#[test]
fn the_owner_is_shown() {
    let dir = Dir::new();
    let holder = dir.holder(&["--owner", "the nightly job"], "x", HOLD);
    assert_eq!(dir.show("x")["holders"][0]["owner"], "the nightly job");
    drop(holder);
    let mut holder = dir.hold("y");
    let owner = dir.show("y")["holders"][0]["owner"].as_str().unwrap().to_owned();
    assert!(owner.contains('@') && owner.ends_with(&format!(":{}", holder.pid())), "{owner}");
}
