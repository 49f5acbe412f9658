//! The messages of a run: the holder that it waits for, the steps, the events of the library.

use std::{io::Write, os::fd::AsFd, process::Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::tools::{Dir, Running, code, finish, one_line, stderr, stdout};

#[test]
fn a_refused_run_names_the_holder() {
    let dir = Dir::new();
    let holder = dir.holder(&["--owner", "alice"], "x", crate::tools::HOLD);
    for wait in [&["-n"][..], &["-w", "50ms"]] {
        let refused = dir.call(&[&["run"], wait, &["x", "--", "true"]].concat());
        assert_eq!(code(&refused), 75);
        let message = one_line(&refused);
        assert!(message.contains(": held by alice for ") && !message.contains("another"), "{message}");
    }
    let quiet = dir.call(&["run", "-q", "-n", "x", "--", "true"]);
    assert_eq!((code(&quiet), stderr(&quiet)), (75, String::new()));
    assert_eq!(code(&holder.output()), 0);
}

#[test]
fn verbose_prints_each_step() {
    let dir = Dir::new();
    let holder = dir.holder(&["--owner", "alice"], "x", crate::tools::HOLD);
    let mut waiter = Running::start(dir.leasehold(&["run", "-v", "x", "--", "echo", "done"]));
    let message = waiter.stderr_line();
    assert!(message.starts_with("leasehold: file lock \"x\": waiting: held by alice for "), "{message}");
    assert_eq!(code(&holder.output()), 0);
    let granted = waiter.stderr_line();
    assert!(granted.contains("granted after ") && granted.contains(", token "), "{granted}");
    assert!(waiter.stderr_line().contains(", guardian "));
    let output = waiter.output();
    assert_eq!((code(&output), stdout(&output)), (0, "done\n".to_owned()));
    assert!(one_line(&output).contains("released: waited "), "{output:?}");
}

#[test]
fn rust_log_selects_the_library_events() {
    let dir = Dir::new();
    let events = |log: Option<&str>, option: &[&str]| {
        let mut run = dir.leasehold(&[&["run"], option, &["x", "--", "true"]].concat());
        run.envs(log.map(|log| ("RUST_LOG", log)));
        finish(run)
    };
    for (log, option) in [(Some("leasehold=debug"), &[][..]), (None, &["-vv"])] {
        let output = events(log, option);
        assert_eq!(code(&output), 0);
        let is_event = |line: &str| line.contains("DEBUG") && line.contains("granted engine=\"file\" name=x");
        assert!(stderr(&output).lines().any(is_event), "{output:?}");
        assert!(stderr(&output).lines().all(|line| line.starts_with("leasehold: ")), "{output:?}");
    }
    for (log, option) in [(None, &[][..]), (Some("leasehold=warn"), &["-q"])] {
        assert_eq!(stderr(&events(log, option)), "", "{log:?}");
    }
    let wrong = events(Some("leasehold=very"), &[]);
    assert_eq!(code(&wrong), 0, "the variable may be meant for CMD");
    assert!(one_line(&wrong).contains("RUST_LOG"), "{wrong:?}");
}

/// The reader of standard error may stop reading.
#[test]
fn a_reader_of_stderr_that_stops_does_not_block_the_run() {
    let dir = Dir::new();
    let (_reader, writer) = std::io::pipe().unwrap();
    // Fills the pipe, so that the next write would block.
    fcntl(writer.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while (&writer).write(&[b'.'; 4096]).is_ok() {}
    while (&writer).write(b".").is_ok() {}
    fcntl(writer.as_fd(), FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let mut run = dir.leasehold(&["run", "-vvv", "x", "--", "echo", "done"]);
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(writer);
    let mut child = run.spawn().unwrap();
    crate::tools::until("its end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stdout(&output)), (0, "done\n".to_owned()));
}
