//! Programs that lock with Curator and with kazoo: see `tests/interop`.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use leasehold_testkit::server::java_program;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The system's libraries that Curator needs.
const LIBRARIES: [&str; 3] = ["curator-recipes", "curator-framework", "curator-client"];

/// A foreign program, which is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    /// Lines of other threads that were read while the line of one thread was awaited.
    kept_lines: Vec<String>,
}

impl Program {
    /// A program with Curator, and with a session of so many milliseconds.
    pub(crate) fn curator(servers: &str, millis: u32) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/Curator.java");
        let mut command = java_program(&source, &LIBRARIES, Path::new(env!("CARGO_TARGET_TMPDIR")));
        Self::spawn(command.args([servers, &millis.to_string()]))
    }

    /// A program with kazoo, and with a session of so many milliseconds.
    pub(crate) fn kazoo(servers: &str, millis: u32) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/kazoo_peer.py");
        // The system's Python, for which the packages are installed.
        let mut command = Command::new("/usr/bin/python3");
        Self::spawn(command.arg("-B").arg(source).args([servers, &millis.to_string()]))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output).lines(), kept_lines: Vec::new() }
    }

    /// Writes a command to the program.
    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Reads the next line of the program.
    pub(crate) fn read_line(&mut self) -> String {
        self.output.next().unwrap().unwrap()
    }

    /// The next line of a thread. Lines of other threads are kept for later.
    fn read_line_of(&mut self, thread: &str) -> String {
        let is_of_thread = |line: &str| line.split(' ').nth(1) == Some(thread);
        if let Some(index) = self.kept_lines.iter().position(|line| is_of_thread(line)) {
            return self.kept_lines.remove(index);
        }
        loop {
            let line = self.output.next().unwrap().unwrap();
            if is_of_thread(&line) {
                return line;
            }
            self.kept_lines.push(line);
        }
    }

    /// Writes a command and reads the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.read_line()
    }

    /// Waits until a thread of the program holds its lock, and returns the node.
    pub(crate) fn expect_locked(&mut self, thread: &str) -> String {
        let line = self.read_line_of(thread);
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!((words.len(), words[0], words[1]), (3, "locked", thread), "{line}");
        words[2].to_owned()
    }

    pub(crate) fn unlock(&mut self, thread: &str) {
        self.send(&format!("unlock {thread}"));
        assert_eq!(self.read_line_of(thread), format!("unlocked {thread}"));
    }

    pub(crate) fn kill(mut self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL).unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the program in order.
    pub(crate) fn quit(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
