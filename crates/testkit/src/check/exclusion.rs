//! I1 (exclusion): a sweep in order of time over the begins and ends of active holds.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Figure, Invariant, Verdict,
    attempt_history::AttemptHistory,
    finding::Finding,
    history_index::HistoryIndex,
    hold_counts::{HoldCounts, can_conflict, permit_count},
    report::millis,
};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Exclusion);
    let (mut most_at_once, mut excused) = (0, 0);
    for attempts in index.by_lock() {
        most_at_once = most_at_once.max(sweep(index, &spans(index, &attempts), &mut finding, &mut excused));
    }
    finding.figure("most at once", Figure::Most(most_at_once as u64));
    if index.terms.lossy {
        finding.figure("overlaps where exclusion is not promised", Figure::Sum(excused));
    }
    finding.done()
}

/// The time for which a hold was active. A hold and its re-entries are one span.
struct Span<'b, 'h> {
    attempt: &'b AttemptHistory<'h>,
    begin: u64,
    end: u64,
}

/// The active holds of one lock as spans.
fn spans<'b, 'h>(index: &'b HistoryIndex<'h>, attempts: &[&'b AttemptHistory<'h>]) -> Vec<Span<'b, 'h>> {
    let mut by_root: BTreeMap<u64, Span<'b, 'h>> = BTreeMap::new();
    // Re-entries that began after the outer hold had ended.
    let mut apart = Vec::new();
    // In the order of grants, so that a hold comes before its re-entries.
    let mut granted: Vec<_> = attempts
        .iter()
        .filter_map(|&attempt| attempt.active_hold().map(|active_hold| (attempt, active_hold)))
        .collect();
    granted.sort_by_key(|(_, active_hold)| active_hold.start);
    for (attempt, active_hold) in granted.into_iter().filter(|(_, active_hold)| !active_hold.is_empty()) {
        let span = Span { attempt, begin: active_hold.start, end: active_hold.end };
        match by_root.get_mut(&root(index, attempt)) {
            Some(outer) if span.begin < outer.end => outer.end = outer.end.max(span.end),
            Some(_) => apart.push(span),
            None => drop(by_root.insert(root(index, attempt), span)),
        }
    }
    by_root.into_values().chain(apart).collect()
}

/// The id of the attempt that got the hold: the outermost attempt if `attempt` is re-entrant, otherwise `attempt`
/// itself.
fn root(index: &HistoryIndex<'_>, attempt: &AttemptHistory<'_>) -> u64 {
    let mut root = attempt;
    // Each step goes back in time, so the loop ends.
    while let Some(outer) =
        root.outer_attempt.and_then(|id| index.attempt(id)).filter(|outer| outer.invoked < root.invoked)
    {
        root = outer;
    }
    root.id
}

/// Reports each hold that began while a conflicting hold was active. An overlap that the engine does not promise to
/// prevent is no violation; `excused` counts these overlaps. Returns the largest number of holds at one time.
fn sweep<'h>(
    index: &HistoryIndex<'h>,
    spans: &[Span<'_, 'h>],
    finding: &mut Finding<'_, 'h>,
    excused: &mut u64,
) -> usize {
    // Each begin (`true`) and end (`false`) of a span, with its time and the index of the span.
    let mut marks: Vec<(u64, bool, usize)> = Vec::with_capacity(spans.len() * 2);
    for (span_index, span) in spans.iter().enumerate() {
        marks.extend([(span.begin, true, span_index), (span.end, false, span_index)]);
    }
    // `false` sorts first: at the same instant, ends come before begins.
    marks.sort_unstable();
    let (mut active, mut hold_counts, mut most) = (BTreeSet::new(), HoldCounts::default(), 0);
    for (_, begins, span_index) in marks {
        let span = &spans[span_index];
        if !begins {
            active.remove(&span_index);
            hold_counts.remove(span.attempt.mode);
            continue;
        }
        finding.checked();
        if !hold_counts.admits(span.attempt.mode) {
            let others = || active.iter().map(|&other| &spans[other]);
            if index.terms.lossy && forgotten(index, span, others()) {
                *excused += 1;
            } else if !finding.count_if_full() {
                report_overlap(span, others(), finding);
            }
        }
        active.insert(span_index);
        hold_counts.add(span.attempt.mode);
        most = most.max(active.len());
    }
    most
}

/// Whether the server may have forgotten the new hold or one of the active holds that conflict with it.
fn forgotten<'s>(
    index: &HistoryIndex<'_>,
    span: &'s Span<'s, 's>,
    active: impl Iterator<Item = &'s Span<'s, 's>>,
) -> bool {
    let clashing = active.filter(|other| can_conflict(span.attempt.mode, other.attempt.mode));
    clashing
        .chain([span])
        .any(|other| index.may_be_forgotten_since(other.attempt).is_some_and(|since| since <= span.begin))
}

/// Reports the new hold with the active hold that overlaps it for the longest time.
fn report_overlap<'s>(
    span: &'s Span<'s, 's>,
    active: impl Iterator<Item = &'s Span<'s, 's>>,
    finding: &mut Finding<'_, '_>,
) {
    let width = |other: &Span<'_, '_>| span.end.min(other.end) - span.begin;
    let clashing: Vec<_> =
        active.filter(|other| can_conflict(span.attempt.mode, other.attempt.mode)).collect();
    let Some(other) = clashing.iter().max_by_key(|other| width(other)) else { return };
    let message = || {
        let width = if width(other) > u64::MAX / 2 { "for ever".into() } else { millis(width(other)) };
        match span.attempt.mode.limit() {
            Some(limit) if other.attempt.mode.limit() == Some(limit) => {
                let held: u64 = clashing.iter().map(|other| permit_count(other.attempt.mode)).sum::<u64>()
                    + permit_count(span.attempt.mode);
                format!(
                    "{held} of {limit} permits are held at once, {} beside {} for {width}",
                    span.attempt, other.attempt
                )
            }
            _ => format!("{} and {} overlap for {width}", span.attempt, other.attempt),
        }
    };
    finding.violated(&[other.attempt, span.attempt], &[], message);
}
