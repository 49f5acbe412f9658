//! I9: from the deadline on, `check` always returns false, and `lost` reports the loss in time.

use super::{
    Invariant, Terms, Verdict,
    attempt_history::{AttemptHistory, CheckCall},
    finding::Finding,
    history_index::HistoryIndex,
    report::millis,
    terms::nanos,
};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Loss);
    for attempt in index.attempts.iter().filter(|attempt| attempt.grant.is_some()) {
        checks(attempt, index.terms, &mut finding);
        reported(index, attempt, &mut finding);
    }
    finding.done()
}

/// Checks the answers of `check`.
fn checks<'h>(attempt: &AttemptHistory<'h>, terms: &Terms, finding: &mut Finding<'_, 'h>) {
    let mut first_invalid: Option<&CheckCall> = None;
    for check in &attempt.checks {
        finding.checked();
        if !check.valid {
            first_invalid = first_invalid.or(Some(check));
            continue;
        }
        let event = &[check.event];
        // The deadline is read after the check, so it is never earlier than the deadline at the check.
        if let Some(deadline) = check.deadline.or_else(|| attempt.deadline_at(check.at))
            && check.at >= deadline.saturating_add(nanos(terms.reading))
        {
            let late = millis(check.at - deadline);
            finding.violated(&[attempt], event, || {
                format!("{attempt} was reported valid {late} after its deadline")
            });
        } else if let Some(first_invalid) = first_invalid {
            finding.violated(&[attempt], &[first_invalid.event, check.event], || {
                format!("{attempt} was reported lost, then valid")
            });
        } else if let Some(lost) = attempt.lost.filter(|lost| *lost < check.at) {
            let late = millis(check.at - lost);
            finding.violated(&[attempt], event, || {
                format!("{attempt} was reported valid {late} after its loss was reported")
            });
        }
    }
}

/// Checks that the loss of a hold was reported in time.
fn reported<'h>(index: &HistoryIndex<'h>, attempt: &AttemptHistory<'h>, finding: &mut Finding<'_, 'h>) {
    let Some(grant) = attempt.grant.filter(|grant| grant.watched) else { return };
    // The last deadline is known only if the lease is never renewed. Otherwise the first call of `check` that returned
    // `false` marks the loss.
    let fixed = grant.deadline.filter(|_| grant.fixed);
    let denied = attempt.checks.iter().find(|check| !check.valid).map(|check| check.at);
    let Some(due) = fixed.into_iter().chain(denied).min() else { return };
    let slack = nanos(index.terms.report_limit);
    let due = due.max(grant.at);
    let latest_time = index.latest_time(attempt.proc, due, slack);
    let gave_up = attempt.release.map(|release| release.at).into_iter().chain(attempt.killed_at).min();
    if gave_up.is_some_and(|gave_up| gave_up <= latest_time) || index.end < latest_time {
        return;
    }
    finding.checked();
    if attempt.lost.is_none_or(|lost| lost > latest_time) {
        let late =
            attempt.lost.map_or_else(|| "never".into(), |lost| format!("{} later", millis(lost - due)));
        finding.violated(&[attempt], &[], || format!("{attempt} was lost at {due}, reported {late}"));
    }
}
