//! Sections of several programs on one Redis: a key marks a program in its section, and a counter shows lost sections.

use std::thread::scope;

use leasehold::{Locks, Request};
use leasehold_testkit::server::RedisServer;

use crate::packages::Neighbour;

/// Runs `sections` sections on a thread for each of our clients, while each of the other programs runs as many. Asserts
/// that no two sections overlapped and that none was lost.
pub(crate) fn take_turns(
    server: &RedisServer,
    (ours, request): (&[Locks], fn(&Locks) -> Request),
    theirs: Vec<Neighbour>,
    sections: usize,
) {
    let all = (ours.len() + theirs.len()) * sections;
    let command = |command: &[&str]| server.command(command).join("");
    scope(|scope| {
        for locks in ours {
            scope.spawn(|| {
                for _ in 0..sections {
                    let guard = request(locks).blocking().acquire().unwrap();
                    if command(&["SET", "inside", "rust", "NX"]) != "OK" {
                        command(&["INCR", "overlaps"]);
                    }
                    let count: usize = command(&["GET", "count"]).parse().unwrap_or(0);
                    command(&["SET", "count", &(count + 1).to_string()]);
                    command(&["DEL", "inside"]);
                    guard.release_blocking().unwrap();
                }
            });
        }
    });
    theirs.into_iter().for_each(Neighbour::finish);
    assert_eq!(command(&["GET", "overlaps"]), "", "no two programs were in the section at once");
    assert_eq!(command(&["GET", "count"]), all.to_string(), "no section was lost");
}
