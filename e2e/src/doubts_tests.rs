use leasehold_core::Mode;
use leasehold_testkit::history::RecordedMode;

use super::*;

const KIND: &str = "restarted";
/// The time at which every lease in these tests ends, unless it is renewed.
const END: u64 = 1000;

fn event(t: u64, proc: u32, attempt: AttemptId, what: What) -> Event {
    Event { run: 1, proc, seq: t, t, task: 1, lock: "m1".to_owned(), attempt, what }
}

/// The server restarts.
fn restart(t: u64) -> Event {
    event(t, 0, 0, What::NemesisBegin { kind: KIND.to_owned() })
}

/// An attempt begins at `t` and is granted at once.
fn granted(t: u64, proc: u32, attempt: AttemptId, deadline: u64) -> [Event; 2] {
    let mode = RecordedMode(Mode::Exclusive);
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

/// The times of the explained failed checks, and the attempts with an explained doubt at the grant.
fn explained(events: impl IntoIterator<Item = Event>) -> (Vec<u64>, Vec<AttemptId>) {
    let mut events: Vec<_> = events.into_iter().collect();
    events.sort_by_key(|event| event.t);
    let Doubts { failed_checks, doubtful_grants } = Doubts::explained(&events, &[KIND]);
    (failed_checks.into_iter().map(|index| events[index].t).collect(), doubtful_grants.into_iter().collect())
}

const NONE: [u64; 0] = [];

#[test]
fn a_restart_explains_one_doubt_of_each_hold_of_a_process() {
    let failed_checks = |restarts: &[u64]| {
        let holds = [(1, 7), (1, 8), (2, 9)].into_iter().flat_map(|(proc, attempt)| {
            granted(1, proc, attempt, END).into_iter().chain([check(10, proc, attempt, true)])
        });
        let invalid = [(30, 1, 7), (31, 1, 7), (32, 1, 8), (50, 2, 9)];
        let valid = [(40, 1, 7), (41, 1, 8), (60, 2, 9)];
        let checks = invalid.map(|index| (index, false)).into_iter().chain(valid.map(|index| (index, true)));
        let checks = checks.map(|((t, proc, attempt), valid)| check(t, proc, attempt, valid));
        explained(holds.chain(checks).chain(restarts.iter().map(|t| restart(*t)))).0
    };
    assert_eq!(failed_checks(&[20]), [30, 31, 32, 50]);
    assert_eq!(failed_checks(&[]), NONE, "no fault explains it");
    assert_eq!(failed_checks(&[35]), [50], "it explains only the doubt of the other process");
    assert_eq!(failed_checks(&[61]), NONE, "the restart was later");
}

#[test]
fn a_second_doubt_needs_a_second_restart() {
    for (restarts, expected) in [(vec![20], vec![30]), (vec![20, 21], vec![30]), (vec![20, 45], vec![30, 50])]
    {
        let checks = [(10, true), (25, true), (30, false), (40, true), (50, false), (60, true)];
        let checks = checks.into_iter().map(|(t, valid)| check(t, 1, 7, valid));
        let events =
            granted(1, 1, 7, END).into_iter().chain(checks).chain(restarts.iter().map(|t| restart(*t)));
        assert_eq!(explained(events).0, expected, "{restarts:?}");
    }
}

#[test]
fn an_expired_lease_is_not_a_doubt() {
    let denied = |t| {
        let hold = granted(2, 1, 7, END).into_iter().chain([restart(3)]);
        explained(hold.chain([check(t, 1, 7, false), lost(END + 200, 1, 7)])).0
    };
    assert_eq!(denied(END - 10), [END - 10], "in doubt until the end of the lease");
    assert_eq!(denied(END), NONE, "the lease had ended, which must be reported as a loss");
}

#[test]
fn a_hold_may_be_in_doubt_when_it_is_granted() {
    let doubtful_grants = |restarts: &[u64]| {
        let in_doubt = |t, attempt| granted(t, 1, attempt, t);
        let holds = in_doubt(30, 7).into_iter().chain(in_doubt(40, 8));
        explained(holds.chain(restarts.iter().map(|t| restart(*t)))).1
    };
    assert_eq!(doubtful_grants(&[]), NONE);
    assert_eq!(doubtful_grants(&[20]), [7], "the doubt ended before the second grant");
    assert_eq!(doubtful_grants(&[20, 35]), [7, 8]);
}
