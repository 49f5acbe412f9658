//! I10: a release answers the truth.

use std::collections::HashMap;

use leasehold_core::Mode;

use super::{
    Invariant, Terms, Verdict,
    book::Book,
    finding::Finding,
    life::{Life, Outcome},
};
use crate::history::AttemptId;

pub(super) fn check(book: &Book<'_>, terms: &Terms) -> Verdict {
    let mut finding = Finding::new(book, Invariant::Releases);
    for lives in book.by_lock() {
        for life in &lives {
            denied(life, terms, &mut finding);
        }
        overtaken(&lives, &mut finding);
    }
    still_there(book, &mut finding);
    finding.done()
}

/// "Was not held" within the lease: somebody took it away, and nobody said so.
fn denied<'h>(life: &Life<'h>, terms: &Terms, finding: &mut Finding<'_, 'h>) {
    let Some((at, outcome)) = life.answer else { return };
    finding.checked();
    let within = life.deadline().is_none_or(|deadline| at < deadline);
    if outcome == Outcome::NotHeld && within && life.lost.is_none() && !terms.lossy {
        finding.violated(&[life], &[], || {
            format!("the release of {life} found nothing, within its lease and not told lost")
        });
    }
}

/// "Freed" although an exclusive grant to another came in between: the hold was gone long before.
fn overtaken<'h>(lives: &[&Life<'h>], finding: &mut Finding<'_, 'h>) {
    let mut exclusive: Vec<_> =
        lives.iter().filter(|life| life.mode == Mode::Exclusive && life.within.is_none()).copied().collect();
    exclusive.retain(|life| life.grant.is_some());
    exclusive.sort_by_key(|life| life.grant.map(|grant| grant.at));
    // The largest token of all grants up to each one, per lineage, with whose it is.
    let mut largest: HashMap<&str, Vec<(u64, u64, &Life<'h>)>> = HashMap::new();
    for life in &exclusive {
        let Some(grant) = life.grant else { continue };
        let line = largest.entry(grant.lineage).or_default();
        let best = line.last().map_or((grant.at, grant.token, *life), |&(_, token, of)| {
            if token > grant.token { (grant.at, token, of) } else { (grant.at, grant.token, *life) }
        });
        line.push(best);
    }
    for life in &exclusive {
        let (Some(grant), Some(leaving), Some((_, Outcome::Freed))) = (life.grant, life.leaving, life.answer)
        else {
            continue;
        };
        let Some(line) = largest.get(grant.lineage) else { continue };
        let before = line.partition_point(|&(at, _, _)| at < leaving.at);
        if let Some(&(_, token, next)) = before.checked_sub(1).and_then(|last| line.get(last))
            && token > grant.token
        {
            finding.violated(&[life, next], &[], || {
                format!("the release of {life} answered freed, but {next} was granted before it")
            });
        }
    }
}

/// "Freed", or "was not held", and the server still knows it.
fn still_there<'h>(book: &Book<'h>, finding: &mut Finding<'_, 'h>) {
    for truth in &book.truths {
        let known = truth.holders.iter().map(|held| held.attempt).chain(truth.waiters.iter().copied());
        for life in known.filter_map(|id: AttemptId| book.life(id)) {
            finding.checked();
            let kept = life.leaving.is_some_and(|leaving| leaving.keep.is_some());
            let answered =
                life.answer.is_some_and(|(at, outcome)| at <= truth.at && outcome != Outcome::Unknown);
            if answered && !kept {
                finding.violated(&[life], &[truth.event], || {
                    format!("{life} was released, and the server still knows it")
                });
            }
        }
    }
}
