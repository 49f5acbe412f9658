//! I2: the deadline that a user gets is not later than the acknowledged request allows, and not later than the expiry
//! on the server.

use super::{
    Invariant, Verdict,
    attempt_history::AttemptHistory,
    finding::Finding,
    history_index::{HistoryIndex, ServerView},
    report::millis,
    terms::nanos,
};
use crate::history::Held;

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Deadlines);
    for attempt in &index.attempts {
        compare_with_request(index, attempt, &mut finding);
    }
    if !index.terms.lossy {
        compare_with_server(index, &mut finding);
    }
    finding.done()
}

/// Compares each deadline with the time at which the acknowledged request was sent.
fn compare_with_request<'h>(
    index: &HistoryIndex<'h>,
    attempt: &AttemptHistory<'h>,
    finding: &mut Finding<'_, 'h>,
) {
    let Some(grant) = attempt.grant else { return };
    let terms = index.terms;
    // A waiting attempt sends several requests, and its first request gets no grant. The only thing known of the
    // request that got the grant is that it was sent before the answer. A single try sends one request soon after the
    // call of the acquire, unless it has to connect to the server first.
    let soon = nanos(terms.report_limit);
    let connected = !index.storms.iter().any(|&(from, until)| from < grant.at && until > attempt.invoked);
    let sent_by =
        (attempt.tries_once() && connected).then(|| index.latest_time(attempt.proc, attempt.invoked, soon));
    let sent = grant.sent_at.or(sent_by).unwrap_or(grant.at).min(grant.at);
    let first = (sent, grant.deadline, grant.ttl, None);
    let renewals = attempt.renewals.iter().map(|renewal| {
        (renewal.sent_at.unwrap_or(renewal.at), Some(renewal.deadline), renewal.ttl, Some(renewal.event))
    });
    for (sent, deadline, ttl, event) in std::iter::once(first).chain(renewals) {
        let (Some(deadline), Some(ttl)) = (deadline, ttl) else { continue };
        finding.checked();
        let honest = sent
            .saturating_add(terms.shortest(ttl))
            .saturating_sub(nanos(terms.margin))
            .saturating_add(nanos(terms.reading));
        if deadline > honest {
            let over = millis(deadline - honest);
            finding.violated(&[attempt], event.as_slice(), || {
                format!(
                    "the deadline of {attempt} is {over} later than a lease of {} requested at {sent} allows",
                    millis(ttl)
                )
            });
        }
    }
}

/// Compares each hold that was valid when the server was asked for its locks with the answer of the server. The hold
/// must exist on the server, and its deadline must not be later than its expiry on the server.
fn compare_with_server<'h>(index: &HistoryIndex<'h>, finding: &mut Finding<'_, 'h>) {
    let mut next_truth = 0;
    let mut server_views: Vec<_> = index.server_views.iter().collect();
    server_views.sort_by_key(|server_view| (server_view.lock, server_view.at));
    for (lock, attempts) in &index.locks {
        let mut begins: Vec<_> = attempts
            .iter()
            .filter_map(|&attempt| Some((index.attempts[attempt].active_hold()?, attempt)))
            .collect();
        begins.sort_by_key(|(active_hold, _)| active_hold.start);
        let (mut begins, mut active) = (begins.into_iter().peekable(), Vec::new());
        while server_views.get(next_truth).is_some_and(|server_view| server_view.lock < *lock) {
            next_truth += 1;
        }
        while let Some(server_view) =
            server_views.get(next_truth).filter(|server_view| server_view.lock == *lock)
        {
            next_truth += 1;
            while let Some(next) = begins.next_if(|(active_hold, _)| active_hold.start <= server_view.at) {
                active.push(next);
            }
            active.retain(|(active_hold, _)| active_hold.end > server_view.at);
            for (active_hold, attempt) in &active {
                compare(index, server_view, &index.attempts[*attempt], active_hold.end, finding);
            }
        }
    }
}

/// Compares a hold that is valid until `end` with a state that the server reported during the hold.
fn compare<'h>(
    index: &HistoryIndex<'h>,
    server_view: &ServerView<'h>,
    attempt: &AttemptHistory<'h>,
    end: u64,
    finding: &mut Finding<'_, 'h>,
) {
    let Some(held) = holder(server_view, attempt) else {
        if end > server_view.until {
            finding.checked();
            let left = millis(end - server_view.until);
            finding.violated(&[attempt], &[server_view.event], || {
                format!("{attempt} is valid for {left} more, but the server does not have it")
            });
        }
        return;
    };
    // A hold that is released while the server is asked may appear on the server as a minimum hold.
    if attempt.release.is_some_and(|release| release.at <= server_view.until) {
        return;
    }
    let (Some(expires), Some(deadline)) = (held.expires, attempt.deadline_at(server_view.at)) else { return };
    finding.checked();
    if deadline > expires.saturating_add(nanos(index.terms.precision)) {
        let over = millis(deadline - expires);
        finding.violated(&[attempt], &[server_view.event], || {
            format!("the deadline of {attempt} is {over} later than its expiry on the server")
        });
    }
}

/// The holder on the server that is the hold of this attempt. It is found by the attempt id, otherwise by its first
/// token: the largest one that is not larger than the token of the attempt; otherwise it is a holder of which the
/// server tells neither.
fn holder<'t>(server_view: &'t ServerView<'_>, attempt: &AttemptHistory<'_>) -> Option<&'t Held> {
    let is_own = |held: &&Held| held.attempt == attempt.id || attempt.outer_attempt == Some(held.attempt);
    let token = attempt.grant.map_or(0, |grant| grant.token);
    let earlier_blocks =
        server_view.holders.iter().filter(|held| held.token.is_some_and(|first| first <= token));
    let unknown = || server_view.holders.iter().find(|held| held.attempt == 0 && held.token.is_none());
    server_view
        .holders
        .iter()
        .find(is_own)
        .or_else(|| earlier_blocks.max_by_key(|held| held.token))
        .or_else(unknown)
}
