//! I10: a release reports the truth.

use leasehold_core::Mode;

use super::{
    Invariant, Verdict,
    attempt_history::{AttemptHistory, Outcome},
    finding::Finding,
    history_index::HistoryIndex,
    hold_counts::can_conflict,
    terms::nanos,
};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Releases);
    for attempts in index.by_lock() {
        for attempt in &attempts {
            wrongly_not_held(attempt, index.terms.lossy, &mut finding);
        }
        wrongly_freed(index, &attempts, &mut finding);
    }
    still_held(index, &mut finding);
    finding.done()
}

/// Reports a release that was answered "was not held" before the end of the lease, although no loss was reported: then
/// the hold ended early, and the user was not told.
fn wrongly_not_held<'h>(attempt: &AttemptHistory<'h>, lossy: bool, finding: &mut Finding<'_, 'h>) {
    let Some((at, outcome)) = attempt.answer else { return };
    finding.checked();
    let within = attempt.deadline().is_none_or(|deadline| at < deadline);
    if outcome == Outcome::NotHeld && within && attempt.lost.is_none() && !lossy {
        finding.violated(&[attempt], &[], || {
            format!("the release of {attempt} found nothing, although its lease had not ended and no loss was reported")
        });
    }
}

/// Reports a release that was answered "freed" although a conflicting hold began between the deadline of the hold and
/// the release: then the hold had ended long before the release.
fn wrongly_freed<'h>(
    index: &HistoryIndex<'h>,
    attempts: &[&AttemptHistory<'h>],
    finding: &mut Finding<'_, 'h>,
) {
    let outermost =
        attempts.iter().filter(|attempt| attempt.outer_attempt.is_none() && attempt.mode.limit().is_none());
    let mut active_holds: Vec<_> =
        outermost.filter_map(|attempt| Some((attempt.active_hold()?, *attempt))).collect();
    active_holds.retain(|(active_hold, _)| !active_hold.is_empty());
    active_holds.sort_by_key(|(active_hold, _)| active_hold.start);
    let exclusive: Vec<_> =
        active_holds.iter().filter(|(_, attempt)| attempt.mode == Mode::Exclusive).cloned().collect();
    for attempt in attempts {
        let (Some(deadline), Some(release)) = (attempt.deadline(), attempt.release) else { continue };
        let freed = attempt.answer.is_some_and(|(_, outcome)| outcome == Outcome::Freed);
        if !freed || attempt.mode.limit().is_some() || index.may_be_forgotten_since(attempt).is_some() {
            continue;
        }
        let others = if can_conflict(attempt.mode, Mode::Shared) { &active_holds } else { &exclusive };
        let next = others.partition_point(|(active_hold, _)| active_hold.start < deadline);
        if let Some((_, next)) = others.get(next).filter(|(active_hold, _)| active_hold.start < release.at) {
            finding.violated(&[attempt, next], &[], || {
                format!(
                    "the release of {attempt} answered freed, but it had lapsed and {next} was granted before"
                )
            });
        }
    }
}

/// Reports a release that was answered "freed" or "was not held" although the server still has the hold. Three cases
/// are not reported: another claim of the same attempt, which is cleaned up like a cancelled claim; a hold with a
/// minimum hold time; and, after "was not held", a hold whose loss the client had reported.
fn still_held<'h>(index: &HistoryIndex<'h>, finding: &mut Finding<'_, 'h>) {
    for server_view in &index.server_views {
        // The server may report a state that is older than an answer which it has given already.
        let answered_by = server_view.at.saturating_sub(nanos(index.terms.stale));
        for held in server_view.holders {
            let Some(attempt) = index.attempt(held.attempt) else { continue };
            finding.checked();
            let has_min_hold = attempt.release.is_some_and(|release| release.min_hold.is_some());
            let is_own = held.token.is_none() || held.token == attempt.grant.map(|grant| grant.token);
            let answered =
                attempt.answer.filter(|(at, _)| *at <= answered_by).is_some_and(
                    |(_, outcome)| match outcome {
                        Outcome::Freed => true,
                        Outcome::NotHeld => attempt.lost.is_none(),
                        Outcome::Unknown => false,
                    },
                );
            if answered && is_own && !has_min_hold {
                finding.violated(&[attempt], &[server_view.event], || {
                    format!("{attempt} was released, and the server still has it")
                });
            }
        }
    }
}
