//! I4: tokens are unique and grow in the order of grants, per lock and lineage.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use leasehold_core::{KnownMode, Mode};

use super::{
    Figure, Invariant, Terms, Verdict, attempt_history::AttemptHistory, finding::Finding,
    history_index::HistoryIndex,
};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Tokens);
    for attempts in index.by_lock() {
        let mut lineages: BTreeMap<&str, Vec<Hold<'_, '_>>> = BTreeMap::new();
        for attempt in attempts {
            let (Some(grant), Some(active_hold)) = (attempt.grant, attempt.active_hold()) else { continue };
            if let Some(outer) = attempt.outer_attempt.and_then(|id| index.attempt(id)) {
                check_reentry(attempt, outer, &mut finding);
                continue;
            }
            let hold = Hold { attempt, token: grant.token, at: grant.at, was_valid: !active_hold.is_empty() };
            lineages.entry(grant.lineage).or_default().push(hold);
        }
        for holds in lineages.values_mut() {
            check_unique(holds, &mut finding);
            check_growing(holds, index.terms, &mut finding);
        }
    }
    let lineages = index.attempts.iter().filter_map(|attempt| attempt.grant).map(|grant| grant.lineage);
    finding.figure("lineages", Figure::Most(lineages.collect::<BTreeSet<_>>().len() as u64));
    finding.done()
}

/// A granted hold that is no re-entry.
struct Hold<'b, 'h> {
    attempt: &'b AttemptHistory<'h>,
    token: u64,
    at: u64,
    /// Whether the acquire returned before the deadline of its grant. If it returned later, its return implies no
    /// order: its grant may be older than grants whose acquires returned before.
    was_valid: bool,
}

/// Checks that a re-entry has the token of the outer hold.
fn check_reentry<'h>(
    attempt: &AttemptHistory<'h>,
    outer: &AttemptHistory<'h>,
    finding: &mut Finding<'_, 'h>,
) {
    finding.checked();
    let has_same_token =
        |(a, b): (super::attempt_history::Granted<'_>, super::attempt_history::Granted<'_>)| {
            (a.token, a.lineage) == (b.token, b.lineage)
        };
    if !attempt.grant.zip(outer.grant).is_some_and(has_same_token) {
        finding.violated(&[outer, attempt], &[], || {
            format!("{attempt} entered {outer} again with another token")
        });
    }
}

/// Checks that no two holds have the same token. Two shared holds are allowed to have the same token: the tasks of one
/// process share a shared hold and its token.
fn check_unique<'h>(holds: &[Hold<'_, 'h>], finding: &mut Finding<'_, 'h>) {
    let mut seen: HashMap<u64, &AttemptHistory<'h>> = HashMap::new();
    for hold in holds {
        finding.checked();
        if let Some(earlier) = seen.insert(hold.token, hold.attempt)
            && (earlier.mode, hold.attempt.mode) != (Mode::Shared, Mode::Shared)
        {
            finding.violated(&[earlier, hold.attempt], &[], || {
                format!("{earlier} and {} share a token", hold.attempt)
            });
        }
    }
}

/// Checks that an exclusive grant has a larger token than all earlier grants, and a shared grant a larger token than
/// all earlier exclusive grants. The order of the tokens of permits has no meaning.
fn check_growing<'h>(holds: &mut [Hold<'_, 'h>], terms: &Terms, finding: &mut Finding<'_, 'h>) {
    holds.sort_by_key(|hold| hold.at);
    let (by_grant, mut by_start): (&[Hold<'_, 'h>], Vec<&Hold<'_, 'h>>) = (holds, holds.iter().collect());
    // In lossy runs, a grant counts as earlier than another only if its acquire returned before both the call and the
    // grant of the other acquire. The grant can be older than the call: a claim that the process made for an earlier
    // request may serve a later request.
    let start = |hold: &Hold<'_, 'h>| match (
        terms.lossy,
        hold.attempt.grant.and_then(|grant| grant.deadline.zip(grant.ttl)),
    ) {
        (false, _) => hold.at,
        (true, None) => hold.attempt.invoked,
        (true, Some((deadline, ttl))) => hold.attempt.invoked.min(deadline.saturating_sub(ttl)),
    };
    by_start.sort_by_key(|hold| start(hold));
    let mut earlier = by_grant.iter().filter(|hold| hold.was_valid).peekable();
    let (mut last_writer, mut last_any): (Option<&Hold<'_, 'h>>, Option<&Hold<'_, 'h>>) = (None, None);
    for hold in by_start.into_iter().filter(|hold| hold.was_valid) {
        while let Some(earlier_hold) = earlier.next_if(|earlier_hold| earlier_hold.at < start(hold)) {
            let larger =
                |last: Option<&Hold<'_, 'h>>| last.is_none_or(|last| earlier_hold.token > last.token);
            match earlier_hold.attempt.mode {
                Mode::Permits { .. } => continue,
                Mode::Exclusive if larger(last_writer) => last_writer = Some(earlier_hold),
                _ => {}
            }
            if larger(last_any) {
                last_any = Some(earlier_hold);
            }
        }
        let largest = match hold.attempt.mode.known() {
            KnownMode::Exclusive => last_any,
            KnownMode::Shared => last_writer,
            KnownMode::Permits { .. } => None,
        };
        finding.checked();
        if let Some(largest) = largest.filter(|largest| largest.token >= hold.token) {
            finding.violated(&[largest.attempt, hold.attempt], &[], || {
                format!("{} was granted after {}", hold.attempt, largest.attempt)
            });
        }
    }
}
