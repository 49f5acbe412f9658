//! I14: an observer of an election sees the value of a leader with the term of this leader, and only while the leader
//! holds the name. For one observer terms never go back.
//!
//! The checks of single holds (I1, I4) judge the leaders themselves: one leads at a time, and terms grow.

use std::collections::HashMap;

use super::{
    Invariant, Verdict,
    attempt_history::{AttemptHistory, Outcome},
    finding::Finding,
    history_index::{HistoryIndex, Sight},
    report::millis,
    terms::nanos,
};
use crate::history::AttemptId;

/// The lineage and the number of a term.
type Term<'h> = (&'h str, u64);
/// An observer, by process and number, with a lock and a lineage.
type Observed<'h> = ((u32, u64), &'h str, &'h str);

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Elections);
    let mut seen = Seen::default();
    for sight in &index.sights {
        finding.checked();
        let leader = index.attempt(sight.leader).filter(|leader| leader.lock == sight.lock);
        let published = |leader: &&AttemptHistory<'_>| {
            leader.values.iter().any(|value| value.number == sight.number && value.sent <= sight.at)
        };
        let Some(leader) = leader.filter(published) else {
            finding
                .violated(&[], &[sight.event], || "an observer saw a value that nobody published".to_owned());
            continue;
        };
        own_term(leader, sight, &mut seen, &mut finding);
        never_back(sight, &mut seen, &mut finding);
        if let Some(since) = sight.since {
            newest_value(index, leader, sight, since, &mut finding);
            if !index.terms.lossy {
                still_holds(index, leader, sight, since, &mut finding);
            }
        }
    }
    finding.done()
}

/// What the sights so far have shown.
#[derive(Default)]
struct Seen<'h> {
    /// The first term with which each leader was seen, and the index of that event.
    terms: HashMap<AttemptId, (Term<'h>, usize)>,
    /// The leader that was first seen with each term of a lock.
    leaders: HashMap<(&'h str, Term<'h>), AttemptId>,
    /// The largest term that each observer has seen of each lock and lineage, and the index of that event.
    newest: HashMap<Observed<'h>, (u64, usize)>,
}

/// Checks that all sights of a leader show the term of its grant, and that no other leader has this term.
fn own_term<'h>(
    leader: &AttemptHistory<'h>,
    sight: &Sight<'h>,
    seen: &mut Seen<'h>,
    finding: &mut Finding<'_, 'h>,
) {
    let (first, event) = *seen.terms.entry(leader.id).or_insert((sight.term, sight.event));
    let granted = leader.grant.map_or(first, |grant| (grant.lineage, grant.token));
    if sight.term != first || sight.term != granted {
        finding.violated(&[leader], &[event, sight.event], || {
            format!("{leader} was seen with the term {} of another leader", sight.term.1)
        });
    }
    let other = *seen.leaders.entry((sight.lock, sight.term)).or_insert(leader.id);
    if other != leader.id {
        finding.violated(&[leader], &[sight.event], || {
            format!("two leaders were seen with the term {}", sight.term.1)
        });
    }
}

/// Checks that an observer that follows the election sees no smaller term than before.
fn never_back<'h>(sight: &Sight<'h>, seen: &mut Seen<'h>, finding: &mut Finding<'_, 'h>) {
    if sight.since.is_some() {
        return;
    }
    let (lineage, term) = sight.term;
    let newest = seen.newest.entry((sight.observer, sight.lock, lineage)).or_insert((term, sight.event));
    if term < newest.0 {
        finding.violated(&[], &[newest.1, sight.event], || {
            format!("an observer saw the term {term} after the term {}", newest.0)
        });
    } else {
        *newest = (term, sight.event);
    }
}

/// Checks that a read returned no older value of the leader than one that was acknowledged before the read began.
fn newest_value<'h>(
    index: &HistoryIndex<'h>,
    leader: &AttemptHistory<'h>,
    sight: &Sight<'h>,
    since: u64,
    finding: &mut Finding<'_, 'h>,
) {
    let read_at = since.saturating_sub(nanos(index.terms.stale));
    let newer = leader
        .values
        .iter()
        .find_map(|value| value.acknowledged.filter(|(at, _)| value.number > sight.number && *at < read_at));
    if let Some((at, event)) = newer.filter(|_| !index.terms.lossy) {
        finding.violated(&[leader], &[event, sight.event], || {
            format!(
                "a read that began {} after the next value of {leader} returned the value before",
                millis(since - at)
            )
        });
    }
}

/// Checks that a read that began at `since` returned a leader whose hold had not ended by then.
fn still_holds<'h>(
    index: &HistoryIndex<'h>,
    leader: &AttemptHistory<'h>,
    sight: &Sight<'h>,
    since: u64,
    finding: &mut Finding<'_, 'h>,
) {
    let read_at = since.saturating_sub(nanos(index.terms.stale));
    let released = leader.answer.filter(|(at, outcome)| *outcome != Outcome::Unknown && *at < read_at);
    if let Some((at, _)) = released {
        finding.violated(&[leader], &[sight.event], || {
            format!("{leader} was seen by a read that began {} after the end of its term", millis(since - at))
        });
        return;
    }
    // R29: nobody shows a leader whose hold has ended, also if its process was killed.
    let end = index.latest_end(leader);
    if end < read_at {
        finding.violated(&[leader], &[sight.event], || {
            let late = millis(read_at - end);
            format!("{leader} was seen by a read that began {late} after the latest end of its hold")
        });
        return;
    }
    let is_next = |next: &&AttemptHistory<'h>| {
        next.grant.is_some_and(|grant| {
            grant.at < read_at && grant.lineage == sight.term.0 && grant.token > sight.term.1
        })
    };
    let attempts = index.locks.get(sight.lock).map_or(&[][..], Vec::as_slice);
    let next = attempts.iter().map(|&number| &index.attempts[number]).find(is_next);
    if let Some(next) = next {
        finding.violated(&[leader, next], &[sight.event], || {
            format!("{leader} was seen by a read that began after {next} was granted")
        });
    }
}
