//! The result of a run of the suite.

use std::{fmt, time::Duration};

/// The result of a run of the suite.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The cases that passed.
    pub passed: Vec<&'static str>,
    /// The cases that do not apply, with the reason.
    pub skipped: Vec<(&'static str, String)>,
    /// The cases that failed, with the failure.
    pub failed: Vec<(&'static str, String)>,
    /// How long each case ran.
    pub took: Vec<(&'static str, Duration)>,
}

/// How many of the slowest cases are printed.
const LONGEST: usize = 5;

impl Report {
    /// Whether the case `name` failed.
    #[must_use]
    pub fn has_failed(&self, name: &str) -> bool {
        self.failed.iter().any(|(case, _)| *case == name)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (case, reason) in &self.skipped {
            writeln!(f, "skipped: {case}: {reason}")?;
        }
        for (case, why) in &self.failed {
            writeln!(f, "failed: {case}: {why}")?;
        }
        let mut longest = self.took.clone();
        longest.sort_by_key(|&(_, took)| std::cmp::Reverse(took));
        for (case, took) in longest.iter().take(LONGEST) {
            writeln!(f, "ran for {took:.1?}: {case}")?;
        }
        let (passed, skipped, failed) = (self.passed.len(), self.skipped.len(), self.failed.len());
        write!(f, "{passed} passed, {skipped} skipped, {failed} failed")
    }
}
