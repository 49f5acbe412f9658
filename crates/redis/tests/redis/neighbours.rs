//! Programs that use redis-py lock the same names as leasehold, as in docs/recipes/redis-neighbours.md.

use std::{process::Command, thread::spawn};

use crate::rig::{Rig, acquire};

const OF_EACH: usize = 4;
const SECTIONS: usize = 125;

#[test]
fn leasehold_and_redis_py_share_a_lock_without_overlap_or_loss() {
    let rig = Rig::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/neighbour.py");
    let (port, sections) = (rig.server.port().to_string(), SECTIONS.to_string());
    let python_programs: Vec<_> = (0..OF_EACH)
        .map(|_| {
            Command::new("/usr/bin/python3").args([script, &port, "lock:shared", &sections]).spawn().unwrap()
        })
        .collect();
    let rust_threads: Vec<_> = (0..OF_EACH)
        .map(|_| {
            // Each thread has its own client, like a separate process.
            let (locks, port) = (rig.locks(), rig.server.port());
            spawn(move || {
                let mut server = RawClient::connect(port);
                for _ in 0..SECTIONS {
                    let guard = acquire(&locks, "shared");
                    if server.ask(&["SET", "inside", "rust", "NX"]) == "$-1" {
                        server.ask(&["INCR", "overlaps"]);
                    }
                    let count = server.number(&["GET", "count"]);
                    server.ask(&["SET", "count", &(count + 1).to_string()]);
                    server.ask(&["DEL", "inside"]);
                    guard.release_blocking().unwrap();
                }
            })
        })
        .collect();
    for thread in rust_threads {
        thread.join().unwrap();
    }
    for mut process in python_programs {
        assert!(process.wait().unwrap().success(), "python3 with redis-py is needed: run setup/debian");
    }
    assert_eq!(rig.command(&["GET", "overlaps"]), "", "no two programs were in the section at once");
    assert_eq!(rig.command(&["GET", "count"]), (2 * OF_EACH * SECTIONS).to_string(), "no section was lost");
    rig.command(&["DEL", "count"]);
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

/// A minimal client of Redis that only sends commands.
struct RawClient(std::io::BufReader<std::net::TcpStream>);

impl RawClient {
    fn connect(port: u16) -> Self {
        Self(std::io::BufReader::new(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()))
    }

    /// The first line of the reply, or the text of a bulk string.
    fn ask(&mut self, words: &[&str]) -> String {
        use std::io::Write;
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
        let line = self.line();
        if line.starts_with('$') && line != "$-1" { self.line() } else { line }
    }

    fn number(&mut self, words: &[&str]) -> usize {
        self.ask(words).parse().unwrap_or(0)
    }

    fn line(&mut self) -> String {
        use std::io::BufRead;
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}
