//! Hand-made histories: each bad one violates the invariant of its file, and no other; each good one violates none.

use leasehold_testkit::check::{Invariant, Report, Terms, check};

use super::tale::{Verdict, tale, tales};

/// How many good and how many bad histories an invariant needs at least, to be trusted.
const EACH: usize = 3;

#[track_caller]
fn judge(terms: &Terms, invariant: Invariant, text: &str) {
    let (mut good, mut bad) = (0, 0);
    let mut checked = 0;
    for (verdict, title, history) in tales(text) {
        let report = check(&history, terms);
        match verdict {
            Verdict::Good => {
                good += 1;
                assert!(report.holds(), "good: {title}\n{report}");
                checked += report.verdict(invariant).unwrap().checked;
            }
            Verdict::Bad => {
                bad += 1;
                // A hold that was denied within its deadline is at fault for that as well.
                let mut violated = report.violated();
                violated.retain(|&other| {
                    other == invariant || (invariant, other) != (Invariant::Loss, Invariant::Releases)
                });
                assert_eq!(violated, [invariant], "bad: {title}\n{report}");
                let example = &report.verdict(invariant).unwrap().examples[0];
                assert!(!example.excerpt.is_empty() && !example.what.is_empty(), "bad: {title}\n{report}");
            }
        }
    }
    assert!(good >= EACH && bad >= EACH, "{good} good and {bad} bad histories");
    assert!(checked > 0, "{invariant} was not checked at all in the good histories");
}

macro_rules! verdicts {
    ($($test:ident: $invariant:ident, $terms:expr;)+) => {$(
        #[test]
        fn $test() {
            judge(&$terms, Invariant::$invariant, include_str!(concat!("tales/", stringify!($test), ".txt")));
        }
    )+};
}

verdicts! {
    shape: Shape, Terms::default();
    exclusion: Exclusion, Terms::default();
    deadlines: Deadlines, Terms::default();
    tokens: Tokens, Terms::default();
    leaks: Leaks, Terms::default();
    wakeups: WakeUps, Terms::default();
    order: Order, overtakes(0);
    loss: Loss, Terms::default();
    releases: Releases, Terms::default();
    cancels: Cancels, Terms::default();
    limits: Limits, Terms::default();
}

fn overtakes(allowed: u64) -> Terms {
    let mut terms = Terms::default();
    terms.overtakes = Some(allowed);
    terms
}

const TWO_WRITERS: &str = "
    0 p1 a1 inv X
    1 p1 a1 ok 1 D=90 ttl=100
    2 p2 a2 inv X
    50 p2 a2 ok 2 D=140 ttl=100
    62.5 p1 a1 rel
    63 p1 a1 freed";

#[test]
fn the_width_of_an_overlap_is_told_with_its_pair() {
    let report = check(&tale(TWO_WRITERS), &Terms::default());
    let example = &report.verdict(Invariant::Exclusion).unwrap().examples[0];
    assert!(example.what.contains("overlap for 12.500 ms"), "{report}");
    assert!(example.what.contains("token 1") && example.what.contains("token 2"), "{report}");
    let attempts: Vec<_> = example.excerpt.iter().map(|event| event.attempt).collect();
    assert_eq!(attempts, [1, 1, 2, 2, 1, 1], "{report}");
    assert!(report.to_string().contains("(+50.000 ms) proc 2"), "{report}");
}

/// The second is granted after the third asked and was granted, or so the tokens say.
const OVERTAKEN: &str = "
    0 p1 a1 inv X
    1 p1 a1 ok 1
    2 p2 a2 inv X
    3 p2 a2 enq
    4 p3 a3 inv X
    6 p1 a1 rel
    7 p1 a1 freed
    18 p3 a3 ok 2
    19 p3 a3 rel
    19 p3 a3 freed
    28 p2 a2 ok 3";

#[test]
fn as_many_overtakes_are_allowed_as_the_terms_say() {
    let history = tale(OVERTAKEN);
    assert_eq!(check(&history, &overtakes(0)).violated(), [Invariant::Order]);
    assert!(check(&history, &overtakes(1)).holds());
    assert!(check(&history, &Terms::default()).holds(), "no order is promised");
}

const CROSSING: &str = "
    0 p1 a1 inv X
    1 p2 a2 inv X
    5 p2 a2 ok 2 D=98 ttl=100
    6 p2 a2 rel
    7 p2 a2 freed
    9 p1 a1 ok 1 D=98 ttl=100";

#[test]
fn lossy_runs_order_only_what_followed() {
    let mut lossy = Terms::default();
    lossy.lossy = true;
    assert_eq!(check(&tale(CROSSING), &Terms::default()).violated(), [Invariant::Tokens]);
    assert!(check(&tale(CROSSING), &lossy).holds());
    let following = CROSSING.replace("0 p1 a1 inv X", "8 p1 a1 inv X");
    assert_eq!(check(&tale(&following), &lossy).violated(), [Invariant::Tokens]);
}

#[test]
fn a_missing_record_is_found() {
    let mut events = tale(TWO_WRITERS).events().to_vec();
    events.remove(2);
    let report: Report = check(&leasehold_testkit::history::History::from_events(events), &Terms::default());
    assert!(report.violations(Invariant::Shape) > 0, "{report}");
}

/// A writer every millisecond that never leaves: each overlaps with all before it.
#[test]
fn twenty_thousand_violations_are_counted_and_ten_are_shown() {
    let mut text = String::new();
    for hold in 1..=20_000 {
        text += &format!("{hold} p1 a{hold} inv X\n{hold} p1 a{hold} ok {hold}\n");
    }
    let report = check(&tale(&text), &Terms::default());
    assert_eq!(report.violated(), [Invariant::Exclusion]);
    assert_eq!(report.violations(Invariant::Exclusion), 19_999);
    assert_eq!(report.verdict(Invariant::Exclusion).unwrap().examples.len(), 10);
}
