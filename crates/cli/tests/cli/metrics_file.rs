//! The file of `--metrics-file`.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Read,
    os::unix::fs::{PermissionsExt, symlink},
    time::{SystemTime, UNIX_EPOCH},
};

use leasehold_testkit::server::promtool;
use nix::{
    fcntl::{Flock, FlockArg},
    sys::{signal::Signal, stat::Mode},
    unistd::mkfifo,
};

use crate::{
    loss::replace,
    tools::{Dir, HOLD, Running, code, one_line, stdout},
};

/// The path of the metrics file.
fn file(dir: &Dir) -> String {
    dir.path().join("job.prom").to_str().unwrap().to_owned()
}

/// The values of the name `x` on the file engine, by the family and the outcome.
fn parse(text: &str) -> HashMap<String, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let series = series.replacen("{engine=\"file\",name=\"x\"", "{", 1).replace("{}", "");
        (series.replace("{,outcome=", "{").replace("leasehold_run_", ""), value.parse().unwrap())
    };
    samples.map(sample).collect()
}

fn read(dir: &Dir) -> HashMap<String, f64> {
    parse(&fs::read_to_string(file(dir)).unwrap())
}

fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn a_run_is_told_from_its_begin_to_its_end() {
    let dir = Dir::new();
    let path = file(&dir);
    let begin = unix_now() - 0.002;
    let output =
        dir.call(&["run", "--metrics-file", &path, "x", "--", "sh", "-c", "sleep 0.01; cat \"$0\"", &path]);
    assert_eq!(code(&output), 0, "{output:?}");
    let during = parse(&stdout(&output));
    assert_eq!((during["held"], during.get("last_success_timestamp_seconds")), (1.0, None), "{during:?}");
    let after = read(&dir);
    for (family, value) in
        [("held", 0.0), ("last_exit_code", 0.0), ("last_lost", 0.0), ("ends_total{\"ran\"}", 1.0)]
    {
        assert_eq!(after[family], value, "{family}");
    }
    let (hold, wait) = (after["last_hold_seconds"], after["last_wait_seconds"]);
    assert!(hold >= 0.01 && wait >= 0.0 && hold + wait <= unix_now() - begin, "{after:?}");
    let times = ["last_begin", "last_success", "last_end"]
        .map(|family| after[&format!("{family}_timestamp_seconds")]);
    assert!(begin <= times[0] && times[0] <= times[1] && times[1] == times[2], "{begin}: {after:?}");
    assert!(times[2] <= unix_now(), "{after:?}");
}

#[test]
fn the_node_exporter_can_read_the_file() {
    let dir = Dir::new();
    let path = file(&dir);
    let name = "a \"quoted\" \\ name";
    let shell = format!("umask 077; exec \"$0\" run --metrics-file '{path}' '{name}' -- true");
    let mut command = crate::start::program("sh");
    command.args(["-c", &shell, crate::start::LEASEHOLD]).env("LEASEHOLD_URL", dir.url());
    assert_eq!(code(&crate::tools::finish(command)), 0);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644, "whatever the umask is");
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(promtool(dir.path(), &["check", "metrics"], &text), "");
    assert!(text.contains("name=\"a \\\"quoted\\\" \\\\ name\"") && !text.contains("file://"), "{text}");
    let files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files.len(), 2, "nothing is left but the locks and the file: {files:?}");
}

#[test]
fn a_run_that_fails_or_is_skipped_keeps_the_last_success() {
    let dir = Dir::new();
    let path = file(&dir);
    let options = ["--metrics-file", &path];
    assert_eq!(dir.code(&[&["run"], &options[..], &["x", "--", "true"]].concat()), 0);
    let success = read(&dir)["last_success_timestamp_seconds"];
    assert_eq!(dir.code(&[&["run"], &options[..], &["x", "--", "sh", "-c", "exit 3"]].concat()), 3);
    assert_eq!(read(&dir)["last_exit_code"], 3.0);
    let holder = dir.holder(&options, "x", HOLD);
    assert_eq!(dir.code(&[&["run", "-n", "-q"], &options[..], &["x", "--", "true"]].concat()), 75);
    let skipped = read(&dir);
    assert_eq!((skipped["held"], skipped["last_exit_code"]), (1.0, 75.0), "the other run still holds");
    assert_eq!(skipped["last_success_timestamp_seconds"], success);
    let ended = holder.output();
    assert_eq!(code(&ended), 0);
    let ended = read(&dir);
    assert_eq!(
        (ended["held"], ended["ends_total{\"ran\"}"], ended["ends_total{\"not_acquired\"}"]),
        (0.0, 3.0, 1.0)
    );
    assert!(ended["last_success_timestamp_seconds"] > success);
}

#[test]
fn a_refused_run_is_told() {
    let dir = Dir::new();
    let path = file(&dir);
    fs::write(dir.locks(), "not a directory").unwrap();
    let output = dir.call(&["run", "--metrics-file", &path, "x", "--", "true"]);
    let refused = read(&dir);
    assert_eq!((refused["ends_total{\"not_acquired\"}"], refused["held"]), (1.0, 0.0), "{output:?}");
    assert_eq!(refused["last_exit_code"], f64::from(code(&output)));
    assert_ne!(code(&output), 0);
    let url = "redis://user:canary@127.0.0.1:1";
    let output = dir.call(&["--url", url, "run", "-n", "--metrics-file", &path, "x", "--", "true"]);
    assert_eq!(code(&output), 69, "{output:?}");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("engine=\"redis\"") && !text.contains("canary"), "{text}");
}

#[test]
fn a_loss_is_told() {
    let dir = Dir::new();
    let path = file(&dir);
    let running = dir.holder(&["--ttl", "1s", "--metrics-file", &path], "x", "echo ready; exec sleep 1000");
    replace(&dir, "x");
    assert_eq!(code(&running.wait()), 76);
    let lost = read(&dir);
    assert_eq!((lost["last_lost"], lost["ends_total{\"lost\"}"], lost["held"]), (1.0, 1.0, 0.0));
    assert_eq!((lost["last_exit_code"], lost.get("last_success_timestamp_seconds")), (76.0, None));
}

#[test]
fn a_killed_guardian_leaves_no_hold() {
    let dir = Dir::new();
    let path = file(&dir);
    let mut running = dir.holder(&["--metrics-file", &path], "x", "echo ready; exec sleep 1000");
    let wait = read(&dir)["last_wait_seconds"];
    running.signal_guardian(Signal::SIGKILL);
    assert_eq!(code(&running.wait()), 70);
    let killed = read(&dir);
    assert_eq!(
        (killed["held"], killed["ends_total{\"failed\"}"], killed["last_exit_code"]),
        (0.0, 1.0, 70.0)
    );
    assert_eq!((killed["last_wait_seconds"], killed.get("last_hold_seconds")), (wait, None));
}

#[test]
fn a_repeat_of_once_is_a_success_and_a_leader_is_told() {
    let dir = Dir::new();
    let path = file(&dir);
    let once = ["once", "--for", "1d", "--metrics-file", &path, "x", "--", "true"];
    assert_eq!(dir.code(&once), 0);
    let first = read(&dir)["last_success_timestamp_seconds"];
    assert_eq!(dir.code(&once), 0);
    let repeated = read(&dir);
    assert_eq!((repeated["ends_total{\"ran\"}"], repeated["ends_total{\"ran_before\"}"]), (1.0, 1.0));
    assert!(repeated["last_success_timestamp_seconds"] > first);
    let dir = Dir::new();
    assert_eq!(dir.code(&["elect", "--metrics-file", &file(&dir), "x", "--", "false"]), 1);
    assert_eq!(read(&dir)["last_exit_code"], 1.0);
}

#[test]
fn a_run_whose_metrics_cannot_be_written_does_not_begin() {
    let dir = Dir::new();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("directory.prom")).unwrap();
    dir.file("script.prom", "#!/bin/sh\n", 0o700);
    dir.file("other.prom", "node_load1 3\n", 0o644);
    symlink("script.prom", path("link.prom")).unwrap();
    mkfifo(path("pipe.prom").as_str(), Mode::from_bits_truncate(0o600)).unwrap();
    for (target, hint) in [
        ("no/job.prom", "No such file"),
        ("job", "must end in .prom"),
        ("job.prom.txt", "must end in .prom"),
        ("directory.prom", "would be replaced"),
        ("script.prom", "would be replaced"),
        ("other.prom", "would be replaced"),
        ("link.prom", "would be replaced"),
        ("pipe.prom", "would be replaced"),
    ] {
        let output = dir.call(&["run", "--metrics-file", &path(target), "x", "--", "echo", "ran"]);
        assert_eq!((code(&output), stdout(&output).as_str()), (64, ""), "{target}");
        let message = one_line(&output);
        assert!(message.contains("--metrics-file") && message.contains(hint), "{message}");
    }
    assert_eq!(fs::read_to_string(path("script.prom")).unwrap(), "#!/bin/sh\n");
    let nested = ["run", "--nested", "ok", "--metrics-file", &file(&dir), "x", "--", "true"];
    assert!(one_line(&dir.call(&nested)).contains("--nested ok"), "it becomes CMD, which writes no series");
    // Series that cannot be written at the end are a message, and change no result.
    let directory = path("gone");
    fs::create_dir(&directory).unwrap();
    let script = format!("rm -r '{directory}'; exit 4");
    let output =
        dir.call(&["run", "--metrics-file", &format!("{directory}/x.prom"), "x", "--", "sh", "-c", &script]);
    assert_eq!(code(&output), 4);
    assert!(one_line(&output).contains("the metrics file cannot be written"), "{output:?}");
}

#[test]
fn runs_at_the_same_time_remove_nothing_of_each_other() {
    let dir = Dir::new();
    let path = file(&dir);
    let run = ["run", "--shared", "--metrics-file", &path, "x", "--", "true"];
    let runs: Vec<_> = (0..6).map(|_| Running::start(dir.leasehold(&run))).collect();
    assert!(runs.into_iter().all(|run| code(&run.output()) == 0));
    assert_eq!(read(&dir)["ends_total{\"ran\"}"], 6.0);
}

#[test]
fn a_lock_on_the_directory_stops_no_run() {
    let dir = Dir::new();
    let directory = File::open(dir.path()).unwrap();
    let lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock).unwrap();
    let output = dir.call(&["run", "--metrics-file", &file(&dir), "x", "--", "cat", &file(&dir)]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert_eq!(parse(&stdout(&output))["held"], 0.0, "CMD did not wait until the grant could be recorded");
    assert_eq!(read(&dir)["ends_total{\"ran\"}"], 1.0);
    drop(lock);
}

#[test]
fn the_end_of_a_run_does_not_hide_the_one_that_was_granted_later() {
    let dir = Dir::new();
    let path = file(&dir);
    let options = ["--shared", "--metrics-file", &path];
    let first = dir.holder(&options, "x", HOLD);
    let second = dir.holder(&options, "x", HOLD);
    let since = read(&dir)["held_since_timestamp_seconds"];
    assert_eq!(code(&first.output()), 0);
    let after = read(&dir);
    assert_eq!((after["held"], after["held_since_timestamp_seconds"]), (1.0, since), "{after:?}");
    assert_eq!(code(&second.output()), 0);
    assert_eq!(read(&dir)["held"], 0.0);
}

#[test]
fn a_reader_of_the_file_never_sees_a_part() {
    let dir = Dir::new();
    let path = file(&dir);
    let run = ["run", "--metrics-file", &path, "x", "--", "true"];
    assert_eq!(dir.code(&run), 0);
    let before = fs::read_to_string(&path).unwrap();
    let mut reader = File::open(&path).unwrap();
    assert_eq!(dir.code(&run), 0);
    assert_ne!(fs::read_to_string(&path).unwrap(), before);
    let mut read = String::new();
    reader.read_to_string(&mut read).unwrap();
    assert_eq!(read, before, "the file was written anew, and not replaced");
}
