//! The invariants, checked mechanically on a recorded history.
//!
//! [`check`] reads a history once and answers a [`Report`] with a verdict for each [`Invariant`]: what was checked, figures, and
//! for a violation the smallest excerpt that shows it. No alarm is false as long as the stamping rule of
//! [`history`](crate::history) was kept. Exclusion is `O(n log n)` in the number of holds.

mod book;
mod finding;
mod life;
mod report;
mod terms;

mod cancels;
mod deadlines;
mod exclusion;
mod leaks;
mod limits;
mod loss;
mod order;
mod releases;
mod shape;
mod tokens;
mod wakeups;

pub use report::{Invariant, Report, Verdict, Violation};
pub use terms::Terms;

use crate::history::History;
use book::Book;

/// Checks a history of one run.
#[must_use]
pub fn check(history: &History, terms: &Terms) -> Report {
    let book = Book::read(history);
    let verdicts = vec![
        shape::check(&book),
        exclusion::check(&book),
        deadlines::check(&book, terms),
        tokens::check(&book, terms),
        leaks::check(&book),
        wakeups::check(&book, terms),
        order::check(&book, terms),
        loss::check(&book, terms),
        releases::check(&book, terms),
        cancels::check(&book, terms),
        limits::check(&book, terms),
    ];
    Report { verdicts }
}
