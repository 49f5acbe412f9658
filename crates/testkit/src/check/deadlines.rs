//! I2: no user is told a later deadline than its acknowledged request allows, or than the server's own expiry.

use super::{
    Invariant, Terms, Verdict,
    book::{Book, Truth},
    finding::Finding,
    life::Life,
    report::millis,
    terms::nanos,
};

pub(super) fn check(book: &Book<'_>, terms: &Terms) -> Verdict {
    let mut finding = Finding::new(book, Invariant::Deadlines);
    for life in &book.lives {
        by_request(life, terms, &mut finding);
    }
    if !terms.lossy {
        for truth in &book.truths {
            by_expiry(book, truth, terms, &mut finding);
        }
        by_truth(book, &mut finding);
    }
    finding.done()
}

fn by_request<'h>(life: &Life<'h>, terms: &Terms, finding: &mut Finding<'_, 'h>) {
    let Some(grant) = life.grant else { return };
    // Who waits sends more than one request, of which the first says nothing; the last left before the answer at least.
    let tried = (life.limit == Some(0)).then_some(life.invoked);
    let first = (grant.asked.or(tried).unwrap_or(grant.at), grant.deadline, grant.ttl, None);
    let renewals = life.renewals.iter().map(|renewal| {
        (renewal.asked.unwrap_or(renewal.at), Some(renewal.deadline), renewal.ttl, Some(renewal.event))
    });
    for (asked, deadline, ttl, event) in std::iter::once(first).chain(renewals) {
        let (Some(deadline), Some(ttl)) = (deadline, ttl) else { continue };
        finding.checked();
        let honest = asked
            .saturating_add((ttl as f64 * (1.0 - terms.drift)) as u64)
            .saturating_sub(nanos(terms.margin))
            .saturating_add(nanos(terms.reading));
        if deadline > honest {
            let over = millis(deadline - honest);
            finding.violated(&[life], event.as_slice(), || {
                format!(
                    "the deadline of {life} is {over} later than a lease of {} asked at {asked} allows",
                    millis(ttl)
                )
            });
        }
    }
}

fn by_expiry<'h>(book: &Book<'h>, truth: &Truth<'h>, terms: &Terms, finding: &mut Finding<'_, 'h>) {
    for held in truth.holders {
        let (Some(life), Some(expires)) = (book.life(held.attempt), held.expires) else { continue };
        let Some(deadline) = life.deadline_at(truth.at) else { continue };
        finding.checked();
        if deadline > expires.saturating_add(nanos(terms.precision)) {
            let over = millis(deadline - expires);
            finding.violated(&[life], &[truth.event], || {
                format!("the deadline of {life} is {over} later than its expiry on the server")
            });
        }
    }
}

/// Whoever believes all the time while the server is asked must be a holder there.
fn by_truth<'h>(book: &Book<'h>, finding: &mut Finding<'_, 'h>) {
    let mut at = 0;
    let mut truths: Vec<_> = book.truths.iter().collect();
    truths.sort_by_key(|truth| (truth.lock, truth.at));
    for (lock, lives) in &book.locks {
        let mut begins: Vec<_> =
            lives.iter().filter_map(|&life| Some((book.lives[life].belief()?, life))).collect();
        begins.sort_by_key(|(belief, _)| belief.start);
        let (mut begins, mut active) = (begins.into_iter().peekable(), Vec::new());
        while truths.get(at).is_some_and(|truth| truth.lock < *lock) {
            at += 1;
        }
        while let Some(truth) = truths.get(at).filter(|truth| truth.lock == *lock) {
            at += 1;
            while let Some(next) = begins.next_if(|(belief, _)| belief.start <= truth.at) {
                active.push(next);
            }
            active.retain(|(belief, _)| belief.end > truth.at);
            for (belief, life) in active.iter().filter(|(belief, _)| belief.end > truth.until) {
                finding.checked();
                let life = &book.lives[*life];
                let known = |id| truth.holders.iter().any(|held| held.attempt == id);
                if !known(life.id) && !life.within.is_some_and(known) {
                    let left = millis(belief.end - truth.until);
                    finding.violated(&[life], &[truth.event], || {
                        format!("{life} believes for {left} more, and the server knows nothing of it")
                    });
                }
            }
        }
    }
}
