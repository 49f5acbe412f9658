//! I11: what ended without a grant leaves nothing.

use super::{Invariant, Verdict, book::Book, finding::Finding, report::millis};

pub(super) fn check(book: &Book<'_>) -> Verdict {
    let mut finding = Finding::new(book, Invariant::Cancels);
    for truth in &book.truths {
        let known = truth.holders.iter().map(|held| held.attempt).chain(truth.waiters.iter().copied());
        for life in known.filter_map(|id| book.life(id)) {
            let Some((at, _)) = life.failure else { continue };
            finding.checked();
            if truth.at > book.gone_by(life) {
                let age = millis(truth.at - at);
                finding.violated(&[life], &[truth.event], || {
                    format!("the server knows the attempt of {life} {age} after it ended without a grant")
                });
            }
        }
    }
    finding.done()
}
