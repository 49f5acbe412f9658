//! What CMD gets, what its end becomes, and that it runs alone.

use crate::{
    start::{LEASEHOLD, program},
    tools::{Dir, HOLD, code, finish, one_line, stderr, stdout},
};

#[test]
fn the_exit_code_is_that_of_cmd() {
    let dir = Dir::new();
    for expected in [0, 1, 7, 75, 255] {
        let output = dir.call(&["run", "x", "--", "sh", "-c", &format!("exit {expected}")]);
        assert_eq!((code(&output), stderr(&output).as_str()), (expected, ""));
    }
    for (signal, expected) in [("TERM", 143), ("KILL", 137), ("INT", 130)] {
        let output = dir.call(&["run", "x", "--", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!((code(&output), stderr(&output).as_str()), (expected, ""));
    }
}

#[test]
fn cmd_gets_its_arguments_and_streams_as_they_are() {
    let dir = Dir::new();
    let output = dir.call(&["run", "x", "--", "printf", "%s|", "-n", "--", "a b", ""]);
    assert_eq!(stdout(&output), "-n|--|a b||");
    let mut running = crate::tools::Running::start(dir.leasehold(&["run", "x", "--", "cat"]));
    running.write("through\n");
    assert_eq!(running.line(), "through");
    assert_eq!(code(&running.output()), 0);
}

#[test]
fn cmd_gets_two_variables_more_and_no_other_change() {
    let dir = Dir::new();
    let mut command = dir.leasehold(&["run", "a name", "--", "env", "-0"]);
    command.env_clear().env("LEASEHOLD_URL", dir.url()).env("PATH", "/usr/bin:/bin").env("KEPT", "as it is");
    let output = stdout(&finish(command));
    let mut lines: Vec<_> = output.split('\0').filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    let url = format!("LEASEHOLD_URL={}", dir.url());
    let expected =
        ["KEPT=as it is", "LEASEHOLD_NAME=a name", "LEASEHOLD_TOKEN=1", &url, "PATH=/usr/bin:/bin"];
    assert_eq!(lines, expected);
}

#[test]
fn a_url_given_as_an_option_is_not_passed_on() {
    let dir = Dir::new();
    let mut command = dir.leasehold(&["--url", &dir.url(), "run", "x", "--", "env"]);
    command.env_remove("LEASEHOLD_URL");
    let output = stdout(&finish(command));
    assert!(output.contains("LEASEHOLD_TOKEN=") && !output.contains("LEASEHOLD_URL"), "{output}");
}

#[test]
fn too_few_descriptors_are_told_before_anything_runs() {
    let dir = Dir::new();
    let mut ran = false;
    for limit in 3..40 {
        let mut command = program("sh");
        let script = format!("ulimit -n {limit} && exec \"$0\" run x -- true");
        command.args(["-c", &script, LEASEHOLD]).env("LEASEHOLD_URL", dir.url());
        let output = finish(command);
        match code(&output) {
            0 => ran = true,
            69 => assert!(one_line(&output).contains("open files"), "{limit}: {output:?}"),
            // Too few for the dynamic linker.
            127 if limit == 3 => {}
            other => panic!("{other} with {limit} descriptors: {output:?}"),
        }
    }
    assert!(ran, "40 descriptors are enough");
}

#[test]
fn the_token_grows_with_every_grant() {
    let dir = Dir::new();
    let token = |options: &[&str]| -> u64 {
        let args = [&["run"], options, &["x", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN"]].concat();
        stdout(&dir.call(&args)).trim().parse().unwrap()
    };
    let tokens = [token(&[]), token(&["--shared"]), token(&["--limit", "2"]), token(&[])];
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn many_at_once_run_one_after_the_other() {
    let dir = Dir::new();
    let counter = dir.file("counter", "0", 0o600);
    let script = "n=$(cat \"$0\"); echo $((n + 1)) >\"$0\"";
    let args = ["run", "x", "--", "sh", "-c", script, counter.to_str().unwrap()];
    let running: Vec<_> = (0..20).map(|_| crate::tools::Running::start(dir.leasehold(&args))).collect();
    for one in running {
        assert_eq!(code(&one.output()), 0);
    }
    assert_eq!(std::fs::read_to_string(counter).unwrap().trim(), "20");
}

#[test]
fn a_run_within_a_run_takes_another_name() {
    let dir = Dir::new();
    let output = dir.call(&[
        "run",
        "outer",
        "--",
        LEASEHOLD,
        "run",
        "inner",
        "--",
        "sh",
        "-c",
        "echo $LEASEHOLD_NAME",
    ]);
    assert_eq!((code(&output), stdout(&output).as_str()), (0, "inner\n"));
    let output = dir.call(&["run", "same", "--", LEASEHOLD, "run", "-n", "same", "--", "true"]);
    assert_eq!(code(&output), 75, "the outer run holds it");
}

#[test]
fn what_cannot_be_run_is_126_or_127_and_leaves_the_name_free() {
    let dir = Dir::new();
    let plain = dir.file("plain", "", 0o600);
    for (cmd, expected) in
        [("no-such-command", 127), ("/no/such/file", 127), (plain.to_str().unwrap(), 126), ("/", 126)]
    {
        let output = dir.call(&["run", "--at-least", "1h", "x", "--", cmd]);
        assert_eq!(code(&output), expected, "{cmd}");
        let said = one_line(&output);
        assert!(said.contains(cmd) && said.contains("\"x\""), "{said}");
    }
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
}

#[test]
fn flock_is_excluded_and_excludes() {
    let dir = Dir::new();
    let mut holder = dir.hold("x");
    let key = dir.show("x")["key"].as_str().unwrap().to_owned();
    let flock = |option: &str| {
        let mut command = program("flock");
        command.args([option, "-n", "-E", "9", &key, "true"]);
        code(&finish(command))
    };
    assert_eq!([flock("-x"), flock("-s")], [9, 9]);
    assert!(!holder.has_ended());
    assert_eq!(code(&holder.output()), 0);
    let holder = dir.holder(&["--shared"], "x", HOLD);
    assert_eq!([flock("-x"), flock("-s")], [9, 0]);
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(flock("-x"), 0);
    let mut command = program("flock");
    command.args([&key, "sh", "-c", HOLD]);
    let mut foreign = crate::tools::Running::start(command);
    assert_eq!(foreign.line(), "ready");
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 75);
    assert_eq!(dir.code(&["run", "-n", "-s", "x", "--", "true"]), 75);
    let waiting = crate::tools::Running::start(dir.leasehold(&["run", "x", "--", "true"]));
    dir.until_waiters("x", 1);
    assert_eq!(code(&foreign.output()), 0);
    assert_eq!(code(&waiting.output()), 0);
}

#[test]
fn what_the_system_refuses_is_69() {
    let dir = Dir::new();
    // Streams, signals, events: the engine finds no descriptor left.
    let script = "ulimit -n 5; exec \"$0\" run x -- true";
    let mut command = program("sh");
    command.args(["-c", script, LEASEHOLD]).env("LEASEHOLD_URL", dir.url());
    let output = finish(command);
    assert_eq!(code(&output), 69, "{output:?}");
    let said = one_line(&output);
    assert!(said.contains("open files"), "{said}");
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
}
