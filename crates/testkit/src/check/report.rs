//! The result of a check.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::Invariant;
use crate::history::{Event, What};

/// The verdicts on one history. The text format is for people and the JSON format for programs; the content is the
/// same.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The size of the history, which says how much the verdicts are worth.
    #[serde(serialize_with = "figures_as_map")]
    pub figures: Figures,
    /// The verdicts, one for each invariant.
    pub verdicts: Vec<Verdict>,
}

/// Figures with their names.
pub type Figures = Vec<(&'static str, Figure)>;

/// The verdict on one invariant.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The invariant.
    pub invariant: Invariant,
    /// The result.
    pub outcome: Outcome,
    /// The number of checked items, such as holds or writes.
    pub checked: u64,
    /// The number of violations.
    pub violations: u64,
    /// The number of locks for which the search was given up.
    pub undecided: u64,
    /// Further figures.
    #[serde(serialize_with = "figures_as_map")]
    pub figures: Figures,
    /// The first violations.
    pub examples: Vec<Violation>,
}

/// The result for one invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing was violated.
    Holds,
    /// At least one violation.
    Violated,
    /// The search for an order was given up, because it exceeded its limit. This counts as failed.
    Undecided,
    /// The history has no event of this kind, so the verdict proves nothing.
    NotChecked,
}

/// A figure. In JSON it is a plain number; times are in milliseconds there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A count. The counts of several runs are added up.
    Sum(u64),
    /// A largest count. Of the figures of several runs, the largest is kept.
    Most(u64),
    /// A longest time in nanoseconds. Of the figures of several runs, the longest is kept.
    Longest(u64),
}

/// One violation.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// The lock or the resource. Empty for a violation of the whole run.
    pub lock: String,
    /// What went wrong.
    pub what: String,
    /// The smallest set of events that shows the violation.
    #[serde(serialize_with = "relative")]
    pub excerpt: Vec<Event>,
}

impl Report {
    /// Whether nothing was violated, and nothing was left undecided.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.verdicts.iter().all(|verdict| matches!(verdict.outcome, Outcome::Holds | Outcome::NotChecked))
    }

    /// The verdict on one invariant.
    #[must_use]
    pub fn verdict(&self, invariant: Invariant) -> Option<&Verdict> {
        self.verdicts.iter().find(|verdict| verdict.invariant == invariant)
    }

    /// The number of violations of one invariant.
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

impl Verdict {
    /// The figure with this name.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<Figure> {
        self.figures.iter().find(|(other, _)| *other == name).map(|(_, figure)| *figure)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, figure)) in self.figures.iter().enumerate() {
            write!(f, "{}{name} {figure}", if at == 0 { "" } else { ", " })?;
        }
        writeln!(f)?;
        for verdict in &self.verdicts {
            let Verdict { invariant, outcome, checked, violations, undecided, .. } = verdict;
            write!(f, "{invariant}: {outcome}, {checked} checked")?;
            if *violations > 0 {
                write!(f, ", {violations} violations")?;
            }
            if *undecided > 0 {
                write!(f, ", {undecided} undecided")?;
            }
            for (name, figure) in &verdict.figures {
                write!(f, ", {name} {figure}")?;
            }
            writeln!(f)?;
            for example in &verdict.examples {
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

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::Violated => "VIOLATED",
            Self::Undecided => "UNDECIDED",
            Self::NotChecked => "not checked",
        })
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sum(count) | Self::Most(count) => count.fmt(f),
            Self::Longest(nanos) => f.write_str(&millis(*nanos)),
        }
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Sum(count) | Self::Most(count) => serializer.serialize_u64(*count),
            Self::Longest(nanos) => serializer.serialize_f64(*nanos as f64 / 1e6),
        }
    }
}

fn figures_as_map<S: Serializer>(figures: &Figures, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(figures.len()))?;
    for (name, figure) in figures {
        map.serialize_entry(name, figure)?;
    }
    map.end()
}

/// An event in an excerpt, with its time in milliseconds since the first event.
#[derive(Serialize)]
struct Shown<'e> {
    ms: f64,
    proc: u32,
    task: u32,
    attempt: u64,
    #[serde(flatten)]
    what: &'e What,
}

fn relative<S: Serializer>(excerpt: &[Event], serializer: S) -> Result<S::Ok, S::Error> {
    let start = excerpt.first().map_or(0, |event| event.t);
    serializer.collect_seq(excerpt.iter().map(|event| Shown {
        ms: (event.t - start) as f64 / 1e6,
        proc: event.proc,
        task: event.task,
        attempt: event.attempt,
        what: &event.what,
    }))
}

/// Nanoseconds as milliseconds, for people.
pub(super) fn millis(nanos: u64) -> String {
    format!("{}.{:03} ms", nanos / 1_000_000, nanos / 1_000 % 1_000)
}
