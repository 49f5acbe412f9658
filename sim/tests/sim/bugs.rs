use leasehold_sim::{Bug, Plan, reduce, run};

use crate::plan;

/// Every mistake is found within this many seeds.
const BOUND: u64 = 600;

fn first_found(bug: Bug) -> Option<Plan> {
    (1..=BOUND).map(|seed| plan(seed, Some(bug))).find(|plan| !run(plan, false).complaints.is_empty())
}

#[test]
fn every_mistake_is_found() {
    let missed: Vec<Bug> = Bug::ALL.into_iter().filter(|bug| first_found(*bug).is_none()).collect();
    assert_eq!(missed, [], "not within {BOUND} seeds");
}

#[test]
fn a_failure_is_reduced_and_fails_in_the_same_way() {
    for bug in [Bug::GrantsTwice, Bug::PushesUnstored, Bug::DatesByArrival] {
        let plan = first_found(bug).unwrap();
        let small = reduce(&plan).unwrap();
        let kind = |plan: &Plan| run(plan, false).complaints.first().unwrap().kind.clone();
        assert_eq!(kind(&plan), kind(&small), "{bug:?}");
        assert!(small.ops() * 2 < plan.ops(), "{bug:?}: {} of {} are left", small.ops(), plan.ops());
    }
}

#[test]
fn a_passing_plan_is_not_reduced() {
    assert!(reduce(&plan(1, None)).is_none());
}
