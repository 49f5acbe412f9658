//! An examination as text: one line for each finding, the worst first, and the level at the end.

use leasehold::Diagnostic;

use super::Examination;
use crate::text::{columns, escaped};

/// The lines: severity, id, what was found, and after an arrow what to do.
pub(crate) fn lines(examination: &Examination) -> String {
    let row = |found: &Diagnostic| {
        let server = found.server.as_ref().map_or_else(String::new, |server| format!("{server}: "));
        let advice = if found.advice.is_empty() { String::new() } else { format!(" -> {}", found.advice) };
        let sentence = escaped(&format!("{server}{}{advice}", found.found));
        vec![found.severity.to_string(), found.id.to_owned(), sentence]
    };
    let closing = vec!["level".to_owned(), String::new(), escaped(&examination.closing_line())];
    columns(examination.worst_first().into_iter().map(row).chain([closing]).collect())
}

#[cfg(test)]
mod tests {
    use leasehold::Severity;

    use super::*;

    #[test]
    fn each_finding_is_one_aligned_line() {
        let examination = Examination {
            engine: "redis",
            is_reached: true,
            guarantee: None,
            findings: vec![
                Diagnostic::good("url", "by --url"),
                Diagnostic::new("redis-clock", Severity::Warning, "it is\nlate\u{1b}[2J", "start ntpd")
                    .of_server("h:1"),
            ],
            times: None,
        };
        assert_eq!(
            lines(&examination),
            "warning  redis-clock  h:1: it is\\u{a}late\\u{1b}[2J -> start ntpd\n\
             good     url          by --url\n\
             level                 not known, so count on best effort: the line `guarantee` tells what is missing\n"
        );
    }
}
