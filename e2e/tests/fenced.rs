//! Under pauses a file without a fence loses updates, and nothing with one does.

use std::{path::Path, time::Duration};

use leasehold_e2e::{
    fenced::{DESTINATIONS, Destination, Tally, run},
    rng::Rng,
};

/// How long the writers are paused before it is looked whether that has bitten.
const ROUND: Duration = Duration::from_secs(6);
/// After so many rounds it never will.
const MAX_ROUNDS: u64 = 10;
/// How many updates must come through at each place.
const ACKNOWLEDGED: u64 = 20;

#[test]
fn only_resources_without_a_fence_lose_updates() {
    let seed = Rng::random_seed();
    let mut sums = DESTINATIONS.map(|destination| Tally {
        destination,
        acknowledged: 0,
        refused: 0,
        lost_increments: 0,
        lost_appends: 0,
    });
    for seed in seed..seed + MAX_ROUNDS {
        println!("seed {seed}");
        let tallies = run(Path::new(env!("CARGO_BIN_EXE_leasehold-e2e")), seed, ROUND).unwrap();
        for tally in tallies {
            println!("{tally}");
            if tally.destination != Destination::File {
                assert_eq!(lost(&tally), 0, "{tally}");
            }
            let sum = sums.iter_mut().find(|sum| sum.destination == tally.destination).unwrap();
            sum.acknowledged += tally.acknowledged;
            sum.refused += tally.refused;
            sum.lost_increments += tally.lost_increments;
            sum.lost_appends += tally.lost_appends;
        }
        if faults_had_effect(&sums) {
            return;
        }
    }
    panic!("the pauses did not bite: {sums:?}");
}

fn lost(tally: &Tally) -> u64 {
    tally.lost_increments + tally.lost_appends
}

/// Whether somebody was refused, the place without a fence lost something, and each place had its updates.
fn faults_had_effect(sums: &[Tally]) -> bool {
    sums.iter().map(|sum| sum.refused).sum::<u64>() > 0
        && sums.iter().any(|sum| sum.destination == Destination::File && lost(sum) > 0)
        && sums.iter().all(|sum| sum.acknowledged > ACKNOWLEDGED)
}
