//! Leaves out the findings that only follow from another one: one fault of a server makes every request fail.

use leasehold::{Diagnostic, Severity};

/// The ids of the findings that tell the error of a request.
const OF_REQUESTS: [&str; 7] = ["reach", "guarantee", "diagnosis", "lock", "show", "break", "list"];

/// Leaves out the findings about requests that failed for a reason that another finding tells: a diagnostic of the
/// engine that [causes](Diagnostic::causes) their error or is the same sentence, or else the line `reach`.
/// `reach_error` is the message of the error by which `engine` was not reached.
pub(super) fn leave_out_consequences(
    findings: &mut Vec<Diagnostic>,
    engine: &str,
    reach_error: Option<&str>,
) {
    // A message begins with its subject: the engine, or a lock of the engine. Its reason comes behind.
    let reason = reach_error.and_then(|message| message.strip_prefix(engine)?.strip_prefix(" engine: "));
    let of_engine =
        findings.iter().filter(|found| found.severity == Severity::Broken && !is_of_a_request(found));
    let causes: Vec<_> = of_engine.cloned().collect();
    findings.retain(|found| {
        if found.severity == Severity::Good || !is_of_a_request(found) {
            return true;
        }
        let is_told_by = |cause: &Diagnostic| {
            cause.is_cause_of(&found.found)
                || reason == Some(&cause.found) && found.found.ends_with(&cause.found)
        };
        let is_caused = causes.iter().any(is_told_by);
        let follows_from_reach =
            found.id != "reach" && reason.is_some_and(|reason| found.found.ends_with(reason));
        !(is_caused || follows_from_reach)
    });
}

/// Whether a finding tells the error of a request.
fn is_of_a_request(found: &Diagnostic) -> bool {
    OF_REQUESTS.contains(&found.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids of the findings that are left.
    fn left(findings: &[Diagnostic], reach_error: Option<&str>) -> Vec<&'static str> {
        let mut findings = findings.to_vec();
        leave_out_consequences(&mut findings, "postgres", reach_error);
        findings.iter().map(|found| found.id).collect()
    }

    fn findings(error: &str) -> Vec<Diagnostic> {
        vec![
            Diagnostic::good("url", error),
            Diagnostic::new("reach", Severity::Broken, format!("postgres engine: {error}"), ""),
            Diagnostic::new(
                "guarantee",
                Severity::Unknown,
                format!("it cannot be read: postgres engine: {error}"),
                "",
            ),
            Diagnostic::new("lock", Severity::Broken, format!("postgres lock \"x\": {error}"), ""),
            Diagnostic::new("list", Severity::Warning, "names cannot be listed: another reason", ""),
        ]
    }

    #[test]
    fn one_cause_is_told_one_time() {
        let mut found = findings("it is a pooler: add a URL");
        let all = ["url", "reach", "guarantee", "lock", "list"];
        assert_eq!(left(&found, None), all);
        let error = "postgres engine: it is a pooler: add a URL";
        assert_eq!(left(&found, Some(error)), ["url", "reach", "list"]);
        assert_eq!(left(&found, Some("postgres engine: another")), all);
        let pooler = Diagnostic::new("postgres-pooler", Severity::Broken, "a pooler", "");
        found.push(pooler.causing("it is a pooler"));
        assert_eq!(left(&found, Some(error)), ["url", "list", "postgres-pooler"]);
        assert_eq!(left(&found, None), ["url", "list", "postgres-pooler"]);
    }

    #[test]
    fn a_sentence_is_told_one_time() {
        let error = "its tables have version 9";
        let mut found = findings(error);
        found.push(Diagnostic::new("postgres-tables", Severity::Broken, error, ""));
        let reach_error = format!("postgres engine: {error}");
        assert_eq!(left(&found, Some(&reach_error)), ["url", "list", "postgres-tables"]);
        found[5].severity = Severity::Good;
        assert_eq!(left(&found, Some(&reach_error)), ["url", "reach", "list", "postgres-tables"]);
    }

    #[test]
    fn what_a_setting_lowers_is_no_consequence() {
        let mut found = findings("no answer");
        found.push(Diagnostic::new("disk", Severity::Broken, "it is full", "").causing("no space"));
        assert_eq!(left(&found, None).len(), 6);
    }
}
