use leasehold_sim::Tally;

use crate::outcome;

const SEEDS: u64 = 400;

#[test]
fn the_first_seeds_pass_and_cover_all_faults() {
    let mut total = Tally::default();
    for seed in 1..=SEEDS {
        let outcome = outcome(seed);
        assert!(outcome.complaints.is_empty(), "seed {seed}: {:?}", outcome.complaints);
        total.add(&outcome.tally);
    }
    let each = |figure: u64| figure / SEEDS;
    assert!(each(total.calls) >= 20, "acquisitions\n{total}");
    assert!(each(total.faults.values().sum()) >= 3, "faults\n{total}");
    assert_eq!(total.faults.len(), 19, "kinds of faults\n{total}");
    assert!(total.grants > total.calls / 2, "grants\n{total}");
    assert!(total.local > total.again && total.again > 0 && total.handed_over > total.grants / 8, "{total}");
    assert!(total.beyond > SEEDS / 10 && total.beyond < SEEDS / 2, "{total}");
    assert!(total.fenced.refused > 0 && total.fenced.lost == 0, "{total}");
    assert!(total.unfenced.lost > 0, "without a fence, something is lost\n{total}");
}
