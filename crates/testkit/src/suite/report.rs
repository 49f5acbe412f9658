//! What a run of the suite came to.

use std::fmt;

/// What a run of the suite came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The cases that passed.
    pub passed: Vec<&'static str>,
    /// The cases that do not apply, with the reason.
    pub skipped: Vec<(&'static str, String)>,
    /// The cases that failed, with what went wrong.
    pub failed: Vec<(&'static str, String)>,
}

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
        let (passed, skipped, failed) = (self.passed.len(), self.skipped.len(), self.failed.len());
        write!(f, "{passed} passed, {skipped} skipped, {failed} failed")
    }
}
