//! The simulation itself: what it finds, that it repeats itself, and that the core stands the first seeds.

mod accused;
mod bugs;
mod replay;
mod sights;
mod smoke;

use leasehold_sim::{Bug, Outcome, Plan, run};

/// Acquisitions of a run.
const OPS: usize = 32;

fn plan(seed: u64, bug: Option<Bug>) -> Plan {
    Plan::draw(seed, OPS, bug)
}

fn outcome(seed: u64) -> Outcome {
    run(&plan(seed, None), false)
}

#[track_caller]
fn stands(seeds: &[u64]) {
    for seed in seeds {
        let outcome = outcome(*seed);
        assert!(outcome.complaints.is_empty(), "seed {seed}: {:?}", outcome.complaints);
    }
}
