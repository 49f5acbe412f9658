//! All worlds of the runs of the model of blocks, and every mistake.

use std::io::Write;

use leasehold_model::block::{HOLDS, MISTAKES, Run};

/// Searches all worlds of a run, and prints how many there are.
fn is_as_expected(run: &Run) {
    let result = run.search();
    let report =
        format!("block {}: {} worlds, {:.1} s\n", run.name, result.worlds, result.took.as_secs_f64());
    // Not by `println`, which is hidden unless the test fails.
    std::io::stderr().write_all(report.as_bytes()).expect("standard error takes text");
    let complaints = run.complaints(&result);
    assert!(complaints.is_empty(), "{}: {}", run.name, complaints.join("\n"));
}

/// A test for each run, so that they go side by side.
macro_rules! runs {
    ($runs:ident: $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                is_as_expected($runs.iter().find(|run| run.name == stringify!($name)).unwrap());
            }
        )*

        #[test]
        fn every_run_has_its_test() {
            assert_eq!($runs.iter().map(|run| run.name).collect::<Vec<_>>(), [$(stringify!($name)),*]);
        }
    };
}

mod holds {
    use super::*;

    runs! {
        HOLDS: plain among_others leases leases_among_others long_blocks deleted_by_another_hand
    }
}

mod is_found {
    use super::*;

    runs! {
        MISTAKES: number_alone hand_over_after_lease endless_block steps_begin_again earlier_report_counts
            report_before_take_over_lost change_before_watch_lost
    }
}
