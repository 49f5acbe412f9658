//! I11: an attempt that ends without a grant leaves nothing on the server. An attempt with a grant leaves no claim
//! besides the one that was granted.

use super::{
    Invariant, Verdict,
    attempt_history::AttemptHistory,
    finding::Finding,
    history_index::{HistoryIndex, ServerView},
    report::millis,
};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Cancels);
    for server_view in &index.server_views {
        let reported =
            server_view.holders.iter().map(|held| held.attempt).chain(server_view.waiters.iter().copied());
        for attempt in reported.filter_map(|id| index.attempt(id)) {
            let Some((ended, due)) = ended_and_due(index, attempt, server_view) else { continue };
            finding.checked();
            if server_view.at > due {
                let age = millis(server_view.at - ended);
                finding.violated(&[attempt], &[server_view.event], || {
                    format!(
                        "the server still has the attempt of {attempt} {age} after it ended without a grant"
                    )
                });
            }
        }
    }
    finding.done()
}

/// When the attempt ended, and the time from which the server must no longer report it. An attempt without a grant ends
/// with its failure. An attempt with a grant ends with the answer to its release; it is checked only if the server
/// reports it as a waiter. `None`: there is nothing to check.
fn ended_and_due(
    index: &HistoryIndex<'_>,
    attempt: &AttemptHistory<'_>,
    server_view: &ServerView<'_>,
) -> Option<(u64, u64)> {
    if let Some((at, _)) = attempt.failure {
        return Some((at, index.latest_end(attempt)));
    }
    let (at, _) = attempt.answer.filter(|_| server_view.waiters.contains(&attempt.id))?;
    Some((at, index.latest_cleanup(attempt, Some(at))))
}
