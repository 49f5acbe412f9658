//! All worlds of the small runs, and every mistake.

use std::io::Write;

use leasehold_model::{MISTAKES, Run, SMALL};

/// Searches all worlds of a run, and prints how many there are.
fn is_as_expected(run: &Run) {
    let result = run.search(|_, _| ());
    let report = format!("{}: {} worlds, {:.1} s\n", run.name, result.worlds, result.took.as_secs_f64());
    // Not by `println`, which is hidden unless the test fails.
    std::io::stderr().write_all(report.as_bytes()).expect("standard error takes text");
    let complaints = run.complaints(&result);
    assert!(complaints.is_empty(), "{}: {}", run.name, complaints.join("\n"));
}

/// A test for each run, so that they go side by side.
macro_rules! runs {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                is_as_expected(SMALL.iter().find(|run| run.name == stringify!($name)).unwrap());
            }
        )*

        #[test]
        fn every_run_has_its_test() {
            assert_eq!(SMALL.iter().map(|run| run.name).collect::<Vec<_>>(), [$(stringify!($name)),*]);
        }
    };
}

runs! {
    delays timeouts broken_connections broken_twice renewals deaths another_program unfenced fenced sealed
    in_queue in_queue_reconnecting in_queue_with_lost_notifications in_queue_behind_dead_waiters
    in_queue_behind_known_dead_waiters in_queue_behind_a_dead_holder in_queue_behind_another_program
    in_queue_behind_dead_waiters_and_another_program
}

#[test]
fn every_mistake_is_found() {
    MISTAKES.iter().for_each(is_as_expected);
}
