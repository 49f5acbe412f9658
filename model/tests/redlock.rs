//! All worlds of Redlock's runs, and every mistake.

use std::io::Write;

use leasehold_model::redlock::{HOLDS, MISTAKES, Run};

/// Searches all worlds of a run, and prints how many there are.
fn is_as_expected(run: &Run) {
    let result = run.search();
    let report =
        format!("redlock {}: {} worlds, {:.1} s\n", run.name, result.worlds, result.took.as_secs_f64());
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
        HOLDS: plain late_requests lost_answers drifting restarts forgets all_forget steps forgets_and_steps renewed
            repaired tokens tokens_lost_answers tokens_guessed tokens_forgotten tokens_trap
    }
}

mod is_found {
    use super::*;

    runs! {
        MISTAKES: write_any_token keep_larger_token no_clock_in_token no_quarantine_for_tokens no_quarantine
            no_agreement count_from_grant no_margin count_repaired delete_without_compare one_vote a_majority_steps
    }
}
