//! I5: a resource that checks tokens never accepts a smaller token after a larger one, and loses no acknowledged
//! update.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    Figure, Invariant, Verdict,
    attempt_history::{Acceptance, AttemptHistory, Write},
    finding::Finding,
    history_index::HistoryIndex,
};
use crate::history::What;

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Fence);
    let mut resources: BTreeMap<&str, Vec<SentWrite<'_, '_>>> = BTreeMap::new();
    for attempt in &index.attempts {
        for write in &attempt.writes {
            resources.entry(write.to).or_default().push(SentWrite { attempt, write });
        }
    }
    let contents = contents(index);
    let (mut acknowledged, mut refused, mut lost) = (0, 0, [0, 0]);
    // The index into `lost` says whether the resource has a fence: 0 no, 1 yes.
    for (resource, writes) in &resources {
        acknowledged += count(writes, Acceptance::Acknowledged);
        refused += count(writes, Acceptance::Fenced);
        let contents = contents.get(resource);
        let missing = contents.map_or(Vec::new(), |contents| missing(index, writes, contents));
        let fenced = !index.terms.unfenced.iter().any(|unfenced| unfenced == resource);
        lost[usize::from(fenced)] += missing.len() as u64;
        if fenced {
            by_answers(writes, &mut finding);
            contents.into_iter().for_each(|contents| by_log(writes, contents, &mut finding));
            missing.into_iter().for_each(|sent| report_lost_write(sent, &mut finding));
        }
    }
    finding.figure("acknowledged", Figure::Sum(acknowledged));
    finding.figure("refused", Figure::Sum(refused));
    finding.figure("lost", Figure::Sum(lost[1]));
    finding.figure("lost without a fence", Figure::Sum(lost[0]));
    finding.done()
}

/// A write and the hold under which it was sent.
struct SentWrite<'b, 'h> {
    attempt: &'b AttemptHistory<'h>,
    write: &'b Write<'h>,
}

impl<'b, 'h> SentWrite<'b, 'h> {
    fn lineage(&self) -> &'h str {
        self.attempt.grant.map_or("", |grant| grant.lineage)
    }

    /// When the write was acknowledged, and the index of the event that says so.
    fn acknowledged(&self) -> Option<(u64, usize)> {
        let answer = self.write.answer.filter(|(_, how, _)| *how == Acceptance::Acknowledged);
        answer.map(|(at, _, event)| (at, event))
    }

    /// The events of the write and of its answer.
    fn events(&self) -> impl Iterator<Item = usize> {
        [self.write.event].into_iter().chain(self.write.answer.map(|(_, _, event)| event))
    }
}

/// The number of writes that got this answer.
fn count(writes: &[SentWrite<'_, '_>], how: Acceptance) -> u64 {
    writes.iter().filter(|sent| sent.write.answer.is_some_and(|(_, answer, _)| answer == how)).count() as u64
}

/// The final contents of a resource, and the event that recorded them.
struct Contents<'h> {
    event: usize,
    elements: &'h [u64],
}

/// The final contents of all resources.
fn contents<'h>(index: &HistoryIndex<'h>) -> HashMap<&'h str, Contents<'h>> {
    let recorded = index.events.iter().enumerate().filter_map(|(event, recorded)| match &recorded.what {
        What::Contents { of, elements } => Some((of.as_str(), Contents { event, elements })),
        _ => None,
    });
    recorded.collect()
}

/// The acknowledged writes that the contents lack, each with the event that recorded the contents.
fn missing<'w, 'b, 'h>(
    index: &HistoryIndex<'h>,
    writes: &'w [SentWrite<'b, 'h>],
    contents: &Contents<'h>,
) -> Vec<(&'w SentWrite<'b, 'h>, usize)> {
    let stored: HashSet<u64> = contents.elements.iter().copied().collect();
    let read = index.events[contents.event].t;
    let due = |sent: &&SentWrite<'_, '_>| sent.acknowledged().is_some_and(|(at, _)| at < read);
    let missing = writes.iter().filter(due).filter(|sent| !stored.contains(&sent.write.element));
    missing.map(|sent| (sent, contents.event)).collect()
}

/// Checks that no write is acknowledged if it was sent after the acknowledgement of a write with a larger token.
fn by_answers<'h>(writes: &[SentWrite<'_, 'h>], finding: &mut Finding<'_, 'h>) {
    let mut answered: Vec<_> = writes.iter().filter(|sent| sent.acknowledged().is_some()).collect();
    let mut sent = answered.clone();
    answered.sort_by_key(|sent| sent.acknowledged());
    sent.sort_by_key(|sent| sent.write.sent);
    let (mut answered, mut largest) = (answered.into_iter().peekable(), HashMap::new());
    for write in sent {
        while let Some(past) =
            answered.next_if(|past| past.acknowledged().is_some_and(|(at, _)| at < write.write.sent))
        {
            let last = largest.entry(past.lineage()).or_insert(past);
            if past.write.token > last.write.token {
                *last = past;
            }
        }
        finding.checked();
        if let Some(last) = largest.get(write.lineage()) {
            report_stale_write(last, write, &[], finding);
        }
    }
}

/// Checks that tokens never decrease from one write to the next, in the order in which the final contents have the
/// writes.
fn by_log<'h>(writes: &[SentWrite<'_, 'h>], contents: &Contents<'h>, finding: &mut Finding<'_, 'h>) {
    let by_element: HashMap<u64, &SentWrite<'_, 'h>> =
        writes.iter().map(|sent| (sent.write.element, sent)).collect();
    let mut largest: HashMap<&str, &SentWrite<'_, 'h>> = HashMap::new();
    for element in contents.elements {
        finding.checked();
        let Some(write) = by_element.get(element) else {
            finding
                .violated(&[], &[contents.event], || format!("it contains {element}, which no write added"));
            continue;
        };
        let last = largest.entry(write.lineage()).or_insert(write);
        report_stale_write(last, write, &[contents.event], finding);
        if write.write.token > last.write.token {
            *last = write;
        }
    }
}

/// Reports a violation if the token of `write` is smaller than that of `last`.
fn report_stale_write<'h>(
    last: &SentWrite<'_, 'h>,
    write: &SentWrite<'_, 'h>,
    more: &[usize],
    finding: &mut Finding<'_, 'h>,
) {
    if write.write.token >= last.write.token {
        return;
    }
    let events: Vec<_> = last.events().chain(write.events()).chain(more.iter().copied()).collect();
    finding.violated(&[last.attempt, write.attempt], &events, || {
        format!("{:?} accepted token {} after token {}", write.write.to, write.write.token, last.write.token)
    });
}

fn report_lost_write<'h>((sent, read): (&SentWrite<'_, 'h>, usize), finding: &mut Finding<'_, 'h>) {
    let events: Vec<_> = sent.events().chain([read]).collect();
    finding.violated(&[sent.attempt], &events, || {
        format!("{:?} acknowledged {} and does not contain it", sent.write.to, sent.write.element)
    });
}
