//! The report of a run: one line of JSON at its end.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    loss::replace,
    start::{LEASEHOLD, program},
    tools::{Dir, HOLD, Running, code, finish, one_line, stderr, stdout},
};

/// The file of the report.
fn file(dir: &Dir) -> String {
    dir.path().join("report").to_str().unwrap().to_owned()
}

/// The report in the file. It has exactly one line.
fn read(dir: &Dir) -> Value {
    let text = fs::read_to_string(file(dir)).unwrap();
    assert!(text.ends_with('\n') && text.lines().count() == 1, "{text:?}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_run_is_reported_with_its_hold() {
    let dir = Dir::new();
    let report = file(&dir);
    fs::write(&report, "an earlier report ".repeat(100)).unwrap();
    let script = "echo $LEASEHOLD_TOKEN $LEASEHOLD_LINEAGE; sleep 0.01; exit 3";
    let output = dir.call(&["run", "--report", &report, "x", "--", "sh", "-c", script]);
    assert_eq!(code(&output), 3);
    let report = read(&dir);
    assert_eq!(
        (&report["name"], &report["engine"], &report["outcome"], &report["exit"]),
        (&"x".into(), &"file".into(), &"ran".into(), &3.into())
    );
    let (token, lineage) = (report["token"].as_u64().unwrap(), report["lineage"].as_str().unwrap());
    assert_eq!(stdout(&output), format!("{token} {lineage}\n"));
    assert!(report["held_ms"].as_u64().unwrap() >= 10 && report["waited_ms"].is_u64(), "{report}");
    assert_eq!((&report["lost"], &report["message"]), (&Value::Null, &Value::Null));
    assert_eq!(report["holds"][0]["token"], token);
}

#[test]
fn all_holds_of_several_names_are_reported() {
    let dir = Dir::new();
    let report = file(&dir);
    assert_eq!(dir.code(&["run", "--report", &report, "b", "--and", "a", "--", "true"]), 0);
    let report = read(&dir);
    assert_eq!((&report["holds"][0]["name"], &report["holds"][1]["name"]), (&"a".into(), &"b".into()));
    assert_eq!(report["token"], report["holds"][1]["token"], "{report}");
}

#[test]
fn the_report_is_appended_to_an_open_descriptor() {
    let dir = Dir::new();
    let mut shell = program("sh");
    let script = "echo before >&3; \"$0\" run --report fd:3 x -- echo from-cmd; echo after >&3";
    shell.args(["-c", &format!("{{ {script}; }} 3>\"$1\""), LEASEHOLD, &file(&dir)]);
    shell.env("LEASEHOLD_URL", dir.url());
    let output = finish(shell);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("from-cmd\n", ""));
    let text = fs::read_to_string(file(&dir)).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let [before, line, after] = lines[..] else { panic!("{text:?}") };
    assert_eq!((before, after), ("before", "after"));
    let report: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&report["outcome"], &report["exit"]), (&"ran".into(), &0.into()));
}

/// `-q` hides the message, and not the fact.
#[test]
fn a_run_that_is_not_granted_is_reported_even_if_it_is_quiet() {
    let dir = Dir::new();
    let holder = dir.holder(&["--owner", "alice"], "x", HOLD);
    for quiet in [&["-q"][..], &[]] {
        let report = file(&dir);
        let run = [&["run", "-n", "-E", "9", "--report", &report], quiet, &["x", "--", "true"]].concat();
        let output = dir.call(&run);
        assert_eq!((code(&output), stderr(&output).is_empty()), (9, !quiet.is_empty()));
        let report = read(&dir);
        assert_eq!((&report["outcome"], &report["exit"]), (&"not_acquired".into(), &9.into()));
        assert!(report["message"].as_str().unwrap().contains("held by alice"), "{report}");
        assert_eq!([&report["token"], &report["held_ms"], &report["holds"]], [&Value::Null; 3]);
    }
    drop(holder);
}

#[test]
fn a_loss_is_reported_with_its_reason() {
    let dir = Dir::new();
    let report = file(&dir);
    let running = dir.holder(&["--ttl", "1s", "--report", &report], "x", "echo ready; exec sleep 1000");
    replace(&dir, "x");
    let output = running.wait();
    assert_eq!(code(&output), 76);
    let report = read(&dir);
    assert_eq!((&report["outcome"], &report["exit"]), (&"lost".into(), &76.into()));
    assert!(report["lost"].as_str().unwrap().contains("replaced"), "{report}");
    assert_eq!(one_line(&output), format!("leasehold: {}\n", report["message"].as_str().unwrap()));
    assert!(report["token"].is_u64(), "{report}");
}

#[test]
fn a_killed_guardian_is_reported() {
    let dir = Dir::new();
    let report = file(&dir);
    let mut running = dir.holder(&["--report", &report], "x", "echo ready; exec sleep 1000");
    running.signal_guardian(Signal::SIGKILL);
    assert_eq!(code(&running.wait()), 70);
    let report = read(&dir);
    assert_eq!((&report["outcome"], &report["exit"]), (&"failed".into(), &70.into()), "CMD ran");
    assert_eq!(
        [&report["waited_ms"], &report["held_ms"]],
        [&Value::Null; 2],
        "only the guardian knew the times"
    );
    assert!(report["message"].as_str().unwrap().contains("SIGKILL"), "{report}");
}

#[test]
fn a_repeat_of_once_and_a_leader_are_reported() {
    let dir = Dir::new();
    let report = file(&dir);
    for outcome in ["ran", "ran_before"] {
        assert_eq!(dir.code(&["once", "--for", "1d", "--report", &report, "job", "--", "true"]), 0);
        assert_eq!(read(&dir)["outcome"], outcome);
    }
    assert_eq!(dir.code(&["elect", "--report", &report, "lead", "--", "false"]), 1);
    assert_eq!((&read(&dir)["outcome"], &read(&dir)["exit"]), (&"ran".into(), &1.into()));
}

#[test]
fn a_run_whose_report_cannot_be_written_does_not_begin() {
    let dir = Dir::new();
    let missing = format!("{}/no/report", dir.path().display());
    for (target, hint) in [
        (missing.as_str(), "check the path"),
        ("fd:97", "is it open for writing"),
        ("fd:x", "fd:3"),
        ("", "fd:3"),
    ] {
        let output = dir.call(&["run", "--report", target, "x", "--", "echo", "ran"]);
        assert_eq!((code(&output), stdout(&output).as_str()), (64, ""), "{target}");
        let message = one_line(&output);
        assert!(message.contains("--report") && message.contains(hint), "{message}");
    }
    let nested = ["run", "--nested", "ok", "--report", &file(&dir), "x", "--", "true"];
    assert!(one_line(&dir.call(&nested)).contains("--nested ok"), "it becomes CMD, which it cannot report");
    // A report that fails at the end is a message, and changes no result.
    let output = dir.call(&["run", "--report", "/dev/full", "x", "--", "sh", "-c", "exit 4"]);
    assert_eq!(code(&output), 4);
    assert!(one_line(&output).contains("the report cannot be written"), "{output:?}");
}

#[test]
fn cmd_may_be_a_text_for_the_shell() {
    let dir = Dir::new();
    let output = dir.call(&["run", "x", "-c", "echo $LEASEHOLD_NAME; exit 5"]);
    assert_eq!((code(&output), stdout(&output).as_str()), (5, "x\n"));
    assert_eq!(dir.code(&["elect", "-c", "exit 6", "x"]), 6);
    assert_eq!(stdout(&dir.call(&["once", "--for", "1d", "job", "--command", "echo once"])), "once\n");
    for wrong in [&["run", "x", "-c", "true", "--", "true"][..], &["run", "x"], &["run", "x", "-c"]] {
        assert_eq!(dir.code(wrong), 64, "{wrong:?}");
    }
    let mut running = Running::start(dir.leasehold(&["run", "x", "-c", HOLD]));
    assert_eq!(running.line(), "ready");
    assert_eq!(dir.code(&["run", "-n", "x", "-c", "true"]), 75);
    assert_eq!(code(&running.output()), 0);
}
