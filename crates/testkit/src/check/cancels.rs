//! I11: a cancelled attempt leaves nothing.

use super::{
    Invariant, Terms, Verdict, book::Book, finding::Finding, life::Failure, report::millis, terms::nanos,
};

pub(super) fn check(book: &Book<'_>, terms: &Terms) -> Verdict {
    let mut finding = Finding::new(book, Invariant::Cancels);
    let allowed = nanos(terms.cancelled);
    for truth in &book.truths {
        let known = truth.holders.iter().map(|held| held.attempt).chain(truth.waiters.iter().copied());
        for life in known.filter_map(|id| book.life(id)) {
            let Some((at, failure)) = life.failure else { continue };
            finding.checked();
            // A killed process cleans up nothing, and in a storm the server may be out of reach: then its lease ends it.
            let killed = life.crashed.is_some_and(|crashed| crashed < at.saturating_add(allowed));
            let storm = book
                .storms
                .iter()
                .any(|&(from, until)| from < truth.at && until.saturating_add(allowed) > at);
            let excused = failure != Failure::Definite && (killed || storm);
            let due = if failure == Failure::Definite {
                at
            } else {
                book.awake(life.proc, at, allowed).saturating_add(allowed)
            };
            if truth.at > due && !excused {
                let age = millis(truth.at - at);
                finding.violated(&[life], &[truth.event], || {
                    format!("the server knows the attempt of {life} {age} after it ended without a grant")
                });
            }
        }
    }
    finding.done()
}
