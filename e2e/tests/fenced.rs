//! Under pauses a file without a fence loses updates, and fenced resources lose none.

use std::{path::Path, time::Duration};

use leasehold_e2e::{
    fenced::{DESTINATIONS, Destination, Tally, run},
    rng::Rng,
};

/// The length of a round; after each, the test checks whether the pauses had an effect.
const ROUND: Duration = Duration::from_secs(6);
/// The test fails if so many rounds show no effect.
const MAX_ROUNDS: u64 = 10;
/// The least number of acknowledged updates of each destination.
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
    panic!("the pauses had no effect: {sums:?}");
}

fn lost(tally: &Tally) -> u64 {
    tally.lost_increments + tally.lost_appends
}

/// Whether an update was refused, the destination without a fence lost an update, and each destination had its updates.
fn faults_had_effect(sums: &[Tally]) -> bool {
    sums.iter().map(|sum| sum.refused).sum::<u64>() > 0
        && sums.iter().any(|sum| sum.destination == Destination::File && lost(sum) > 0)
        && sums.iter().all(|sum| sum.acknowledged > ACKNOWLEDGED)
}
