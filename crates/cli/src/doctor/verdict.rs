//! One answer of all findings: the exit code, the level, and what would raise it.

use std::cmp::Reverse;

use leasehold::{Diagnostic, Level, Severity};

use super::Examination;

/// The exit code if there is a warning, or something could not be looked at.
const WARNING: u8 = 1;
/// The exit code if locks cannot be used.
const BROKEN: u8 = 2;

impl Examination {
    /// The severity of the worst finding.
    pub(crate) fn worst(&self) -> Severity {
        self.findings.iter().map(|found| found.severity).max().unwrap_or(Severity::Good)
    }

    /// The findings, the worst first; those that are equally bad in the order of the looks.
    pub(crate) fn worst_first(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<_> = self.findings.iter().collect();
        sorted.sort_by_key(|found| Reverse(found.severity));
        sorted
    }

    /// The exit code of the command.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.worst() {
            Severity::Good => crate::exit::DONE,
            Severity::Broken => BROKEN,
            _ => WARNING,
        }
    }

    /// The level as a word; `None` while it is not known.
    pub(crate) fn level(&self) -> Option<String> {
        self.guarantee.as_ref().map(|guarantee| guarantee.level.to_string())
    }

    /// What would raise the level: each setting with the value that it should have.
    pub(crate) fn raised_by(&self) -> Vec<String> {
        let findings = self.guarantee.iter().flat_map(|guarantee| &guarantee.findings);
        findings.map(|finding| format!("{}: {}", finding.what, finding.wanted)).collect()
    }

    /// The servers that the findings are about, each one time.
    pub(crate) fn servers(&self) -> Vec<&str> {
        let mut servers: Vec<_> = self.findings.iter().filter_map(|found| found.server.as_deref()).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// The last line: the level that follows, and what would raise it.
    pub(super) fn closing_line(&self) -> String {
        if self.worst() == Severity::Broken {
            return "none, because locks cannot be used: mend the broken lines first".to_owned();
        }
        let Some(guarantee) = &self.guarantee else {
            return "not known, so count on best effort: the line `guarantee` tells what is missing"
                .to_owned();
        };
        let (level, engine, raised_by) = (guarantee.level, self.engine, self.raised_by());
        match level {
            Level::Exact => format!("{level}, the highest"),
            _ if raised_by.is_empty() => format!("{level}, the highest that {engine} has with this URL"),
            _ => format!("{level}; it rises with {}", raised_by.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold::{Guarantee, Locks};

    use super::*;

    fn guarantee(level: Level, lowered: bool) -> Guarantee {
        let mut guarantee = Locks::connect("memory:").unwrap().guarantee_blocking().unwrap();
        guarantee.level = level;
        if lowered {
            guarantee.lower("appendfsync", "no", "always", "loss");
            guarantee.lower("maxmemory-policy", "allkeys-lru", "noeviction", "loss");
        }
        guarantee
    }

    fn of(guarantee: Option<Guarantee>, severities: &[Severity]) -> Examination {
        let finding = |&severity| Diagnostic::new("x", severity, "", "").of_server("b:1");
        Examination {
            engine: "redis",
            is_reached: true,
            guarantee,
            findings: severities.iter().map(finding).collect(),
            times: None,
        }
    }

    #[test]
    fn the_worst_finding_decides_the_exit_code() {
        for (severities, code) in [
            (&[][..], 0),
            (&[Severity::Good], 0),
            (&[Severity::Good, Severity::Unknown], 1),
            (&[Severity::Warning, Severity::Good], 1),
            (&[Severity::Broken, Severity::Warning], 2),
        ] {
            assert_eq!(of(None, severities).exit_code(), code, "{severities:?}");
        }
    }

    #[test]
    fn the_worst_is_first_and_equals_keep_their_order() {
        let (good, unknown) = (Severity::Good, Severity::Unknown);
        let mut examination =
            of(None, &[good, unknown, Severity::Warning, good, Severity::Broken, Severity::Warning]);
        for (number, finding) in examination.findings.iter_mut().enumerate() {
            finding.found = number.to_string();
        }
        let order: Vec<_> = examination.worst_first().iter().map(|found| found.found.as_str()).collect();
        assert_eq!(order, ["4", "2", "5", "1", "0", "3"]);
    }

    #[test]
    fn the_closing_line_tells_what_raises_the_level() {
        let line = |level, lowered| of(Some(guarantee(level, lowered)), &[Severity::Good]).closing_line();
        assert_eq!(line(Level::Exact, false), "exact, the highest");
        assert_eq!(
            line(Level::LeaseBounded, false),
            "lease-bounded, the highest that redis has with this URL"
        );
        assert_eq!(
            line(Level::LeaseBounded, true),
            "best effort; it rises with appendfsync: always; maxmemory-policy: noeviction"
        );
        assert!(of(None, &[Severity::Unknown]).closing_line().starts_with("not known"));
        assert!(
            of(Some(guarantee(Level::Exact, false)), &[Severity::Broken]).closing_line().starts_with("none")
        );
    }

    #[test]
    fn servers_are_named_one_time() {
        assert_eq!(of(None, &[Severity::Good, Severity::Good]).servers(), ["b:1"]);
    }
}
