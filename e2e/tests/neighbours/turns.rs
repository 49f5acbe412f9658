//! Sections in turns with other programs on one Redis: a key says that somebody is inside, and a count must lose no section.

use std::thread::scope;

use leasehold::{Locks, Request};
use leasehold_testkit::server::RedisServer;

use crate::packages::Neighbour;

/// Runs sections of ours, one thread for each client, beside `theirs`, of which each has as many. Checks that no two programs were
/// inside at once.
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
    assert_eq!(command(&["GET", "overlaps"]), "", "nobody was inside with another");
    assert_eq!(command(&["GET", "count"]), all.to_string(), "no section was lost");
}
