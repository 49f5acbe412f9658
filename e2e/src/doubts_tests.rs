use leasehold_core::Mode;
use leasehold_testkit::history::HowHeld;

use super::*;

const KIND: &str = "started anew";
/// The end of every lease here, unless it is renewed.
const END: u64 = 1000;

fn event(t: u64, proc: u32, attempt: AttemptId, what: What) -> Event {
    Event { run: 1, proc, seq: t, t, task: 1, lock: "m1".to_owned(), attempt, what }
}

/// The server restarts.
fn anew(t: u64) -> Event {
    event(t, 0, 0, What::NemesisBegin { kind: KIND.to_owned() })
}

/// An attempt begins at `t` and is granted at once.
fn granted(t: u64, proc: u32, attempt: AttemptId, deadline: u64) -> [Event; 2] {
    let mode = HowHeld(Mode::Exclusive);
    let begun = What::AcqInv { mode, limit: None, within: None, retries: false };
    let (token, lineage, ttl) = (1, String::new(), Some(END));
    let granted = What::AcqOk {
        token,
        lineage,
        deadline: Some(deadline),
        ttl,
        asked: None,
        watched: true,
        fixed: false,
    };
    [event(t, proc, attempt, begun), event(t + 1, proc, attempt, granted)]
}

/// `check()` succeeds, or fails.
fn check(t: u64, proc: u32, attempt: AttemptId, valid: bool) -> Event {
    let deadline = if valid { t + END } else { t };
    event(t, proc, attempt, What::Check { valid, deadline: Some(deadline) })
}

fn lost(t: u64, proc: u32, attempt: AttemptId) -> Event {
    event(t, proc, attempt, What::Lost { err: "Lapsed".to_owned() })
}

/// The times of the denials that had a reason, and the attempts that were granted a hold in doubt with a reason.
fn explained(events: impl IntoIterator<Item = Event>) -> (Vec<u64>, Vec<AttemptId>) {
    let mut events: Vec<_> = events.into_iter().collect();
    events.sort_by_key(|event| event.t);
    let Doubts { denials, arrivals } = Doubts::explained(&events, &[KIND]);
    (denials.into_iter().map(|at| events[at].t).collect(), arrivals.into_iter().collect())
}

const NONE: [u64; 0] = [];

#[test]
fn a_restart_explains_one_doubt_of_each_hold_of_a_process() {
    let story = |anews: &[u64]| {
        let holds = [(1, 7), (1, 8), (2, 9)].into_iter().flat_map(|(proc, attempt)| {
            granted(1, proc, attempt, END).into_iter().chain([check(10, proc, attempt, true)])
        });
        let no = [(30, 1, 7), (31, 1, 7), (32, 1, 8), (50, 2, 9)];
        let yes = [(40, 1, 7), (41, 1, 8), (60, 2, 9)];
        let checks = no.map(|at| (at, false)).into_iter().chain(yes.map(|at| (at, true)));
        let checks = checks.map(|((t, proc, attempt), valid)| check(t, proc, attempt, valid));
        explained(holds.chain(checks).chain(anews.iter().map(|t| anew(*t)))).0
    };
    assert_eq!(story(&[20]), [30, 31, 32, 50]);
    assert_eq!(story(&[]), NONE, "no reason");
    assert_eq!(story(&[35]), [50], "for the other process alone");
    assert_eq!(story(&[61]), NONE, "it came later");
}

#[test]
fn a_second_doubt_needs_a_second_restart() {
    for (anews, expected) in [(vec![20], vec![30]), (vec![20, 21], vec![30]), (vec![20, 45], vec![30, 50])] {
        let checks = [(10, true), (25, true), (30, false), (40, true), (50, false), (60, true)];
        let checks = checks.into_iter().map(|(t, valid)| check(t, 1, 7, valid));
        let events = granted(1, 1, 7, END).into_iter().chain(checks).chain(anews.iter().map(|t| anew(*t)));
        assert_eq!(explained(events).0, expected, "{anews:?}");
    }
}

#[test]
fn an_expired_lease_is_not_a_doubt() {
    let denied = |t| {
        let hold = granted(2, 1, 7, END).into_iter().chain([anew(3)]);
        explained(hold.chain([check(t, 1, 7, false), lost(END + 200, 1, 7)])).0
    };
    assert_eq!(denied(END - 10), [END - 10], "in doubt until it was over");
    assert_eq!(denied(END), NONE, "it was over, and should have been told so");
}

#[test]
fn a_hold_may_be_in_doubt_when_it_is_granted() {
    let arrivals = |anews: &[u64]| {
        let in_doubt = |t, attempt| granted(t, 1, attempt, t);
        let holds = in_doubt(30, 7).into_iter().chain(in_doubt(40, 8));
        explained(holds.chain(anews.iter().map(|t| anew(*t)))).1
    };
    assert_eq!(arrivals(&[]), NONE);
    assert_eq!(arrivals(&[20]), [7], "by the second the doubt was over");
    assert_eq!(arrivals(&[20, 35]), [7, 8]);
}
