//! Good histories made at random are acquitted; one change to them is found.

use leasehold_core::Mode;
use leasehold_testkit::{
    check::{Invariant, Terms, check},
    history::{Event, History, HowHeld, Phase, What},
};
use proptest::prelude::*;

use super::tale::number;

const MS: u64 = 1_000_000;
const TTL: u64 = 1_000 * MS;

/// One hold of a made history: who, for how long, how it ends.
#[derive(Clone, Debug)]
struct Hold {
    proc: u32,
    wait: u64,
    stay: u64,
    end: End,
    shared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Released,
    Lapsed,
}

fn holds() -> impl Strategy<Value = Vec<Hold>> {
    let end = prop_oneof![4 => Just(End::Released), 1 => Just(End::Lapsed)];
    let hold = (1_u32..5, 1_u64..20, 1_u64..100, end, any::<bool>())
        .prop_map(|(proc, wait, stay, end, shared)| Hold { proc, wait, stay, end, shared });
    prop::collection::vec(hold, 3..40)
}

/// A lock that keeps every promise, served in the order of the list; neighbouring readers overlap.
fn history(holds: &[Hold]) -> Vec<Event> {
    let mut events =
        vec![made(0, 9, 0, What::Probe { phase: Phase::Start, found: [("keys".into(), 3)].into() })];
    let (mut now, mut token, mut free, mut readers_until) = (10 * MS, 0, 10 * MS, 0);
    for (at, hold) in holds.iter().enumerate() {
        let id = at as u64 + 1;
        // A writer waits for all readers before it, a reader only for the writer.
        let from = if hold.shared { free } else { free.max(readers_until) };
        let called = now.max(from);
        let granted = called + hold.wait * MS;
        let deadline = granted + TTL * 98 / 100;
        token += 1 + hold.wait;
        let mode = HowHeld(if hold.shared { Mode::Shared } else { Mode::Exclusive });
        events.push(made(called, hold.proc, id, What::AcqInv { mode, limit: Some(50 * MS), within: None }));
        events.push(made(called + MS / 2, hold.proc, id, What::Enq));
        let ok = What::AcqOk {
            token,
            lineage: "l".into(),
            deadline: Some(deadline),
            ttl: Some(TTL),
            asked: Some(granted),
            watched: true,
            fixed: true,
        };
        events.push(made(granted, hold.proc, id, ok));
        let check = |t, valid| made(t, hold.proc, id, What::Check { valid, deadline: Some(deadline) });
        events.push(check(granted + MS / 2, true));
        let end = match hold.end {
            End::Released => {
                let end = granted + hold.stay * MS;
                events.push(made(end, hold.proc, id, What::RelInv { keep: None }));
                events.push(made(end + MS / 2, hold.proc, id, What::RelOk));
                end + MS / 2
            }
            End::Lapsed => {
                let end = granted + TTL;
                events.push(check(end, false));
                events.push(made(end + MS, hold.proc, id, What::Lost { err: "lapsed".into() }));
                events.push(made(end + 2 * MS, hold.proc, id, What::RelInv { keep: None }));
                events.push(made(end + 3 * MS, hold.proc, id, What::RelNotheld));
                end + 3 * MS
            }
        };
        if hold.shared {
            readers_until = readers_until.max(end);
        } else {
            free = end;
        }
        now = granted + MS;
    }
    let end = free.max(readers_until) + 10 * MS;
    events.push(made(end, 9, 0, What::Probe { phase: Phase::Rest, found: [("keys".into(), 3)].into() }));
    events
}

fn made(t: u64, proc: u32, attempt: u64, what: What) -> Event {
    let lock = if attempt == 0 { "" } else { "l" };
    Event { run: 1, proc, seq: 0, t, task: 0, lock: lock.into(), attempt, what }
}

fn terms() -> Terms {
    let mut terms = Terms::default();
    terms.overtakes = Some(0);
    terms
}

fn verdict(events: Vec<Event>) -> leasehold_testkit::check::Report {
    check(&History::from_events(number(events)), &terms())
}

/// A change that breaks a promise, applied to the first hold that it fits after `from`; `None`: it fits nowhere.
type Mutation = fn(&mut Vec<Event>, usize) -> Option<()>;

fn find(events: &[Event], from: usize, what: impl Fn(&What) -> bool) -> Option<usize> {
    (from..events.len()).find(|&at| what(&events[at].what))
}

fn exclusive(events: &[Event], id: u64) -> bool {
    let x = |event: &Event| matches!(event.what, What::AcqInv { mode: HowHeld(Mode::Exclusive), .. });
    events.iter().any(|event| event.attempt == id && x(event))
}

const MUTATIONS: &[(&str, Invariant, Mutation)] = &[
    ("a token shifted back", Invariant::Tokens, |events, from| {
        let at = find(events, from, |what| matches!(what, What::AcqOk { token, .. } if *token > 40))?;
        exclusive(events, events[at].attempt).then_some(())?;
        let What::AcqOk { token, .. } = &mut events[at].what else { return None };
        *token -= 40;
        Some(())
    }),
    ("a token used twice", Invariant::Tokens, |events, from| {
        let first = find(events, from, |what| matches!(what, What::AcqOk { .. }))?;
        let second = find(events, first + 1, |what| matches!(what, What::AcqOk { .. }))?;
        exclusive(events, events[second].attempt).then_some(())?;
        let What::AcqOk { token: used, .. } = events[first].what else { return None };
        let What::AcqOk { token, .. } = &mut events[second].what else { return None };
        *token = used;
        Some(())
    }),
    ("a hold stretched over the next", Invariant::Exclusion, |events, from| {
        let end = find(events, from, |what| matches!(what, What::RelInv { .. }))?;
        let id = events[end].attempt;
        let next =
            events.iter().find(|event| event.attempt > id && matches!(event.what, What::AcqOk { .. }))?;
        (exclusive(events, id) || exclusive(events, next.attempt)).then_some(())?;
        // A hold that lapsed believes no longer, however late it is released.
        let until = next.t + MS / 4;
        let ok = events
            .iter()
            .position(|event| event.attempt == id && matches!(event.what, What::AcqOk { .. }))?;
        matches!(events[ok].what, What::AcqOk { deadline: Some(deadline), .. } if deadline > until)
            .then_some(())?;
        events[end].t = events[end].t.max(until);
        Some(())
    }),
    ("a deadline a drift too late", Invariant::Deadlines, |events, from| {
        let at = find(events, from, |what| matches!(what, What::AcqOk { .. }))?;
        let What::AcqOk { deadline: Some(deadline), .. } = &mut events[at].what else { return None };
        *deadline += TTL * 3 / 100;
        Some(())
    }),
    ("a check that stays true", Invariant::Loss, |events, from| {
        let at = find(events, from, |what| matches!(what, What::Check { valid: false, .. }))?;
        let What::Check { valid, .. } = &mut events[at].what else { return None };
        *valid = true;
        Some(())
    }),
    ("a loss never told", Invariant::Loss, |events, from| {
        let at = find(events, from, |what| matches!(what, What::Lost { .. }))?;
        // The next event is its release, now long after the loss.
        events.remove(at);
        events[at].t += 100 * MS;
        events[at + 1].t += 100 * MS;
        Some(())
    }),
    ("a key too many at rest", Invariant::Leaks, |events, _| {
        let What::Probe { found, .. } = &mut events.last_mut()?.what else { return None };
        *found.get_mut("keys")? += 1;
        Some(())
    }),
    ("a hold that vanished", Invariant::Releases, |events, from| {
        let at = find(events, from, |what| matches!(what, What::RelOk))?;
        events[at].what = What::RelNotheld;
        Some(())
    }),
    ("a wait over its limit", Invariant::Limits, |events, from| {
        let at = find(events, from, |what| matches!(what, What::AcqInv { .. }))?;
        let What::AcqInv { limit, .. } = &mut events[at].what else { return None };
        *limit = Some(1);
        let id = events[at].attempt;
        for event in events.iter_mut().filter(|event| event.attempt == id).skip(2) {
            event.t += 150 * MS;
        }
        Some(())
    }),
    ("a waiter overtaken", Invariant::Order, |events, from| {
        let at = find(events, from, |what| matches!(what, What::AcqOk { .. }))?;
        let What::AcqOk { token, .. } = &mut events[at].what else { return None };
        *token += 100_000;
        let id = events[at].attempt;
        events.iter().any(|event| event.attempt > id).then_some(())
    }),
    ("a lost record", Invariant::Shape, |events, from| {
        let at = find(events, from, |what| matches!(what, What::RelInv { .. }))?;
        events.remove(at);
        Some(())
    }),
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn good_histories_are_acquitted(holds in holds()) {
        let report = verdict(history(&holds));
        prop_assert!(report.holds(), "{report}");
        for invariant in [Invariant::Exclusion, Invariant::Deadlines, Invariant::Tokens, Invariant::Order] {
            prop_assert!(report.verdict(invariant).is_some_and(|verdict| verdict.checked > 0), "{invariant}");
        }
    }

    #[test]
    fn each_mutation_is_found(holds in holds(), from in 0_usize..100) {
        for (name, invariant, mutate) in MUTATIONS {
            let mut events = history(&holds);
            let from = from % events.len();
            if mutate(&mut events, from).is_none() {
                continue;
            }
            let report = verdict(events);
            prop_assert!(report.violations(*invariant) > 0, "{name} was not found:\n{report}");
        }
    }
}

/// Every mutation fits somewhere: none is tested by never being applied.
#[test]
fn each_mutation_can_be_applied() {
    let hold = |end, shared| Hold { proc: 1, wait: 19, stay: 50, end, shared };
    let holds = [
        hold(End::Released, false),
        hold(End::Lapsed, false),
        hold(End::Released, true),
        hold(End::Released, false),
        hold(End::Released, false),
    ];
    for (name, invariant, mutate) in MUTATIONS {
        let mut events = history(&holds);
        let applied = (0..events.len()).any(|from| mutate(&mut events, from).is_some());
        assert!(applied, "{name} fits nowhere");
        let report = verdict(events);
        assert!(report.violations(*invariant) > 0, "{name} was not found:\n{report}");
    }
}
