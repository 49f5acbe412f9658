//! A private lock directory, and processes that are killed at the end of the test.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use nix::{sys::signal::Signal, unistd::Pid};

use crate::start::{LEASEHOLD, program};

/// The time limit of every wait: far longer than needed, because the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that is removed at the end of the test.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("leasehold-cli-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The lock directory of this test.
    pub(crate) fn locks(&self) -> PathBuf {
        self.0.join("locks")
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.locks().display())
    }

    /// Creates a file with this text in the directory.
    pub(crate) fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// `leasehold` on the locks of this test, without other URLs in its environment.
    pub(crate) fn leasehold(&self, args: &[&str]) -> Command {
        let mut command = bare(args);
        command.env("LEASEHOLD_URL", self.url());
        command
    }

    /// Runs `leasehold` to its end.
    pub(crate) fn call(&self, args: &[&str]) -> Output {
        finish(self.leasehold(args))
    }

    /// The exit code of `leasehold`.
    pub(crate) fn code(&self, args: &[&str]) -> i32 {
        code(&self.call(args))
    }

    /// Starts `leasehold run OPTIONS NAME -- sh -c SCRIPT` and waits until the script prints "ready".
    pub(crate) fn holder(&self, options: &[&str], name: &str, script: &str) -> Running {
        let args = [&["run"], options, &[name, "--", "sh", "-c", script]].concat();
        let mut running = Running::start(self.leasehold(&args));
        assert_eq!(running.line(), "ready");
        running
    }

    /// A run that holds a name until its input ends.
    pub(crate) fn hold(&self, name: &str) -> Running {
        self.holder(&[], name, HOLD)
    }

    /// The output of `show --json`.
    pub(crate) fn show(&self, name: &str) -> serde_json::Value {
        let output = self.call(&["show", "--json", name]);
        assert_eq!(code(&output), 0, "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until a name has this number of waiters.
    pub(crate) fn until_waiters(&self, name: &str, count: usize) {
        until("waiters", || self.show(name)["waiters"].as_array().unwrap().len() == count);
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Checks a condition that has to be true until `time` after `begin`. A later check proves nothing and passes.
#[track_caller]
pub(crate) fn assert_until(begin: Instant, time: Duration, is_so: bool, what: &str) {
    assert!(is_so || begin.elapsed() >= time, "{what}: not so after {:?}", begin.elapsed());
}

/// A script that runs until its input ends.
pub(crate) const HOLD: &str = "echo ready; read line; true";

/// `leasehold` without any URL.
pub(crate) fn bare(args: &[&str]) -> Command {
    let mut command = program(LEASEHOLD);
    command.args(args);
    command
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("no exit code: {output:?}"))
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Checks that standard error has exactly one line, with the usual prefix. Returns the line.
pub(crate) fn one_line(output: &Output) -> String {
    let message = stderr(output);
    assert!(message.starts_with("leasehold: ") && message.ends_with('\n'), "{message:?}");
    assert_eq!(message.lines().count(), 1, "{message:?}");
    message
}

/// Runs a command to its end, without input.
pub(crate) fn finish(mut command: Command) -> Output {
    command.stdin(Stdio::null());
    Running::start_with(command).output()
}

/// Runs a command with `-w LIMIT` for a name that is held: it exits with 75, and not before the limit. If a busy
/// machine delays the server's answer past the limit (69), it runs again with a longer limit.
pub(crate) fn assert_taken_within_limit(run: impl Fn(&str) -> i32) {
    for limit in [400, 1600, 6400, 25_600] {
        let begin = Instant::now();
        let code = run(&format!("{limit}ms"));
        assert!(begin.elapsed() >= Duration::from_millis(limit), "{code} before its limit");
        if code != 69 {
            assert_eq!(code, 75);
            return;
        }
    }
    panic!("the server did not answer within any limit");
}

/// Waits until a condition is true.
pub(crate) fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_within(PATIENCE, what, is_so);
}

pub(crate) fn until_within(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < end, "it never happened: {what}");
        // Not a busy loop, which would take processor time from the awaited process.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process that is killed at the end of the test. Its input is open until `output` is called.
pub(crate) struct Running {
    child: Option<Child>,
    out: Option<BufReader<ChildStdout>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped());
        Self::start_with(command)
    }

    fn start_with(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().map(BufReader::new);
        Self { child: Some(child), out }
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().unwrap()
    }

    pub(crate) fn pid(&mut self) -> Pid {
        Pid::from_raw(self.child().id().cast_signed())
    }

    /// The next line it prints, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.as_mut().unwrap().read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next line of its standard error, without its end.
    pub(crate) fn stderr_line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        let stderr = self.child().stderr.as_mut().unwrap();
        while stderr.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    /// A number that it prints as a line.
    pub(crate) fn number(&mut self) -> i32 {
        let line = self.line();
        line.parse().unwrap_or_else(|_| panic!("no number: {line:?}"))
    }

    /// Reads until the output contains `text`. Returns all that was read.
    pub(crate) fn read_until(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        let out = self.out.as_mut().unwrap();
        while !String::from_utf8_lossy(&read).contains(text) {
            let mut byte = [0];
            assert_eq!(
                out.read(&mut byte).unwrap(),
                1,
                "no {text:?} in {:?}",
                String::from_utf8_lossy(&read)
            );
            read.push(byte[0]);
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Reads this number of bytes of its output, as a reader of a long output does.
    pub(crate) fn skip(&mut self, count: u64) {
        let read = std::io::copy(&mut self.out.as_mut().unwrap().take(count), &mut std::io::sink()).unwrap();
        assert_eq!(read, count, "its output is shorter");
    }

    /// Closes the end of its output that this test reads.
    pub(crate) fn close_output(&mut self) {
        self.out = None;
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.child().stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        leasehold_testkit::signal(self.child().id(), signal);
    }

    /// Signals the guardian: the child that holds the lock and runs CMD.
    pub(crate) fn signal_guardian(&mut self, signal: Signal) {
        let front = self.pid();
        let children = fs::read_to_string(format!("/proc/{front}/task/{front}/children")).unwrap();
        let guardian: i32 = children.trim().parse().unwrap_or_else(|_| panic!("one child: {children:?}"));
        nix::sys::signal::kill(Pid::from_raw(guardian), signal).unwrap();
        if signal == Signal::SIGSTOP {
            until("a stopped guardian", || state(guardian) == Some('T'));
        }
    }

    /// Stops both processes of the command. The front first, because it would continue the guardian.
    pub(crate) fn freeze(&mut self) {
        self.signal(Signal::SIGSTOP);
        self.signal_guardian(Signal::SIGSTOP);
    }

    pub(crate) fn thaw(&mut self) {
        self.signal_guardian(Signal::SIGCONT);
        self.signal(Signal::SIGCONT);
    }

    /// Kills the whole command, as a power failure does, so that no process releases the lock. Removes its control
    /// group too, because there may be no next run to do it.
    pub(crate) fn kill_whole(&mut self) {
        self.kill_both();
        crate::groups::remove_leaf_of(self.pid());
    }

    /// Kills both processes of the command, and nothing else.
    pub(crate) fn kill_both(&mut self) {
        self.signal(Signal::SIGSTOP);
        self.signal_guardian(Signal::SIGKILL);
        self.signal(Signal::SIGKILL);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child().try_wait().unwrap().is_some()
    }

    /// Closes its input and waits for its end. Returns the rest of its output.
    pub(crate) fn output(mut self) -> Output {
        drop(self.child().stdin.take());
        self.wait()
    }

    /// Waits for its end, with its input still open.
    pub(crate) fn wait(mut self) -> Output {
        let status = self.status();
        let mut output = Output { status, stdout: Vec::new(), stderr: Vec::new() };
        if let Some(mut out) = self.out.take() {
            out.read_to_end(&mut output.stdout).unwrap();
        }
        self.child().stderr.take().unwrap().read_to_end(&mut output.stderr).unwrap();
        output
    }

    fn status(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child().try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "it does not end");
            // The pause between two polls of a bounded wait: the result does not depend on its length.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether a process exists and is not a zombie.
pub(crate) fn is_running(pid: i32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The letter of a process's state.
pub(crate) fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
