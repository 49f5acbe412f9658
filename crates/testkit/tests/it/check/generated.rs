//! Generated histories that keep every invariant pass. One change violates exactly the invariants that it breaks.

use leasehold_testkit::{
    check::{Invariant, Outcome, check},
    history::{Event, History},
};

use super::{
    changes::CHANGES,
    model::{self, Faults, MS},
    rng::Rng,
    scenario::{Scenario, invariant, number, scenarios},
};

/// The number of generated histories of each kind.
const EACH: usize = 10;

/// Events that are added to a lock of a generated history when the lock is at rest.
const EPISODES: &str = include_str!("scenarios/episodes.txt");

#[track_caller]
fn judge(events: Vec<Event>, expected: &[Invariant], what: &str) {
    let mut terms = model::terms();
    // The order of grants is known by the tokens, so it is judged only if the tokens are correct.
    terms.overtakes = terms.overtakes.filter(|_| !expected.contains(&Invariant::Tokens));
    let report = check(&History::from_events(events), &terms);
    assert_eq!(report.violated(), expected, "{what}\n{report}");
}

#[test]
fn correct_histories_pass() {
    for (seed, faults) in (0..40).flat_map(|seed| [(seed, Faults::Absent), (seed, Faults::Present)]) {
        let report = check(&History::from_events(model::events(seed, faults)), &model::terms());
        for verdict in &report.verdicts {
            // The model has no elections and no work that is done one time.
            let is_absent = matches!(verdict.invariant, Invariant::Elections | Invariant::Results);
            let expected = if is_absent { Outcome::NotChecked } else { Outcome::Holds };
            assert_eq!(verdict.outcome, expected, "seed {seed}\n{report}");
        }
    }
}

#[test]
fn each_change_violates_its_invariants() {
    for (ids, what, change) in CHANGES {
        let expected: Vec<_> = ids.split(' ').map(invariant).collect();
        let changed = (0..).filter_map(|seed| {
            let mut events = model::events(seed, Faults::Absent);
            change(&mut events, &mut Rng::new(seed))?;
            Some((seed, events))
        });
        for (seed, events) in changed.take(EACH) {
            judge(events, &expected, &format!("{what}, seed {seed}"));
        }
    }
}

#[test]
fn each_episode_violates_its_invariants() {
    for Scenario { title, violates, history, .. } in scenarios(EPISODES) {
        for seed in 0..EACH as u64 {
            let events = with_episode(model::events(seed, Faults::Present), history.events());
            judge(events, &violates, &format!("{title}, seed {seed}"));
        }
    }
}

/// Inserts the episode when the server is at rest, before the last probe.
fn with_episode(mut events: Vec<Event>, episode: &[Event]) -> Vec<Event> {
    let rest = events.len() - 2;
    let begin = events[rest].t;
    events[rest..].iter_mut().for_each(|event| event.t += 1_000 * MS);
    let moved = episode.iter().cloned().map(|event| Event {
        t: event.t + begin,
        attempt: if event.attempt == 0 { 0 } else { event.attempt + 10_000 },
        ..event
    });
    events.splice(rest..rest, moved);
    number(events)
}
