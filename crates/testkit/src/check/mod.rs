//! Checks the invariants on a recorded history.
//!
//! [`check`] reads a history once and returns a [`Report`] with a verdict for each [`Invariant`]. A verdict says what
//! was checked, has figures, and shows for each violation the smallest excerpt of the history. There are no false
//! alarms if the recorder kept the stamping rule of [`history`](crate::history) and the [`Terms`] state what the run
//! promised. [`Report::holds`] gives the overall result. The report prints as text, and as JSON by serde.

mod apply_event;
mod attempt_history;
mod finding;
mod history_index;
mod hold_counts;
mod invariant;
mod lifetime;
mod report;
mod stalls;
mod terms;
mod totals;

mod cancels;
mod deadlines;
mod elections;
mod exclusion;
mod fence;
mod leaks;
mod limits;
mod loss;
mod one_order;
mod order;
mod releases;
mod results;
mod shape;
mod tokens;
mod wakeups;

pub use invariant::Invariant;
pub use report::{Figure, Figures, Outcome, Report, Verdict, Violation};
pub use terms::Terms;

use crate::history::History;
use history_index::HistoryIndex;

/// Checks the history of one run.
#[must_use]
pub fn check(history: &History, terms: &Terms) -> Report {
    let index = HistoryIndex::read(history, terms);
    let [one_order, taken] = one_order::check(&index);
    let verdicts = vec![
        shape::check(&index),
        exclusion::check(&index),
        deadlines::check(&index),
        one_order,
        tokens::check(&index),
        fence::check(&index),
        leaks::check(&index),
        wakeups::check(&index),
        order::check(&index),
        loss::check(&index),
        releases::check(&index),
        cancels::check(&index),
        limits::check(&index),
        taken,
        elections::check(&index),
        results::check(&index),
    ];
    Report { figures: totals::figures(&index), verdicts }
}
