//! I11: an attempt that ends without a grant leaves nothing on the server. An attempt with a grant leaves no other
//! claim.

use super::{
    Invariant, Verdict,
    attempt_history::AttemptHistory,
    finding::Finding,
    history_index::{HistoryIndex, Truth},
    report::millis,
};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Cancels);
    for truth in &index.truths {
        let reported = truth.holders.iter().map(|held| held.attempt).chain(truth.waiters.iter().copied());
        for attempt in reported.filter_map(|id| index.attempt(id)) {
            let Some((ended, due)) = ended_and_due(index, attempt, truth) else { continue };
            finding.checked();
            if truth.at > due {
                let age = millis(truth.at - ended);
                finding.violated(&[attempt], &[truth.event], || {
                    format!(
                        "the server still has the attempt of {attempt} {age} after it ended without a grant"
                    )
                });
            }
        }
    }
    finding.done()
}

/// When the attempt or its hold ended, and by when the server must have nothing of the attempt. `None`: the attempt has
/// not ended without a grant.
fn ended_and_due(
    index: &HistoryIndex<'_>,
    attempt: &AttemptHistory<'_>,
    truth: &Truth<'_>,
) -> Option<(u64, u64)> {
    if let Some((at, _)) = attempt.failure {
        return Some((at, index.gone_by(attempt)));
    }
    let (at, _) = attempt.answer.filter(|_| truth.waiters.contains(&attempt.id))?;
    Some((at, index.cleaned_by(attempt, Some(at))))
}
