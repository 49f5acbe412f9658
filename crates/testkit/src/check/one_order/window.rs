//! What the history says about each hold: the earliest and latest begin, and the earliest and latest end.

use std::{collections::HashMap, ops::RangeInclusive};

use crate::{
    check::{
        attempt_history::{AttemptHistory, Failure, Outcome},
        history_index::HistoryIndex,
        terms::nanos,
    },
    history::AttemptId,
};

/// A hold. Re-entries by its owner are part of it.
pub(super) struct Hold<'b, 'h> {
    pub(super) attempt: &'b AttemptHistory<'h>,
    pub(super) begin: RangeInclusive<u64>,
    pub(super) end: RangeInclusive<u64>,
    /// The lineage and the number of its token, for the order of grants. `None`: its token implies no order.
    pub(super) token: Option<(&'h str, u64)>,
    /// The lease of the hold may have ended before the acquire returned. So the hold may have begun and ended between
    /// the call and the return.
    pub(super) may_lapse_before_return: bool,
    /// The server may have forgotten the hold before its acquire returned.
    pub(super) may_be_forgotten: bool,
}

/// An acquire that was answered "taken".
pub(super) struct Refusal<'b, 'h> {
    pub(super) attempt: &'b AttemptHistory<'h>,
    pub(super) during: RangeInclusive<u64>,
}

/// The holds of one lock, in the order of their calls.
pub(super) fn holds<'b, 'h>(
    index: &HistoryIndex<'h>,
    attempts: &[&'b AttemptHistory<'h>],
) -> Vec<Hold<'b, 'h>> {
    let mut holds: Vec<Hold<'b, 'h>> = Vec::new();
    let mut hold_of_attempt: HashMap<AttemptId, usize> = HashMap::new();
    for &attempt in attempts {
        let Some(grant) = attempt.grant else { continue };
        let (from, until) = end_window(index, attempt);
        let same_grant = |hold: &&usize| {
            let outer = holds[**hold].attempt.grant;
            outer.is_some_and(|outer| (outer.lineage, outer.token) == (grant.lineage, grant.token))
        };
        let outer = attempt.outer_attempt.and_then(|id| hold_of_attempt.get(&id)).filter(same_grant).copied();
        hold_of_attempt.insert(attempt.id, outer.unwrap_or(holds.len()));
        if let Some(hold) = outer {
            // Several attempts share this hold. It ends when the last of them releases it, unless the server forgot it.
            let hold = &mut holds[hold];
            let from = if index.may_be_forgotten_since(hold.attempt).is_some() { 0 } else { from };
            let until =
                until.max(*hold.end.end()).max(min_hold_after_the_last(index, [hold.attempt, attempt]));
            hold.end = from.max(*hold.end.start())..=until;
            continue;
        }
        let forgotten_since = index.may_be_forgotten_since(attempt).filter(|since| *since < from);
        let from = forgotten_since.unwrap_or(from);
        let ordered = !index.terms.lossy && attempt.mode.limit().is_none();
        holds.push(Hold {
            attempt,
            begin: attempt.invoked..=grant.at,
            end: from..=until,
            token: ordered.then_some((grant.lineage, grant.token)),
            may_lapse_before_return: from <= grant.at && forgotten_since.is_none(),
            may_be_forgotten: from <= grant.at && forgotten_since.is_some(),
        });
    }
    holds
}

/// Two attempts of one process share a hold, and the attempt that releases first asks for a minimum hold. The process
/// applies the minimum hold when the other attempt releases. Returns the latest end of this minimum hold, or 0 if there
/// is none.
fn min_hold_after_the_last(index: &HistoryIndex<'_>, mut attempts: [&AttemptHistory<'_>; 2]) -> u64 {
    attempts.sort_by_key(|attempt| attempt.release.map_or(u64::MAX, |release| release.at));
    let [Some(first), Some(last)] = attempts.map(|attempt| attempt.release) else { return 0 };
    let (Some(min_hold), Some((at, Outcome::Freed))) = (first.min_hold, attempts[1].answer) else { return 0 };
    let left = first.at.saturating_add(min_hold).saturating_sub(last.at);
    at.saturating_add(index.terms.longest(left))
}

/// The earliest and the latest end of a hold.
fn end_window(index: &HistoryIndex<'_>, attempt: &AttemptHistory<'_>) -> (u64, u64) {
    let terms = index.terms;
    let earliest_expiry = attempt.lost.into_iter().fold(index.earliest_expiry(attempt), u64::min);
    let from = match (attempt.release, attempt.answer) {
        (Some(release), Some((_, Outcome::Freed))) => match release.min_hold {
            None => release.at,
            Some(_) => release
                .at
                .saturating_add(terms.shortest(release.min_hold_certain))
                .saturating_sub(nanos(terms.precision)),
        },
        (Some(release), _) => earliest_expiry.min(release.at),
        (None, _) => earliest_expiry,
    };
    (from, index.latest_end(attempt).max(from))
}

/// The refusals of one lock that no queued claim justifies, so that only a hold can justify them. `checked` is called
/// for every refusal of the lock.
pub(super) fn refusals<'b, 'h>(
    index: &HistoryIndex<'h>,
    attempts: &[&'b AttemptHistory<'h>],
    mut checked: impl FnMut(),
) -> Vec<Refusal<'b, 'h>> {
    let queue = QueueModel::of(index, attempts);
    let mut refusals = Vec::new();
    for &attempt in attempts {
        let Some((at, Failure::Taken)) = attempt.failure else { continue };
        checked();
        if !queue.justifies(attempt, at) && !refused_by_returned_hold(index, attempts, attempt, at) {
            refusals.push(Refusal { attempt, during: attempt.invoked..=at });
        }
    }
    refusals
}

/// Whether a hold that had ended may have existed on the server again and caused the refusal. If the run does not
/// promise exclusion, the server may fall back to an older state, in which a released hold still exists. If the
/// server's clock was set back, a lapsed hold may be valid again.
fn refused_by_returned_hold(
    index: &HistoryIndex<'_>,
    attempts: &[&AttemptHistory<'_>],
    attempt: &AttemptHistory<'_>,
    at: u64,
) -> bool {
    let lease = index.longest_lease.get(attempt.lock).map_or(0, |ttl| index.terms.longest(*ttl));
    let has_passed = |storm: &(u64, u64)| storm.1.saturating_add(lease) < attempt.invoked;
    let storm = index.storms.get(index.storms.partition_point(has_passed));
    let holds_may_return =
        index.terms.lossy || index.terms.set_back && attempts.iter().any(|other| had_to_lapse(other, at));
    holds_may_return && storm.is_some_and(|storm| storm.0 <= at)
}

/// Whether an attempt that was called before `at` left something that ends only by lapsing: a hold that was not freed,
/// a minimum hold, or the queue entry of a killed process.
fn had_to_lapse(attempt: &AttemptHistory<'_>, at: u64) -> bool {
    let freed = matches!(attempt.answer, Some((_, Outcome::Freed | Outcome::NotHeld)));
    let has_min_hold = attempt.release.is_some_and(|release| release.min_hold.is_some());
    let was_there = attempt.grant.is_some() || attempt.killed_at.is_some();
    attempt.invoked < at && was_there && (has_min_hold || !freed)
}

/// The times in which attempts were or may have been queued. A waiter counts until its grant. An attempt without a
/// grant counts until nothing of it is left on the server.
struct QueueModel {
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl QueueModel {
    fn of(index: &HistoryIndex<'_>, attempts: &[&AttemptHistory<'_>]) -> Self {
        let spans = attempts.iter().filter_map(|attempt| match (attempt.grant, attempt.failure) {
            // A try that was granted was never queued. If the attempt makes several tries, the server may have granted
            // an earlier try whose answer was lost.
            (Some(_), _) if attempt.tries_once() || attempt.is_single_part_of_try() => None,
            (Some(grant), _) => Some((attempt.invoked, grant.at)),
            (None, Some((_, Failure::Taken))) if attempt.leaves_nothing_if_taken() => None,
            (None, _) => Some((attempt.invoked, index.latest_end(attempt))),
        });
        let (mut begins, mut ends): (Vec<_>, Vec<_>) = spans.unzip();
        begins.sort_unstable();
        ends.sort_unstable();
        Self { begins, ends }
    }

    /// Whether another attempt was or may have been queued between the call of `attempt` and `at`.
    fn justifies(&self, attempt: &AttemptHistory<'_>, at: u64) -> bool {
        let begun = self.begins.partition_point(|begin| *begin <= at);
        let ended = self.ends.partition_point(|end| *end < attempt.invoked);
        begun - ended > usize::from(!attempt.leaves_nothing_if_taken())
    }
}
