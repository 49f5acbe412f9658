//! The options of `run` for how it waits and how often it asks: --attempts, --retry-every, --max-waiting,
//! --when-unreachable, --renew-every.

use std::net::TcpListener;

use crate::tools::{Dir, Running, code, one_line, stderr};

const TRUE: [&str; 3] = ["x", "--", "true"];

fn run(dir: &Dir, options: &[&str]) -> std::process::Output {
    dir.call(&[&["run"], options, &TRUE].concat())
}

#[test]
fn a_taken_name_is_tried_as_often_as_asked() {
    let dir = Dir::new();
    let holder = dir.hold("x");
    for options in [
        &["--attempts", "1"][..],
        &["--attempts", "3", "--retry-every", "10ms"],
        &["--attempts", "2", "-w", "1h"],
    ] {
        let output = run(&dir, options);
        assert_eq!(code(&output), 75, "{options:?}");
        assert!(one_line(&output).contains("file lock \"x\": not acquired"), "{options:?}");
    }
    let trying = Running::start(dir.leasehold(&[
        "run",
        "--attempts",
        "4000000000",
        "--retry-every",
        "1ms..5ms",
        "x",
        "--",
        "true",
    ]));
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(code(&trying.output()), 0);
}

#[test]
fn wrong_paces_attempts_and_intervals_are_refused() {
    let dir = Dir::new();
    for (options, exit, reason) in [
        (&["--retry-every", "0s"][..], 64, "a pause of 0s is too short"),
        (&["--retry-every", "-1s"], 64, "is not a duration"),
        (&["--retry-every", "1s..100ms"], 64, "shorter than the first"),
        (&["--retry-every", "2s", "-w", "1s"], 64, "--retry-every is longer than --wait"),
        (&["--attempts", "0"], 64, "attempts is zero"),
        (&["--attempts", "2", "-n"], 64, "are for runs that wait"),
        (&["--attempts", "2", "-w", "0s"], 64, "are for runs that wait"),
        (&["--retry-every", "1s", "-n"], 64, "are for runs that wait"),
        (&["--max-waiting", "2", "-n"], 64, "are for runs that wait"),
        (&["--max-waiting", "0"], 64, "use --nonblock"),
        (&["--renew-every", "16s"], 78, "with a ttl of 30s, 1500ms to 15s are allowed"),
        (&["--renew-every", "1s"], 78, "with a ttl of 30s, 1500ms to 15s are allowed"),
        (&["--renew-every", "5s", "--no-renew"], 64, "cannot be used with"),
        (&["--when-unreachable", "later"], 64, "possible values: wait, fail"),
    ] {
        let output = run(&dir, options);
        assert_eq!(code(&output), exit, "{options:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{options:?}: {}", stderr(&output));
    }
    assert_eq!(code(&run(&dir, &["--renew-every", "1500ms", "--retry-every", "1s..2s", "-w", "1s"])), 0);
}

#[test]
fn one_more_than_may_wait_is_refused_as_busy() {
    let dir = Dir::new();
    let holder = dir.hold("x");
    let waiting = Running::start(dir.leasehold(&["run", "--max-waiting", "1", "x", "--", "true"]));
    dir.until_waiters("x", 1);
    let output = run(&dir, &["--max-waiting", "1"]);
    assert_eq!(code(&output), 75);
    let message = one_line(&output);
    assert!(
        message.contains("file lock \"x\": not acquired: busy: waiting already: 1, --max-waiting: 1"),
        "{message}"
    );
    let output = run(&dir, &["--max-waiting", "1", "-q", "-E", "3"]);
    assert_eq!((code(&output), stderr(&output).as_str()), (3, ""));
    assert_eq!([code(&holder.output()), code(&waiting.output())], [0, 0]);
    assert_eq!(code(&run(&dir, &["--max-waiting", "1"])), 0, "a free name");
}

/// With the option, and with the same setting in the URL. The default is tested in `redis.rs`: a run waits for an
/// engine that was reached.
#[test]
fn an_engine_that_is_away_ends_the_run_at_once() {
    let dir = Dir::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("redis://127.0.0.1:{port}?connect_timeout=1h");
    for (url, options) in
        [(url.clone(), &["--when-unreachable", "fail"][..]), (format!("{url}&when_unreachable=fail"), &[])]
    {
        let output = dir.call(&[&["run", "--url", &url], options, &TRUE].concat());
        assert_eq!(code(&output), 69, "{options:?}");
        let message = one_line(&output);
        assert!(message.contains("redis lock \"x\": the engine is unreachable: cannot connect"), "{message}");
    }
}
