//! The size of a history, which says how much its verdicts are worth.

use super::{
    Figure,
    attempt_history::{AttemptHistory, Failure},
    history_index::HistoryIndex,
    report::Figures,
};

/// The figures of the whole history.
pub(super) fn figures(index: &HistoryIndex<'_>) -> Figures {
    let count = |what: &dyn Fn(&AttemptHistory<'_>) -> bool| {
        Figure::Sum(index.attempts.iter().filter(|attempt| what(attempt)).count() as u64)
    };
    let failed = |how| count(&|attempt| attempt.failure.is_some_and(|(_, failure)| failure == how));
    let releases = index.attempts.iter().filter(|attempt| attempt.release.is_some()).count();
    let waits = index.attempts.iter().filter_map(|attempt| Some(attempt.grant?.at - attempt.invoked));
    let stops: usize = index.stops.values().map(Vec::len).sum();
    vec![
        ("operations", Figure::Sum((index.attempts.len() + releases) as u64)),
        ("grants", count(&|attempt| attempt.grant.is_some())),
        ("hand-overs", Figure::Sum(index.by_lock().map(|attempts| hand_overs(&attempts)).sum())),
        ("taken", failed(Failure::Taken)),
        ("unknown", failed(Failure::Unknown)),
        ("cancelled", failed(Failure::Cancelled)),
        ("lost", count(&|attempt| attempt.lost.is_some())),
        ("longest wait", Figure::Longest(waits.max().unwrap_or(0))),
        ("disturbances", Figure::Sum(index.disturbances)),
        ("stops", Figure::Sum(stops as u64)),
        ("stalls", Figure::Sum(index.stalls.count() as u64)),
        ("crashes", Figure::Sum(index.crashes.len() as u64)),
    ]
}

/// The number of grants to attempts that already waited when the previous hold was released.
fn hand_overs(attempts: &[&AttemptHistory<'_>]) -> u64 {
    let mut granted: Vec<_> =
        attempts.iter().filter_map(|attempt| Some((attempt.grant?.at, *attempt))).collect();
    granted.sort_by_key(|(at, _)| *at);
    let is_hand_over = |pair: &&[(u64, &AttemptHistory<'_>)]| {
        let [(_, before), (at, attempt)] = pair else { return false };
        let waited = |release: u64| !attempt.is_try() && attempt.invoked < release && release < *at;
        before.release.is_some_and(|release| waited(release.at))
    };
    granted.windows(2).filter(is_hand_over).count() as u64
}
