use leasehold_sim::{Outcome, run};

use crate::{outcome, plan};

fn traced(seed: u64) -> Outcome {
    run(&plan(seed, None), true)
}

#[test]
fn a_seed_repeats_step_by_step() {
    let first: Vec<(u64, Outcome)> = (1..=20).map(|seed| (seed, traced(seed))).collect();
    // The second time in another order, after other seeds.
    for (seed, first) in first.into_iter().rev() {
        let again = traced(seed);
        let differs = first.trace.iter().zip(&again.trace).find(|(first, again)| first != again);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((first.trace.len(), first.digest), (again.trace.len(), again.digest), "seed {seed}");
        assert!(first.trace.len() > 100, "seed {seed} has a trace");
    }
}

#[test]
fn seeds_repeat_and_differ_from_each_other() {
    let digests = || (1..=150).map(|seed| outcome(seed).digest);
    let first: Vec<u64> = digests().collect();
    assert!(first.iter().copied().eq(digests()));
    let mut apart = first;
    apart.sort_unstable();
    apart.dedup();
    assert_eq!(apart.len(), 150);
}

#[test]
fn tracing_does_not_change_the_run() {
    for seed in 1..=20 {
        assert_eq!(outcome(seed).digest, traced(seed).digest, "seed {seed}");
    }
}
