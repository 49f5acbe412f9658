//! A thousand processes on one name. A separate test binary, because it uses the whole machine.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "../cli/groups.rs"]
#[expect(dead_code, reason = "shared with the other tests of the command, which use the rest")]
mod groups;
#[path = "../cli/start.rs"]
mod start;
#[path = "../cli/tools.rs"]
#[expect(dead_code, reason = "shared with the other tests of the command, which use the rest")]
mod tools;

use std::{
    fs,
    process::{Child, Stdio},
    time::Duration,
};

use tools::{Dir, until_within};

const PROCESSES: usize = 1000;
/// The longest time without progress: a thousand starting processes share two processors, and each needs several time
/// slices.
const PATIENCE: Duration = Duration::from_secs(300);
/// Reads the counter and writes it back: two processes at once would lose an update.
const ADD_ONE: &str = "read n < \"$1\" && echo $((n + 1)) > \"$1\"";

/// Processes that are killed at the end of the test.
struct Crowd(Vec<Child>);

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_thousand_processes_run_one_at_a_time() {
    let dir = Dir::new();
    let counter = dir.file("counter", "0\n", 0o600);
    let gate = dir.hold("x");
    let mut crowd = Crowd(Vec::new());
    for _ in 0..PROCESSES {
        let mut command = dir.leasehold(&["run", "x", "--", "sh", "-c", ADD_ONE, "sh"]);
        command.arg(&counter).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        crowd.0.push(command.spawn().unwrap());
    }
    let count = || fs::read_to_string(&counter).unwrap().trim().parse().unwrap_or(0);
    assert_eq!(count(), 0, "the name is held");
    drop(gate);
    let mut before = 0;
    while before < PROCESSES {
        until_within(PATIENCE, "one more got through", || count() > before);
        before = count();
    }
    assert!(crowd.0.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(count(), PROCESSES);
    let view = dir.show("x");
    assert!(view["holders"].as_array().unwrap().is_empty() && view["waiters"].as_array().unwrap().is_empty());
}
