use leasehold_sim::{Outcome, run};

use crate::{outcome, plan};

fn traced(seed: u64) -> Outcome {
    run(&plan(seed, None), true)
}

#[test]
fn the_same_seed_goes_the_same_way_step_by_step() {
    let first: Vec<(u64, Outcome)> = (1..=20).map(|seed| (seed, traced(seed))).collect();
    // In another order, after other seeds.
    for (seed, first) in first.into_iter().rev() {
        let again = traced(seed);
        let differs = first.trace.iter().zip(&again.trace).find(|(first, again)| first != again);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((first.trace.len(), first.digest), (again.trace.len(), again.digest), "seed {seed}");
        assert!(first.trace.len() > 100, "seed {seed} tells something");
    }
}

#[test]
fn many_seeds_go_the_same_way_and_no_two_alike() {
    let digests = || (1..=150).map(|seed| outcome(seed).digest);
    let first: Vec<u64> = digests().collect();
    assert!(first.iter().copied().eq(digests()));
    let mut apart = first;
    apart.sort_unstable();
    apart.dedup();
    assert_eq!(apart.len(), 150);
}

#[test]
fn writing_down_what_happens_changes_nothing() {
    for seed in 1..=20 {
        assert_eq!(outcome(seed).digest, traced(seed).digest, "seed {seed}");
    }
}
