//! I9: `check` is false from the deadline on and stays false, and `lost` reports the loss in time.

use super::{
    Invariant, Terms, Verdict,
    finding::Finding,
    history_index::HistoryIndex,
    life::{Checked, Life},
    report::millis,
    terms::nanos,
};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Loss);
    for life in index.lives.iter().filter(|life| life.grant.is_some()) {
        checks(life, index.terms, &mut finding);
        reported(index, life, &mut finding);
    }
    finding.done()
}

fn checks<'h>(life: &Life<'h>, terms: &Terms, finding: &mut Finding<'_, 'h>) {
    let mut gone: Option<&Checked> = None;
    for check in &life.checks {
        finding.checked();
        if !check.valid {
            gone = gone.or(Some(check));
            continue;
        }
        let event = &[check.event];
        // The deadline is read after the check, so it is never earlier than the deadline at the check.
        if let Some(deadline) = check.deadline.or_else(|| life.deadline_at(check.at))
            && check.at >= deadline.saturating_add(nanos(terms.reading))
        {
            let late = millis(check.at - deadline);
            finding
                .violated(&[life], event, || format!("{life} was reported valid {late} after its deadline"));
        } else if let Some(gone) = gone {
            finding.violated(&[life], &[gone.event, check.event], || {
                format!("{life} was reported lost, then valid")
            });
        } else if let Some(lost) = life.lost.filter(|lost| *lost < check.at) {
            let late = millis(check.at - lost);
            finding.violated(&[life], event, || {
                format!("{life} was reported valid {late} after its loss was reported")
            });
        }
    }
}

fn reported<'h>(index: &HistoryIndex<'h>, life: &Life<'h>, finding: &mut Finding<'_, 'h>) {
    let Some(grant) = life.grant.filter(|grant| grant.watched) else { return };
    // The last deadline is known only without renewals. Otherwise the first `false` marks the loss.
    let fixed = grant.deadline.filter(|_| grant.fixed);
    let denied = life.checks.iter().find(|check| !check.valid).map(|check| check.at);
    let Some(due) = fixed.into_iter().chain(denied).min() else { return };
    let slack = nanos(index.terms.told);
    let due = due.max(grant.at);
    let latest = index.latest(life.proc, due, slack);
    let left = life.release.map(|release| release.at).into_iter().chain(life.crashed).min();
    if left.is_some_and(|left| left <= latest) || index.end < latest {
        return;
    }
    finding.checked();
    if life.lost.is_none_or(|lost| lost > latest) {
        let late = life.lost.map_or_else(|| "never".into(), |lost| format!("{} later", millis(lost - due)));
        finding.violated(&[life], &[], || format!("{life} was lost at {due}, reported {late}"));
    }
}
