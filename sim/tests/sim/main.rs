//! Tests of the simulation: it finds mistakes, it is reproducible, and the core passes the first seeds.

mod bugs;
mod false_alarms;
mod replay;
mod sights;
mod smoke;

use leasehold_sim::{Bug, Outcome, Plan, run};

/// The acquisitions of a run.
const OPS: usize = 32;

fn plan(seed: u64, bug: Option<Bug>) -> Plan {
    Plan::draw(seed, OPS, bug)
}

fn outcome(seed: u64) -> Outcome {
    run(&plan(seed, None), false)
}

#[track_caller]
fn assert_no_violation(seeds: &[u64]) {
    for seed in seeds {
        let outcome = outcome(*seed);
        assert!(outcome.complaints.is_empty(), "seed {seed}: {:?}", outcome.complaints);
    }
}
