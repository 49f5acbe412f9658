//! Locks across steps by `acquire`, `renew`, `check` and `release`, on the file engine: a holder process holds the lock
//! for as long as another process lives.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    start::program,
    tools::{Dir, Running, code, finish, is_running, one_line, stderr, stdout, until},
};

/// A process to watch. It is killed at the end of the test, and then its holder process ends.
pub(crate) struct Work(Running);

impl Work {
    pub(crate) fn start() -> Self {
        let mut command = program("sh");
        command.args(["-c", "echo ready; exec sleep 1000"]);
        let mut running = Running::start(command);
        assert_eq!(running.line(), "ready");
        Self(running)
    }

    pub(crate) fn pid(&mut self) -> String {
        self.0.pid().to_string()
    }

    pub(crate) fn end(&mut self) {
        self.0.signal(Signal::SIGKILL);
    }
}

/// The holder process that watches this process.
pub(crate) fn holder_of(watched: &str) -> i32 {
    let is_holder = |pid: &i32| {
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read("comm") == "lh-holder\n" && read("cmdline").contains(&format!("--while-pid\0{watched}\0"))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.filter(is_holder)
        .find(|pid| is_running(*pid))
        .unwrap_or_else(|| panic!("no holder process of {watched}"))
}

/// The handle that a command printed.
pub(crate) fn handle_of(command: Command) -> String {
    let output = finish(command);
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""), "{output:?}");
    let handle = stdout(&output);
    let word = handle.strip_suffix('\n').unwrap();
    assert!(word.starts_with("lh1.") && !word.contains(char::is_whitespace), "{handle:?}");
    word.to_owned()
}

fn acquire(dir: &Dir, work: &mut Work) -> String {
    handle_of(dir.leasehold(&["acquire", "x", "--while-pid", &work.pid()]))
}

#[test]
fn a_holder_holds_the_lock_until_the_release() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let handle = acquire(&dir, &mut work);
    let holder = holder_of(&work.pid());
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 75);
    for command in ["check", "renew"] {
        let output = dir.call(&[command, &handle]);
        assert_eq!(
            (code(&output), stdout(&output).as_str(), stderr(&output).as_str()),
            (0, "", ""),
            "{command}"
        );
    }
    let token = dir.call(&["check", "--token", &handle]);
    assert_eq!(stdout(&token).trim_end(), dir.show("x")["holders"][0]["token"].to_string());
    let wrong = dir.call(&["renew", "--ttl", "1h", &handle]);
    assert_eq!(code(&wrong), 64);
    assert!(one_line(&wrong).contains("--ttl is for a hold that no process renews"), "{wrong:?}");
    assert_eq!(dir.code(&["release", &handle]), 0);
    until("the end of the holder process", || !is_running(holder));
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
    for (command, what) in [
        (
            "check",
            "is over: the process of --while-pid has ended, or its holder process has, or it was released or broken",
        ),
        (
            "renew",
            "is over: the process of --while-pid has ended, or its holder process has, or it was released or broken",
        ),
        ("release", "was over before this release: it was released before, or "),
    ] {
        let over = dir.call(&[command, &handle]);
        assert_eq!(code(&over), 76, "{command}");
        let message = one_line(&over);
        assert!(message.contains(&format!("file lock \"x\": the hold of this handle {what}")), "{message}");
        let quiet = dir.call(&[command, "-q", &handle]);
        assert_eq!((code(&quiet), stderr(&quiet).as_str()), (76, ""), "{command}");
    }
}

/// Another claim of the same name is not touched by an old handle.
#[test]
fn a_handle_releases_its_own_hold_alone() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let old = acquire(&dir, &mut work);
    assert_eq!(dir.code(&["release", &old]), 0);
    let new = acquire(&dir, &mut work);
    for command in ["release", "check", "renew"] {
        let over = dir.call(&[command, &old]);
        assert_eq!(code(&over), 76, "{command}");
        let token = dir.show("x")["holders"][0]["token"].to_string();
        let successor = format!(" holds the name now under token {token}: ");
        assert!(one_line(&over).contains(&successor), "{command}: {over:?}");
    }
    assert_eq!((dir.code(&["check", &new]), dir.code(&["release", &new])), (0, 0));
}

#[test]
fn the_end_of_the_watched_process_frees_the_name() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let handle = acquire(&dir, &mut work);
    let waiter = Running::start(dir.leasehold(&["run", "x", "--", "echo", "mine"]));
    dir.until_waiters("x", 1);
    // The test has not reaped it, so it is a zombie.
    work.end();
    assert_eq!(stdout(&waiter.output()), "mine\n");
    assert_eq!(dir.code(&["check", &handle]), 76);
}

#[test]
fn a_killed_holder_frees_the_name_and_check_says_so() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let handle = acquire(&dir, &mut work);
    kill(Pid::from_raw(holder_of(&work.pid())), Signal::SIGKILL).unwrap();
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
    assert_eq!(dir.code(&["check", &handle]), 76);
    assert_eq!(dir.code(&["release", &handle]), 76);
}

/// A stopped holder process answers nothing: the commands do not wait for it, and say how it goes on.
#[test]
fn a_stopped_holder_is_named() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let handle = acquire(&dir, &mut work);
    let holder = holder_of(&work.pid());
    kill(Pid::from_raw(holder), Signal::SIGSTOP).unwrap();
    until("it is stopped", || crate::tools::state(holder) == Some('T'));
    let advice =
        format!("its holder process {holder} is stopped (state T): continue it by `kill -CONT {holder}`");
    for (command, expected) in [("check", 0), ("renew", 0), ("release", 69)] {
        let output = dir.call(&[command, &handle]);
        assert_eq!(code(&output), expected, "{command}: {output:?}");
        assert!(one_line(&output).contains(&advice), "{command}: {output:?}");
    }
    assert_eq!(stderr(&dir.call(&["check", "-q", &handle])), "");
    kill(Pid::from_raw(holder), Signal::SIGCONT).unwrap();
    assert_eq!(dir.code(&["release", &handle]), 0);
}

#[test]
fn an_operator_breaks_a_kept_hold() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let handle = acquire(&dir, &mut work);
    let token = dir.show("x")["holders"][0]["token"].to_string();
    assert_eq!(dir.code(&["break", "x", "--token", &token]), 0);
    assert_eq!((dir.code(&["check", &handle]), dir.code(&["release", &handle])), (76, 76));
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
}

#[test]
fn max_hold_ends_a_kept_hold() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let pid = work.pid();
    let args = ["acquire", "x", "--while-pid", &pid, "--max-hold", "300ms"];
    let handle = handle_of(dir.leasehold(&args));
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
    assert_eq!(dir.code(&["check", &handle]), 76);
}

#[test]
fn a_process_that_cannot_be_watched_is_refused() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let ended = work.pid();
    work.end();
    until("the end", || !is_running(ended.parse().unwrap()));
    for (pid, what) in [
        (ended.as_str(), "has ended"),
        ("1", "does not end before its container or machine"),
        ("0", "no process id"),
        ("2147483647", "no such process"),
    ] {
        let output = dir.call(&["acquire", "x", "--while-pid", pid]);
        assert_eq!((code(&output), stdout(&output).as_str()), (64, ""), "{output:?}");
        assert!(one_line(&output).contains(what), "{output:?}");
    }
    assert!(dir.show("x")["holders"].as_array().unwrap().is_empty());
}

#[test]
fn a_hold_that_ends_with_its_process_is_not_left_without_one() {
    let dir = Dir::new();
    let output = dir.call(&["acquire", "x"]);
    assert_eq!((code(&output), stdout(&output).as_str()), (64, ""));
    let message = one_line(&output);
    assert!(message.contains("file lock \"x\"") && message.contains("give --while-pid PID"), "{message}");
}

#[test]
fn a_taken_name_prints_no_handle_and_a_signal_ends_the_wait() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let _holder = dir.hold("x");
    for args in [["-n", "-E", "9"], ["-w", "10ms", "-q"]] {
        let pid = work.pid();
        let args = [&["acquire", "x", "--while-pid", &pid][..], &args].concat();
        let output = dir.call(&args);
        let wanted = if args.contains(&"-q") { (75, 0) } else { (9, 1) };
        assert_eq!((code(&output), stderr(&output).lines().count()), wanted, "{output:?}");
        assert_eq!(stdout(&output), "");
    }
    let mut waiting = Running::start(dir.leasehold(&["acquire", "x", "--while-pid", &work.pid()]));
    dir.until_waiters("x", 1);
    waiting.signal(Signal::SIGTERM);
    let output = waiting.output();
    assert_eq!(code(&output), 143);
    assert!(one_line(&output).contains("SIGTERM ended the wait"), "{output:?}");
    dir.until_waiters("x", 0);
    let waiting = Running::start(dir.leasehold(&["acquire", "x", "--while-pid", &work.pid()]));
    dir.until_waiters("x", 1);
    work.end();
    let output = waiting.output();
    assert_eq!(code(&output), 75);
    assert!(one_line(&output).contains("of --while-pid has ended"), "{output:?}");
    dir.until_waiters("x", 0);
}

/// A step waits until nobody can write to its output, and a descriptor of the step must not stay open.
#[test]
fn a_holder_has_nothing_of_the_step_that_started_it() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let mut step = program("sh");
    step.env("LEASEHOLD_URL", dir.url()).current_dir(dir.path());
    step.args(["-c", "exec 7>open; \"$0\" acquire x --while-pid $1", crate::start::LEASEHOLD, &work.pid()]);
    // It would not end if the holder process had its output.
    let handle = handle_of(step);
    let holder = holder_of(&work.pid());
    let links = fs::read_dir(format!("/proc/{holder}/fd")).unwrap();
    let mut null = 0;
    for link in links.filter_map(|link| fs::read_link(link.unwrap().path()).ok()) {
        let target = link.to_str().unwrap();
        assert!(!target.ends_with("/open") && !target.starts_with("pipe:"), "{target}");
        null += usize::from(target == "/dev/null");
    }
    assert_eq!(null, 3, "its standard streams");
    let directory = fs::read_link(format!("/proc/{holder}/cwd")).unwrap();
    assert_eq!(directory, std::path::Path::new("/"), "the directory of the step can be removed");
    let session = fs::read_to_string(format!("/proc/{holder}/stat")).unwrap();
    assert_eq!(session.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap(), holder.to_string());
    assert_eq!(dir.code(&["release", &handle]), 0);
}

/// Nobody could release a hold whose handle was not written.
#[test]
fn a_handle_that_cannot_be_written_frees_the_name() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let mut step = program("sh");
    step.env("LEASEHOLD_URL", dir.url());
    step.args(["-c", "\"$0\" acquire x --while-pid $1 >/dev/full", crate::start::LEASEHOLD, &work.pid()]);
    let output = finish(step);
    assert_eq!(code(&output), 69, "{output:?}");
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
    let unwritable = dir.path().join("none/h");
    let pid = work.pid();
    let args = ["acquire", "x", "--while-pid", &pid, "--handle-file", unwritable.to_str().unwrap()];
    let output = dir.call(&args);
    assert_eq!(code(&output), 64, "{output:?}");
    assert!(one_line(&output).contains("check the path and its permissions"), "{output:?}");
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 0);
}

#[test]
fn a_handle_file_has_the_handle_of_this_acquire_or_is_not_there() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let path = dir.file("handle", "an older handle", 0o644);
    let file = path.to_str().unwrap();
    let holder = dir.hold("x");
    let pid = work.pid();
    let args = ["acquire", "x", "-n", "--while-pid", &pid, "--handle-file", file];
    assert_eq!(dir.code(&args), 75);
    assert!(!path.exists(), "a later release must not find an older handle");
    let none = dir.call(&["release", "--handle-file", file]);
    assert_eq!(code(&none), 64);
    assert!(one_line(&none).contains("nothing was acquired"), "{none:?}");
    assert_eq!(code(&holder.output()), 0);
    let output = dir.call(&args);
    assert_eq!((code(&output), stdout(&output).as_str(), stderr(&output).as_str()), (0, "", ""));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "the handle file and the locks alone");
    assert_eq!(dir.code(&["check", "--handle-file", file]), 0);
    assert_eq!(dir.code(&["release", "--handle-file", file]), 0);
    assert!(!path.exists());
}

/// Whatever makes an `acquire` fail, a later `release` must not find the handle of another one.
#[test]
fn an_older_handle_file_is_removed_before_anything_fails() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let ended = work.pid();
    work.end();
    until("the end", || !is_running(ended.parse().unwrap()));
    let without_url = crate::tools::bare(&["--require-url"]);
    let wrong_pid = dir.leasehold(&[]);
    let wrong_engine = dir.leasehold(&[]);
    for (mut command, pid, wanted) in
        [(without_url, "1", 78), (wrong_pid, ended.as_str(), 64), (wrong_engine, "", 64)]
    {
        let path = dir.file("handle", "an older handle", 0o600);
        command.args(["acquire", "x", "--handle-file", path.to_str().unwrap()]);
        if !pid.is_empty() {
            command.args(["--while-pid", pid]);
        }
        assert_eq!(code(&finish(command)), wanted, "{pid}");
        assert!(!path.exists(), "{pid}");
        assert!(!fs::read_dir(dir.path()).unwrap().any(|file| file.unwrap().path().is_file()), "{pid}");
    }
}

/// A command that is killed during its wait leaves no file, and a holder process removes none.
#[test]
fn a_waiting_acquire_has_no_file() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let holder = dir.hold("x");
    let file = dir.path().join("handle");
    let pid = work.pid();
    let args = ["acquire", "x", "--while-pid", &pid, "--handle-file", file.to_str().unwrap()];
    // The kernel stops no process whose parent is in another session, or in its own group.
    let mut waiting = crate::start::program_in(&[], crate::start::LEASEHOLD);
    waiting.args(args).env("LEASEHOLD_URL", dir.url());
    std::os::unix::process::CommandExt::process_group(&mut waiting, 0);
    let mut waiting = Running::start(waiting);
    dir.until_waiters("x", 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the locks alone");
    let stats = [waiting.pid().as_raw(), holder_of(&pid)].map(|pid| format!("/proc/{pid}/stat"));
    let is_stopped =
        |stat: &String| fs::read_to_string(stat).unwrap().rsplit_once(") ").unwrap().1.starts_with('T');
    waiting.signal(Signal::SIGTSTP);
    // Or it could be granted the lock, and nobody would use it.
    until("a stopped command and its holder process", || stats.iter().all(is_stopped));
    waiting.signal(Signal::SIGCONT);
    until("a running command and its holder process", || !stats.iter().any(is_stopped));
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(code(&waiting.output()), 0);
    assert_eq!(dir.code(&["release", "--handle-file", file.to_str().unwrap()]), 0);
}

/// Nobody would continue it.
#[test]
fn a_holder_of_a_stopped_command_ends_with_the_command() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let _holder = dir.hold("x");
    let mut waiting = crate::start::program_in(&[], crate::start::LEASEHOLD);
    waiting.args(["acquire", "x", "--while-pid", &work.pid()]).env("LEASEHOLD_URL", dir.url());
    std::os::unix::process::CommandExt::process_group(&mut waiting, 0);
    let mut waiting = Running::start(waiting);
    dir.until_waiters("x", 1);
    let holder = holder_of(&work.pid());
    waiting.signal(Signal::SIGTSTP);
    let stat = format!("/proc/{holder}/stat");
    until("a stopped holder process", || {
        fs::read_to_string(&stat).unwrap().rsplit_once(") ").unwrap().1.starts_with('T')
    });
    waiting.signal(Signal::SIGKILL);
    until("the end of the holder process", || !is_running(holder));
    dir.until_waiters("x", 0);
}

/// The line is for another shell.
#[test]
fn the_line_that_breaks_a_hold_has_the_url_of_the_option() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let handle = acquire(&dir, &mut work);
    // In another network namespace the holder process is not reached.
    let line = |options: &[&str], variable: Option<String>| {
        let mut command = program("unshare");
        command.args(["--net", crate::start::LEASEHOLD]).args(options).args(["release", &handle]);
        command.envs(variable.map(|url| ("LEASEHOLD_URL", url)));
        let output = finish(command);
        assert_eq!(code(&output), 69, "{output:?}");
        one_line(&output)
    };
    let token = dir.show("x")["holders"][0]["token"].to_string();
    let by_variable = line(&[], Some(dir.url()));
    assert!(by_variable.ends_with(&format!("or: leasehold break --token {token} x\n")), "{by_variable}");
    let by_option = line(&["--url", &dir.url()], None);
    let wanted = format!("or: leasehold --url {} break --token {token} x\n", dir.url());
    assert!(by_option.ends_with(&wanted), "{by_option}");
    assert_eq!(dir.code(&["release", &handle]), 0);
}

#[test]
fn a_word_that_is_no_handle_of_this_url_is_refused() {
    let (dir, mut work) = (Dir::new(), Work::start());
    let handle = acquire(&dir, &mut work);
    let cut = &handle[..handle.len() - 1];
    for (word, what) in [(cut, "no handle of leasehold"), ("x", "no handle of leasehold"), ("", "no handle")]
    {
        for command in ["renew", "check", "release"] {
            let output = dir.call(&[command, word]);
            assert_eq!(code(&output), 64, "{output:?}");
            assert!(one_line(&output).contains(what), "{output:?}");
        }
    }
    let redis = dir.call(&["check", &handle, "--url", "redis://canary:canary@127.0.0.1:1"]);
    assert_eq!(code(&redis), 64, "{redis:?}");
    let message = one_line(&redis);
    assert!(message.contains("a hold on file") && !message.contains("canary"), "{message}");
    assert_eq!(dir.code(&["release", &handle]), 0);
    // Its hold is over, and the other directory is another place: the URL is the likelier mistake.
    let other = dir.call(&["check", &handle, "--url", &format!("file://{}/other", dir.path().display())]);
    assert_eq!(code(&other), 64, "{other:?}");
    assert!(one_line(&other).contains("made with another URL"), "{other:?}");
}

/// Under a run of the same name the wait would never end.
#[test]
fn an_acquire_inside_a_run_of_its_name_is_refused() {
    let dir = Dir::new();
    let script = "\"$0\" acquire x --while-pid $PPID";
    let mut command = dir.leasehold(&["run", "--pass-url", "x", "--", "sh", "-c", script]);
    command.arg(crate::start::LEASEHOLD);
    let output = finish(command);
    assert_eq!((code(&output), stdout(&output).as_str()), (64, ""), "{output:?}");
    let message = one_line(&output);
    assert!(message.contains("use another name") && !message.contains("--nested"), "{message}");
}
