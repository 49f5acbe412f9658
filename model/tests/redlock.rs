//! All worlds of Redlock's runs, and every mistake.

use std::io::Write;

use leasehold_model::redlock::{HOLDS, MISTAKES, Run};

/// Looks at all worlds of a run, and tells how many there are.
fn is_as_expected(run: &Run) {
    let seen = run.look();
    let told = format!("redlock {}: {} worlds, {:.1} s\n", run.name, seen.worlds, seen.took.as_secs_f64());
    // Not by `println`, which nobody sees unless the test fails.
    std::io::stderr().write_all(told.as_bytes()).expect("standard error takes text");
    let complaints = run.complaints(&seen);
    assert!(complaints.is_empty(), "{}: {}", run.name, complaints.join("\n"));
}

#[test]
fn what_is_promised_holds_in_every_world() {
    HOLDS.iter().for_each(is_as_expected);
}

#[test]
fn every_mistake_is_found_and_so_is_what_nobody_can_prevent() {
    MISTAKES.iter().for_each(is_as_expected);
}
