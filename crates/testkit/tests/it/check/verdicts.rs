//! Hand-written histories with the exact list of what each violates, and tests of the report.

use leasehold_testkit::{
    check::{Figure, Invariant, Outcome, Terms, check},
    history::History,
};

use super::scenario::{Scenario, scenario, scenarios};

/// All scenario files, with their paths.
fn files() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/check/scenarios");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn scenarios_violate_exactly_what_they_state() {
    let (mut count, mut bad) = (0, std::collections::BTreeMap::<Invariant, usize>::new());
    for (file, text) in &files() {
        for Scenario { title, violates, terms, history } in scenarios(text) {
            let report = check(&history, &terms);
            assert_eq!(report.violated(), violates, "{file}: {title}\n{report}");
            let examples = report.verdicts.iter().flat_map(|verdict| &verdict.examples);
            for example in examples {
                let complete = !example.excerpt.is_empty() && !example.what.is_empty();
                assert!(complete && example.excerpt.len() <= 20, "{file}: {title}\n{report}");
            }
            count += 1;
            violates.into_iter().for_each(|invariant| *bad.entry(invariant).or_default() += 1);
        }
    }
    assert!(count >= 200, "{count} scenarios");
    for verdict in check(&History::default(), &Terms::default()).verdicts {
        let bad = bad.get(&verdict.invariant).copied().unwrap_or(0);
        assert!(bad >= 3, "{bad} scenarios violate {}", verdict.invariant);
    }
}

const TWO_WRITERS: &str = "
    0 p1 a1 inv X
    1 p1 a1 ok 1 D=90 ttl=100
    2 p2 a2 inv X
    50 p2 a2 ok 2 D=140 ttl=100
    62.5 p1 a1 rel
    63 p1 a1 freed";

#[test]
fn an_overlap_is_reported_with_its_width_and_pair() {
    let report = check(&scenario(TWO_WRITERS), &Terms::default());
    let example = &report.verdict(Invariant::Exclusion).unwrap().examples[0];
    assert!(example.what.contains("overlap for 12.500 ms"), "{report}");
    assert!(example.what.contains("token 1") && example.what.contains("token 2"), "{report}");
    let attempts: Vec<_> = example.excerpt.iter().map(|event| event.attempt).collect();
    assert_eq!(attempts, [1, 1, 2, 2, 1, 1], "{report}");
    assert!(report.to_string().contains("(+50.000 ms) proc 2"), "{report}");
}

#[test]
fn a_missing_record_is_found() {
    let mut events = scenario(TWO_WRITERS).events().to_vec();
    events.remove(2);
    let report = check(&History::from_events(events), &Terms::default());
    assert!(report.violations(Invariant::Shape) > 0, "{report}");
}

/// A new writer every millisecond that never releases: each overlaps with all before it.
#[test]
fn twenty_thousand_violations_are_counted_and_ten_are_shown() {
    let mut text = String::new();
    for hold in 1..=20_000 {
        text += &format!("{hold} p1 a{hold} inv X\n{hold} p1 a{hold} ok {hold}\n");
    }
    let report = check(&scenario(&text), &Terms::default());
    assert_eq!(report.violated(), [Invariant::Exclusion, Invariant::OneOrder]);
    assert_eq!(report.violations(Invariant::Exclusion), 19_999);
    assert_eq!(report.violations(Invariant::OneOrder), 19_999);
    assert_eq!(report.verdict(Invariant::Exclusion).unwrap().examples.len(), 10);
}

#[test]
fn a_report_reads_as_text_and_as_json() {
    let report = check(&scenario(TWO_WRITERS), &Terms::default());
    let text = report.to_string();
    assert!(text.contains("I1 exclusion: VIOLATED, 2 checked, 1 violations, most at once 2\n"), "{text}");
    assert!(text.contains("I12 limits: not checked, 0 checked"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["figures"]["grants"], 2, "{json}");
    let exclusion = &json["verdicts"][1];
    assert_eq!(
        (&exclusion["invariant"], &exclusion["outcome"]),
        (&"I1".into(), &"violated".into()),
        "{json}"
    );
    let second = &exclusion["examples"][0]["excerpt"][2];
    assert_eq!((&second["ms"], &second["ev"]), (&2.0.into(), &"acq_inv".into()), "{json}");
    assert_eq!(json["verdicts"][12]["outcome"], "not_checked", "{json}");
}

#[test]
fn a_killed_process_stops_waiting() {
    let text = "0 p1 a1 inv X limit=50\n400 p9 - crash 1\n9000 p9 - probe running\n";
    let report = check(&scenario(text), &Terms::default());
    let example = report.verdict(Invariant::Limits).unwrap().examples[0].to_string();
    assert!(example.contains("waited 350.000 ms longer"), "{example}");
}

/// Clients that all ask for the same permits, and one of them is refused without a reason.
#[test]
fn an_unbounded_search_is_undecided_and_fails() {
    let mut text = String::new();
    for client in 1..=30 {
        text += &format!("0 p{client} a{client} inv P:1/99 limit=0\n100 p{client} a{client} ok {client}\n");
    }
    text +=
        "1 p99 a99 inv P:99/99 limit=0\n99 p99 a99 taken\n1 p98 a98 inv P:40/99 limit=0\n99 p98 a98 taken\n";
    let report = check(&scenario(&text), &Terms::default());
    let taken = report.verdict(Invariant::Taken).unwrap();
    assert_eq!((taken.outcome, taken.undecided), (Outcome::Undecided, 1), "{report}");
    assert!(!report.holds() && report.violated().is_empty());
    assert_eq!(report.verdict(Invariant::Exclusion).unwrap().figure("most at once"), Some(Figure::Most(30)));
}
