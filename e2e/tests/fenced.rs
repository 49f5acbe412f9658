//! Under pauses a file without a fence loses updates, and nothing with one does.

use std::{path::Path, time::Duration};

use leasehold_e2e::{
    dice::Dice,
    fenced::{Place, run},
};

#[test]
fn only_what_has_no_fence_loses_updates() {
    let seed = Dice::random_seed();
    println!("seed {seed}");
    let tallies = run(Path::new(env!("CARGO_BIN_EXE_leasehold-e2e")), seed, Duration::from_secs(25)).unwrap();
    let refused: u64 = tallies.iter().map(|tally| tally.refused).sum();
    assert!(refused > 0, "the pauses did not bite");
    for tally in tallies {
        println!("{tally}");
        let lost = tally.lost_increments + tally.lost_appends;
        assert!(tally.acknowledged > 20, "{tally}");
        if tally.place == Place::File {
            assert!(lost > 0, "the pauses did not bite: {tally}");
        } else {
            assert_eq!(lost, 0, "{tally}");
        }
    }
}
