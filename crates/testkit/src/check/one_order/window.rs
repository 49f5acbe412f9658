//! What the history says about each hold: the earliest and latest begin, and the earliest and latest end.

use std::{collections::HashMap, ops::RangeInclusive};

use crate::{
    check::{
        history_index::HistoryIndex,
        life::{Failure, Life, Outcome},
        terms::nanos,
    },
    history::AttemptId,
};

/// A hold. Re-entries by its owner belong to it.
pub(super) struct Hold<'b, 'h> {
    pub(super) life: &'b Life<'h>,
    pub(super) begin: RangeInclusive<u64>,
    pub(super) end: RangeInclusive<u64>,
    /// Its key in the order of grants. `None`: its token implies no order.
    pub(super) token: Option<(&'h str, u64)>,
    /// Its lease may have ended before its acquire returned, so the hold may have begun and ended meanwhile.
    pub(super) late: bool,
    /// The server may have forgotten it before its acquire returned.
    pub(super) forgotten: bool,
}

/// An acquire that was answered "taken".
pub(super) struct Refusal<'b, 'h> {
    pub(super) life: &'b Life<'h>,
    pub(super) during: RangeInclusive<u64>,
}

/// The holds of one lock, in the order of their calls.
pub(super) fn holds<'b, 'h>(index: &HistoryIndex<'h>, lives: &[&'b Life<'h>]) -> Vec<Hold<'b, 'h>> {
    let mut holds: Vec<Hold<'b, 'h>> = Vec::new();
    let mut of: HashMap<AttemptId, usize> = HashMap::new();
    for &life in lives {
        let Some(grant) = life.grant else { continue };
        let (from, until) = ends(index, life);
        let same_grant = |hold: &&usize| {
            let outer = holds[**hold].life.grant;
            outer.is_some_and(|outer| (outer.lineage, outer.token) == (grant.lineage, grant.token))
        };
        let outer = life.within.and_then(|id| of.get(&id)).filter(same_grant).copied();
        of.insert(life.id, outer.unwrap_or(holds.len()));
        if let Some(hold) = outer {
            // The hold ends when the last of its users leaves, unless the server forgot it.
            let hold = &mut holds[hold];
            let from = if index.forgotten(hold.life).is_some() { 0 } else { from };
            let until = until.max(*hold.end.end()).max(min_hold_after_the_last(index, [hold.life, life]));
            hold.end = from.max(*hold.end.start())..=until;
            continue;
        }
        let forgotten = index.forgotten(life).filter(|since| *since < from);
        let from = forgotten.unwrap_or(from);
        let ordered = !index.terms.lossy && life.mode.limit().is_none();
        holds.push(Hold {
            life,
            begin: life.invoked..=grant.at,
            end: from..=until,
            token: ordered.then_some((grant.lineage, grant.token)),
            late: from <= grant.at && forgotten.is_none(),
            forgotten: from <= grant.at && forgotten.is_some(),
        });
    }
    holds
}

/// The latest end of a minimum hold that the first of two users asked for: the process applies it with the release of
/// the last user.
fn min_hold_after_the_last(index: &HistoryIndex<'_>, mut two: [&Life<'_>; 2]) -> u64 {
    two.sort_by_key(|life| life.release.map_or(u64::MAX, |release| release.at));
    let [Some(first), Some(last)] = two.map(|life| life.release) else { return 0 };
    let (Some(min_hold), Some((at, Outcome::Freed))) = (first.min_hold, two[1].answer) else { return 0 };
    let left = first.at.saturating_add(min_hold).saturating_sub(last.at);
    at.saturating_add(index.terms.longest(left))
}

/// The earliest and the latest end of a hold.
fn ends(index: &HistoryIndex<'_>, life: &Life<'_>) -> (u64, u64) {
    let terms = index.terms;
    let lapses = life.lost.into_iter().fold(index.lapses(life), u64::min);
    let from = match (life.release, life.answer) {
        (Some(release), Some((_, Outcome::Freed))) => match release.min_hold {
            None => release.at,
            Some(_) => release
                .at
                .saturating_add(terms.shortest(release.min_hold_certain))
                .saturating_sub(nanos(terms.precision)),
        },
        (Some(release), _) => lapses.min(release.at),
        (None, _) => lapses,
    };
    (from, index.gone_by(life).max(from))
}

/// The refusals of one lock that only a hold can justify. `checked` is called for every refusal.
pub(super) fn refusals<'b, 'h>(
    index: &HistoryIndex<'h>,
    lives: &[&'b Life<'h>],
    mut checked: impl FnMut(),
) -> Vec<Refusal<'b, 'h>> {
    let queue = QueueModel::of(index, lives);
    let mut refusals = Vec::new();
    for &life in lives {
        let Some((at, Failure::Taken)) = life.failure else { continue };
        checked();
        if !queue.justifies(life, at) && !resurrected(index, lives, life, at) {
            refusals.push(Refusal { life, during: life.invoked..=at });
        }
    }
    refusals
}

/// Where exclusion is not promised, a released hold may return with an old state of the server. Where the server's
/// clock is set back, a lapsed hold may return.
fn resurrected(index: &HistoryIndex<'_>, lives: &[&Life<'_>], life: &Life<'_>, at: u64) -> bool {
    let lease = index.longest.get(life.lock).map_or(0, |ttl| index.terms.longest(*ttl));
    let over = |storm: &(u64, u64)| storm.1.saturating_add(lease) < life.invoked;
    let storm = index.storms.get(index.storms.partition_point(over));
    let may = index.terms.lossy || index.terms.set_back && lives.iter().any(|other| lapsed(other, at));
    may && storm.is_some_and(|storm| storm.0 <= at)
}

/// Whether an attempt from before `at` left something that had to lapse: a hold that was not freed, a minimum hold, or
/// the queue entry of a killed process.
fn lapsed(life: &Life<'_>, at: u64) -> bool {
    let freed = matches!(life.answer, Some((_, Outcome::Freed | Outcome::NotHeld)));
    let has_min_hold = life.release.is_some_and(|release| release.min_hold.is_some());
    let was_there = life.grant.is_some() || life.crashed.is_some();
    life.invoked < at && was_there && (has_min_hold || !freed)
}

/// The attempts that were or may have been queued: waiters, and attempts without a grant until nothing of them is left.
struct QueueModel {
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl QueueModel {
    fn of(index: &HistoryIndex<'_>, lives: &[&Life<'_>]) -> Self {
        let spans = lives.iter().filter_map(|life| match (life.grant, life.failure) {
            // With several tries, an earlier try may have been granted and its answer lost.
            (Some(_), _) if life.tries_once() => None,
            (Some(grant), _) => Some((life.invoked, grant.at)),
            (None, Some((_, Failure::Taken))) if life.is_try() => None,
            (None, _) => Some((life.invoked, index.gone_by(life))),
        });
        let (mut begins, mut ends): (Vec<_>, Vec<_>) = spans.unzip();
        begins.sort_unstable();
        ends.sort_unstable();
        Self { begins, ends }
    }

    /// Whether another attempt was queued between the call of `life` and `at`.
    fn justifies(&self, life: &Life<'_>, at: u64) -> bool {
        let begun = self.begins.partition_point(|begin| *begin <= at);
        let ended = self.ends.partition_point(|end| *end < life.invoked);
        begun - ended > usize::from(!life.is_try())
    }
}
