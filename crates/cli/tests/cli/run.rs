//! The environment of CMD, the exit code, and exclusion.

use std::process::Command;

use crate::{
    start::{LEASEHOLD, program},
    tools::{Dir, HOLD, bare, code, finish, one_line, stderr, stdout},
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
fn cmd_gets_its_arguments_and_streams_unchanged() {
    let dir = Dir::new();
    let output = dir.call(&["run", "x", "--", "printf", "%s|", "-n", "--", "a b", ""]);
    assert_eq!(stdout(&output), "-n|--|a b||");
    let mut running = crate::tools::Running::start(dir.leasehold(&["run", "x", "--", "cat"]));
    running.write("through\n");
    assert_eq!(running.line(), "through");
    assert_eq!(code(&running.output()), 0);
}

#[test]
fn cmd_gets_only_five_more_variables_with_pass_url() {
    let dir = Dir::new();
    let mut command = dir.leasehold(&["run", "--pass-url", "a name", "--", "env", "-0"]);
    command.env_clear().env("LEASEHOLD_URL", dir.url()).env("PATH", "/usr/bin:/bin").env("KEPT", "as it is");
    let output = stdout(&finish(command));
    let mut lines: Vec<_> = output.split('\0').filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    let url = format!("LEASEHOLD_URL={}", dir.url());
    for (at, variable, digits) in
        [(1, "LEASEHOLD_ACTOR=", 16), (2, "LEASEHOLD_CLAIM=", 32), (3, "LEASEHOLD_LINEAGE=", 32)]
    {
        let number = lines.get(at).and_then(|line| line.strip_prefix(variable));
        let number = number.unwrap_or_else(|| panic!("no {variable} in {lines:?}"));
        assert!(number.len() == digits && number.bytes().all(|digit| digit.is_ascii_hexdigit()), "{number}");
    }
    lines.drain(1..4);
    let expected =
        ["KEPT=as it is", "LEASEHOLD_NAME=a name", "LEASEHOLD_TOKEN=1", &url, "PATH=/usr/bin:/bin"];
    assert_eq!(lines, expected);
}

/// A password in the URL would reach every child and log of CMD.
#[test]
fn the_url_is_removed_from_the_environment_of_cmd() {
    let dir = Dir::new();
    let file = dir.file("url", &dir.url(), 0o600);
    let by_variable = |args: &[&str]| dir.leasehold(args);
    let by_file = |args: &[&str]| {
        let mut command = bare(args);
        command.env("LEASEHOLD_URL_FILE", &file);
        command
    };
    for leasehold in [&by_variable as &dyn Fn(&[&str]) -> Command, &by_file] {
        let environment = |args: &[&str]| stdout(&finish(leasehold(&[args, &["env"]].concat())));
        // The inner run executes CMD in its own process instead of starting a child.
        let nested = ["run", "--pass-url", "x", "--", LEASEHOLD, "run", "--nested", "ok", "x", "--"];
        for args in [&["run", "x", "--"][..], &nested] {
            let found = environment(args);
            assert!(
                found.contains("LEASEHOLD_TOKEN=") && !found.contains("LEASEHOLD_URL"),
                "{args:?}: {found}"
            );
        }
        assert!(environment(&["run", "--pass-url", "x", "--"]).contains("LEASEHOLD_URL"));
        // The inner run must not lock in the default directory of the user, where no other holder would see it.
        let inner = finish(leasehold(&["run", "x", "--", LEASEHOLD, "run", "y", "--", "echo", "ran"]));
        assert_eq!((code(&inner), stdout(&inner).as_str()), (78, ""));
        assert!(one_line(&inner).contains("--pass-url"), "{inner:?}");
    }
}

/// A run within a run on one name would wait for its own end.
#[test]
fn a_nested_run_on_the_same_name_fails_or_uses_the_hold() {
    let dir = Dir::new();
    let inner = |options: &[&str], name: &str| {
        let args = [
            &["run", "--pass-url", "x", "--", LEASEHOLD, "run"],
            options,
            &[name, "--", "sh", "-c", "echo ran"],
        ]
        .concat();
        let output = dir.call(&args);
        (code(&output), stdout(&output), stderr(&output))
    };
    let (code, out, message) = inner(&[], "x");
    assert_eq!((code, out.as_str()), (64, ""));
    assert!(
        message.contains("\"x\"") && message.contains("--nested ok") && message.lines().count() == 1,
        "{message}"
    );
    assert_eq!(inner(&["--nested", "ok"], "x"), (0, "ran\n".into(), String::new()));
    assert_eq!(inner(&["-n"], "x").0, 75, "without a wait the result is the usual one");
    assert_eq!(inner(&[], "y"), (0, "ran\n".into(), String::new()), "another name");
    // In another directory the same name is another lock, and shared holds do not exclude each other.
    let other = Dir::new();
    assert_eq!(inner(&["--url", &other.url()], "x"), (0, "ran\n".into(), String::new()));
    let shared =
        dir.call(&["run", "--pass-url", "-s", "x", "--", LEASEHOLD, "run", "-s", "x", "--", "echo", "ran"]);
    assert_eq!(stdout(&shared), "ran\n");
    // No outer run holds the name.
    let mut stale = dir.leasehold(&["run", "--nested", "ok", "x", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN"]);
    stale.env("LEASEHOLD_NAME", "x").env("LEASEHOLD_CLAIM", "00000000000000000000000000000001");
    let token: u64 = stdout(&finish(stale)).trim().parse().unwrap();
    assert!(token > 1, "a hold of its own");
}

/// A run of another name may lie between the two.
#[test]
fn a_run_below_another_run_knows_all_outer_holds() {
    let dir = Dir::new();
    // Prints the variables that CMD gets, in the outermost run and in the innermost.
    let print_holds = "echo $LEASEHOLD_CLAIM $LEASEHOLD_NAME; echo $LEASEHOLD_OUTER";
    let top = format!("{print_holds}; exec \"$@\"");
    let inner = |options: &[&str]| {
        let above = ["run", "--pass-url", "a name", "--", "sh", "-c", &top, "sh"];
        let between = [LEASEHOLD, "run", "--pass-url", "y", "--", LEASEHOLD, "run", "-w", "2s"];
        let output = dir.call(&[&above, &between[..], options, &["--", "sh", "-c", print_holds]].concat());
        let lines: Vec<_> = stdout(&output).lines().map(str::to_owned).collect();
        (code(&output), lines, stderr(&output))
    };
    let (code, lines, message) = inner(&["a name"]);
    assert_eq!((code, lines.len()), (64, 2), "{message}");
    assert!(message.contains("\"a name\"") && message.lines().count() == 1, "{message}");
    // CMD gets the hold that it runs under, which is not the hold of the run between.
    let (code, lines, message) = inner(&["--nested", "ok", "a name"]);
    assert_eq!((code, message.as_str(), &lines[0]), (0, "", &lines[2]));
    assert!(lines[1].is_empty() && lines[3].ends_with(" y"), "{lines:?}");
    let (code, lines, message) = inner(&["z"]);
    assert_eq!((code, message.as_str()), (0, ""));
    assert!(
        lines[2].ends_with(" z") && lines[3].contains(" y ") && lines[3].ends_with(" a name"),
        "{lines:?}"
    );
    // In another directory the same name is another lock.
    let other = Dir::new();
    assert_eq!(inner(&["--url", &other.url(), "a name"]).0, 0);
}

#[test]
fn a_missing_interpreter_is_named() {
    let dir = Dir::new();
    let script = dir.file("a-script", "#!/nonexistent/shell\n", 0o755);
    let path = script.parent().unwrap().to_str().unwrap().to_owned();
    let mut by_name = dir.leasehold(&["run", "x", "--", "a-script"]);
    by_name.env("PATH", format!("{path}:/usr/bin:/bin"));
    for output in [dir.call(&["run", "x", "--", script.to_str().unwrap()]), finish(by_name)] {
        assert_eq!(code(&output), 127);
        let message = one_line(&output);
        assert!(message.contains("interpreter") && message.contains("\"/nonexistent/shell\""), "{message}");
    }
    // Characters that an editor does not show are printed.
    let script = dir.file("of-windows", "#!/bin/sh\r\n", 0o755);
    let message = one_line(&dir.call(&["run", "x", "--", script.to_str().unwrap()]));
    assert!(message.contains(r#""/bin/sh\r""#), "{message}");
    let message = one_line(&dir.call(&["run", "x", "--", "/nonexistent/program"]));
    assert!(message.contains("not found") && !message.contains("interpreter"), "{message}");
}

#[test]
fn a_url_option_is_not_passed_to_cmd() {
    let dir = Dir::new();
    let mut command = dir.leasehold(&["--url", &dir.url(), "run", "x", "--", "env"]);
    command.env_remove("LEASEHOLD_URL");
    let output = stdout(&finish(command));
    assert!(output.contains("LEASEHOLD_TOKEN=") && !output.contains("LEASEHOLD_URL"), "{output}");
}

#[test]
fn too_few_descriptors_are_reported_before_cmd_starts() {
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
            // Too few descriptors for the dynamic linker.
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
fn concurrent_runs_execute_one_at_a_time() {
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
fn a_nested_run_can_lock_another_name() {
    let dir = Dir::new();
    let output = dir.call(&[
        "run",
        "--pass-url",
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
    let output = dir.call(&["run", "--pass-url", "same", "--", LEASEHOLD, "run", "-n", "same", "--", "true"]);
    assert_eq!(code(&output), 75, "the outer run holds it");
}

#[test]
fn a_cmd_that_cannot_run_is_126_or_127_and_frees_the_name() {
    let dir = Dir::new();
    let plain = dir.file("plain", "", 0o600);
    for (cmd, expected) in
        [("no-such-command", 127), ("/no/such/file", 127), (plain.to_str().unwrap(), 126), ("/", 126)]
    {
        let output = dir.call(&["run", "--at-least", "1h", "x", "--", cmd]);
        assert_eq!(code(&output), expected, "{cmd}");
        let message = one_line(&output);
        assert!(message.contains(cmd) && message.contains("\"x\""), "{message}");
    }
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
}

#[test]
fn flock_and_leasehold_exclude_each_other() {
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
fn a_refusal_of_the_system_is_69() {
    let dir = Dir::new();
    // Streams, signals, events: no descriptor is left for the engine.
    let script = "ulimit -n 5; exec \"$0\" run x -- true";
    let mut command = program("sh");
    command.args(["-c", script, LEASEHOLD]).env("LEASEHOLD_URL", dir.url());
    let output = finish(command);
    assert_eq!(code(&output), 69, "{output:?}");
    let message = one_line(&output);
    assert!(message.contains("open files"), "{message}");
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
}
