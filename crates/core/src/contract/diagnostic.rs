//! What an operator is told about a server and about the rights of its user.

use std::fmt;

/// One thing that was looked at, with what was found and what to do. Its text and advice are one sentence each, without
/// secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// What was looked at, as a stable word in kebab case: `redis-persistence`, `clock`, ...
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The server, where a URL has several.
    pub server: Option<String>,
    /// What was found.
    pub found: String,
    /// What to do; empty if there is nothing to do.
    pub advice: String,
    /// Texts of error messages. An error whose message has one of these texts only follows from what was found here, so
    /// it needs no diagnostic of its own.
    pub causes: Vec<String>,
}

/// How bad a diagnostic is, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// It is as it should be.
    Good,
    /// It could not be looked at, so it may be as bad as possible.
    Unknown,
    /// It lowers the guarantee, or makes waits or losses likely.
    Warning,
    /// Locks cannot be used as they are, or exclude nobody.
    Broken,
}

impl Diagnostic {
    /// A good diagnostic: nothing to do.
    #[must_use]
    pub fn good(id: &'static str, found: impl Into<String>) -> Self {
        Self::new(id, Severity::Good, found, "")
    }

    /// A diagnostic about all servers.
    #[must_use]
    pub fn new(
        id: &'static str,
        severity: Severity,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (found, advice) = (found.into(), advice.into());
        Self { id, severity, server: None, found, advice, causes: Vec::new() }
    }

    /// The same diagnostic, about one server of several.
    #[must_use]
    pub fn of_server(mut self, server: impl Into<String>) -> Self {
        self.server = Some(server.into());
        self
    }

    /// The same diagnostic, from which every error with this text in its message follows.
    ///
    /// ```
    /// use leasehold_core::{Diagnostic, Severity};
    /// let full = Diagnostic::new("disk", Severity::Broken, "the disk is full", "delete files");
    /// let full = full.causing("no space left");
    /// assert!(full.is_cause_of("file engine: no space left on device"));
    /// assert!(!full.is_cause_of("file engine: permission denied"));
    /// ```
    #[must_use]
    pub fn causing(mut self, text: impl Into<String>) -> Self {
        self.causes.push(text.into());
        self
    }

    /// Whether an error with this message only follows from what was found.
    #[must_use]
    pub fn is_cause_of(&self, message: &str) -> bool {
        self.causes.iter().any(|text| message.contains(text))
    }
}

impl Severity {
    /// The severity as a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Broken => "broken",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
