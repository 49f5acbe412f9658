//! I12: a limited wait ends within its limit.

use std::time::Duration;

use super::{
    Figure, Invariant, Verdict, finding::Finding, history_index::HistoryIndex, report::millis, terms::nanos,
};

/// The time between the record of an acquire and its call. If the process is paused or stalled within this time, it
/// calls the acquire only when it runs again.
const CALL: Duration = Duration::from_millis(1);

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Limits);
    let slack = nanos(index.terms.over_limit);
    let mut worst = 0;
    for attempt in &index.attempts {
        // A try has no limit of the user. The engine limits how long a request takes.
        let Some(limit) = attempt.limit.filter(|limit| *limit > 0) else { continue };
        let called = index.latest_time(attempt.proc, attempt.invoked, nanos(CALL)) - nanos(CALL);
        let due = called.saturating_add(limit);
        let latest_time = index.latest_time(attempt.proc, due, slack);
        let returned = attempt.returned().or(attempt.killed_at).unwrap_or(index.end);
        if attempt.killed_at.is_some_and(|killed_at| killed_at <= latest_time) {
            continue;
        }
        finding.checked();
        worst = worst.max(returned.saturating_sub(due));
        if returned > latest_time {
            let over = millis(returned - due);
            finding.violated(&[attempt], &[], || {
                format!("{attempt} waited {over} longer than its limit of {}", millis(limit))
            });
        }
    }
    finding.figure("longest over the limit", Figure::Longest(worst));
    finding.done()
}
