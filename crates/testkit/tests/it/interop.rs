//! The program that locks with etcd's own Go client.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use leasehold_testkit::server::{EtcdServer, interop_program};

struct Program {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(server: &EtcdServer) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etcd/tests/interop/main.go");
        let program = interop_program(&source, Path::new(env!("CARGO_TARGET_TMPDIR")));
        let mut command = Command::new(program);
        command.args([format!("127.0.0.1:{}", server.port()), "5".to_owned()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output).lines() }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        self.output.next().unwrap().unwrap()
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// The key and its revision.
    fn hear_locked(&mut self) -> (String, u64) {
        let line = self.hear();
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!((words.len(), words[0]), (3, "locked"), "{line}");
        (words[1].to_owned(), words[2].parse().unwrap())
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn programs_of_the_go_client_exclude_each_other_and_the_lock_service() {
    let server = EtcdServer::start(&[]);
    let (mut first, mut second) = (Program::start(&server), Program::start(&server));
    first.tell("lock name");
    let (key, revision) = first.hear_locked();
    assert!(key.starts_with("name/"), "{key}");
    assert_eq!(first.ask("owner name"), "owner true");

    assert_eq!(second.ask("lock name"), "queued");
    assert_eq!(first.ask("server-lock name"), "queued");
    assert_eq!(second.ask("owner other"), "error never locked here: other");
    assert_eq!(first.ask("unlock name"), "unlocked");
    assert_eq!(first.ask("owner name"), "owner false");

    let (_, next) = second.hear_locked();
    assert!(next > revision);
    assert_eq!(second.ask("unlock name"), "unlocked");
    let (key, last) = first.hear_locked();
    assert!(last > next);
    assert_eq!(second.ask("lock name"), "queued");
    assert_eq!(first.ask(&format!("server-unlock {key}")), "unlocked");
    second.hear_locked();

    first.tell("quit");
    first.end();
    second.end();
    assert_eq!(server.command(&["get", "", "--prefix", "--keys-only"]), [""; 0]);
}
