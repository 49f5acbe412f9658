//! I7: a free lock does not stand beside a live waiter.

use super::{
    Invariant, Terms, Verdict,
    book::Book,
    finding::Finding,
    life::{Failure, Life, Outcome},
    report::millis,
    terms::nanos,
};

pub(super) fn check(book: &Book<'_>, terms: &Terms) -> Verdict {
    let mut finding = Finding::new(book, Invariant::WakeUps);
    let mut gaps = Vec::new();
    for lives in book.by_lock() {
        sweep(book, &lives, terms, &mut finding, &mut gaps);
    }
    gaps.sort_unstable();
    if let (Some(max), Some(p99)) = (gaps.last(), gaps.get(gaps.len().saturating_sub(1) * 99 / 100)) {
        finding.figure("longest", millis(*max));
        finding.figure("p99", millis(*p99));
    }
    finding.done()
}

/// When the count of what may hold the lock, or of who waits for it, changes.
struct Mark {
    at: u64,
    /// Ends first at one instant; an acquire that returns ends a wait and begins a hold.
    begins: bool,
    waiter: Option<usize>,
}

fn sweep<'h>(
    book: &Book<'h>,
    lives: &[&Life<'h>],
    terms: &Terms,
    finding: &mut Finding<'_, 'h>,
    gaps: &mut Vec<u64>,
) {
    let ttl = |life: &&Life<'h>| life.grant.and_then(|grant| grant.ttl);
    // Without a lease that lapses, what a killed process left behind stays for ever, or is gone with it: not ours to say.
    let longest = lives.iter().filter_map(ttl).max().unwrap_or(u64::MAX);
    let mut marks = Vec::new();
    for (number, life) in lives.iter().enumerate() {
        if let Some((from, until)) = busy(life, terms, longest) {
            marks.extend([
                Mark { at: from, begins: true, waiter: None },
                Mark { at: until, begins: false, waiter: None },
            ]);
        }
        if life.limit != Some(0) {
            let until = life.returned().into_iter().chain(life.crashed).min().unwrap_or(book.end);
            let waiter = Some(number);
            marks.extend([
                Mark { at: life.invoked, begins: true, waiter },
                Mark { at: until, begins: false, waiter },
            ]);
        }
    }
    // What disturbs the system or stops a process excuses everybody: whoever is next may be the one that is stopped.
    for &(from, until) in book.storms.iter().chain(book.stops.values().flatten()) {
        marks.extend([
            Mark { at: from, begins: true, waiter: None },
            Mark { at: until, begins: false, waiter: None },
        ]);
    }
    marks.sort_by_key(|mark| (mark.at, !mark.begins, mark.waiter.is_some()));
    let (mut holders, mut waiting, mut since) = (0_u64, std::collections::BTreeSet::new(), None);
    for mark in marks {
        let was_free = holders == 0 && !waiting.is_empty();
        let waiter = waiting.first().copied();
        match (mark.waiter, mark.begins) {
            (None, true) => holders += 1,
            (None, false) => holders -= 1,
            (Some(number), true) => drop(waiting.insert(number)),
            (Some(number), false) => drop(waiting.remove(&number)),
        }
        let is_free = holders == 0 && !waiting.is_empty();
        match (was_free, is_free) {
            (false, true) => since = Some(mark.at),
            (true, false) => {
                finding.checked();
                let gap = mark.at - since.take().unwrap_or(mark.at);
                gaps.push(gap);
                if let Some(waiter) = waiter.filter(|_| gap > nanos(terms.wake)) {
                    finding.violated(&[lives[waiter]], &[], || {
                        format!("the lock was free for {} while {} waited", millis(gap), lives[waiter])
                    });
                }
            }
            _ => {}
        }
    }
}

/// When an attempt may hold the lock on the server; `longest` is the longest lease seen on the lock.
fn busy(life: &Life<'_>, terms: &Terms, longest: u64) -> Option<(u64, u64)> {
    let Some(grant) = life.grant else {
        // It may have been applied: until its own clean-up, or, where the process was killed, until its lease runs out.
        let until = match (life.failure, life.crashed) {
            (Some((_, Failure::Definite)), _) | (None, None) => return None,
            (_, Some(crashed)) => crashed.saturating_add(longest),
            (Some((at, _)), None) => at.saturating_add(nanos(terms.cancelled)),
        };
        return Some((life.invoked, until));
    };
    let lapses = |from: u64| {
        let believed = life.deadline().max(Some(from));
        believed.zip(grant.ttl).map_or(u64::MAX, |(at, ttl)| at.saturating_add(ttl))
    };
    let until = match (life.answer, life.leaving) {
        (Some((answered, Outcome::Freed)), Some(leaving)) => {
            answered.saturating_add(leaving.keep.unwrap_or(0))
        }
        (Some((answered, Outcome::Unknown)), _) => lapses(answered),
        (Some((answered, _)), _) => answered,
        (None, Some(leaving)) => lapses(leaving.at),
        (None, None) => lapses(life.crashed.unwrap_or(grant.at)),
    };
    Some((grant.at, until.max(grant.at)))
}
