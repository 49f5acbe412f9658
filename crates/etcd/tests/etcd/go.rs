//! Programs that lock with etcd's own Go client: by its lock package (`tests/interop/main.go`), and without it
//! (`tests/by_hand/main.go`); and `etcdctl lock`.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use leasehold_testkit::server::go_program;
use nix::sys::signal::Signal;

/// A foreign program. It is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    /// Starts the Go program that uses the lock package, with a session of this many seconds.
    pub(crate) fn start(port: u16, seconds: u32) -> Self {
        Self::start_go("tests/interop/main.go", port, seconds)
    }

    /// Starts the Go program that creates the key of a lock by hand, on leases of this many seconds.
    pub(crate) fn by_hand(port: u16, seconds: u32) -> Self {
        Self::start_go("tests/by_hand/main.go", port, seconds)
    }

    fn start_go(source: &str, port: u16, seconds: u32) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let program = go_program(&source, Path::new(env!("CARGO_TARGET_TMPDIR")));
        Self::spawn(Command::new(program).args([format!("127.0.0.1:{port}"), seconds.to_string()]))
    }

    /// Starts `etcdctl lock`, which prints its key once it holds.
    pub(crate) fn etcdctl(port: u16, name: &str, seconds: u32) -> Self {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args([
            "--endpoints",
            &format!("127.0.0.1:{port}"),
            "lock",
            "--ttl",
            &seconds.to_string(),
            name,
        ]);
        Self::spawn(&mut command)
    }

    /// Starts a program with these arguments.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output).lines() }
    }

    /// Writes a command to the program.
    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Reads the next line of the program.
    pub(crate) fn receive(&mut self) -> String {
        self.output.next().unwrap().unwrap()
    }

    /// Writes a command and reads the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.receive()
    }

    /// Reads the line of a grant: the key and its revision. Before this line, the program may print that it waits.
    pub(crate) fn read_locked(&mut self) -> (String, u64) {
        let mut line = self.receive();
        if line == "queued" {
            line = self.receive();
        }
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!((words.len(), words[0]), (3, "locked"), "{line}");
        (words[1].to_owned(), words[2].parse().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        leasehold_testkit::signal(self.child.id(), signal);
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
