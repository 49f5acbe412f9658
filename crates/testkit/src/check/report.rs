//! What a check came to.

use std::fmt;

use crate::history::Event;

/// What must hold, by the numbers of the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Invariant {
    /// The history itself is whole: every event has its cause, and no record is missing.
    Shape,
    /// I1: exclusive excludes everything, shared excludes exclusive, permits stay within their limit.
    Exclusion,
    /// I2: deadlines are honest.
    Deadlines,
    /// I4: tokens are unique and grow in the order of grants.
    Tokens,
    /// I6: nothing is left at rest.
    Leaks,
    /// I7: no wake-up is lost.
    WakeUps,
    /// I8: first come, first served.
    Order,
    /// I9: a loss is told, and `check` is false from the deadline on.
    Loss,
    /// I10: a release answers the truth.
    Releases,
    /// I11: a cancelled attempt leaves nothing.
    Cancels,
    /// I12: a limited wait ends within its limit.
    Limits,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "shape of the history",
            Self::Exclusion => "I1 exclusion",
            Self::Deadlines => "I2 deadlines",
            Self::Tokens => "I4 tokens",
            Self::Leaks => "I6 leaks",
            Self::WakeUps => "I7 wake-ups",
            Self::Order => "I8 order",
            Self::Loss => "I9 loss told",
            Self::Releases => "I10 releases",
            Self::Cancels => "I11 cancels",
            Self::Limits => "I12 limits",
        })
    }
}

/// The verdicts on one history.
#[derive(Clone, Debug)]
pub struct Report {
    /// One for each invariant.
    pub verdicts: Vec<Verdict>,
}

/// The verdict on one invariant.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Which.
    pub invariant: Invariant,
    /// How many things were checked: 0 proves nothing.
    pub checked: u64,
    /// How many violations there are.
    pub violations: u64,
    /// The first of them.
    pub examples: Vec<Violation>,
    /// Figures, each with its name.
    pub figures: Vec<(&'static str, String)>,
}

/// One violation.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The lock; empty for the whole run.
    pub lock: String,
    /// What went wrong.
    pub what: String,
    /// The events that show it.
    pub excerpt: Vec<Event>,
}

impl Report {
    /// Whether nothing was violated.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.violations == 0)
    }

    /// The verdict on one invariant.
    #[must_use]
    pub fn verdict(&self, invariant: Invariant) -> Option<&Verdict> {
        self.verdicts.iter().find(|verdict| verdict.invariant == invariant)
    }

    /// How often one invariant was violated.
    #[must_use]
    pub fn violations(&self, invariant: Invariant) -> u64 {
        self.verdict(invariant).map_or(0, |verdict| verdict.violations)
    }

    /// The invariants that were violated.
    #[must_use]
    pub fn violated(&self) -> Vec<Invariant> {
        let violated = self.verdicts.iter().filter(|verdict| verdict.violations > 0);
        violated.map(|verdict| verdict.invariant).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for verdict in &self.verdicts {
            let Verdict { invariant, checked, violations, examples, figures } = verdict;
            write!(f, "{invariant}: {violations} violations in {checked} checked")?;
            for (name, figure) in figures {
                write!(f, ", {name} {figure}")?;
            }
            writeln!(f)?;
            for example in examples {
                write!(f, "{example}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:?}: {}", self.lock, self.what)?;
        let start = self.excerpt.first().map_or(0, |event| event.t);
        for event in &self.excerpt {
            let what = serde_json::to_string(&event.what).map_err(|_| fmt::Error)?;
            let (at, proc, task, attempt) = (millis(event.t - start), event.proc, event.task, event.attempt);
            writeln!(f, "    {} (+{at}) proc {proc} task {task} attempt {attempt:x}: {what}", event.t)?;
        }
        Ok(())
    }
}

/// Nanoseconds as milliseconds, for people.
pub(super) fn millis(nanos: u64) -> String {
    format!("{}.{:03} ms", nanos / 1_000_000, nanos / 1_000 % 1_000)
}
