//! Checks that every id of a diagnostic has a section on the page of `leasehold doctor`, and that every section there
//! is of an id that exists.
//!
//! Only files of a diagnosis make diagnostics: those with `diagnose` or `doctor` in their path. There an id is the
//! first argument of a function that makes a diagnostic, the value of a field whose name ends with `id`, or the value
//! of a constant whose name begins with `ID` or ends with it.

use std::{collections::BTreeSet, path::Path};

use super::Text;

/// The page with a section for each id.
const PAGE: &str = "docs/doctor.md";
/// The ends of the text before the literal of an id.
const BEFORE_ID: [&str; 9] = [
    "Diagnostic::good(",
    "Diagnostic::new(",
    "Self::good(",
    " good(",
    " warning(",
    " broken(",
    " unknown(",
    " id:",
    "_id:",
];

/// Whether a file makes diagnostics.
pub(super) fn is_of_a_diagnosis(shown: &str) -> bool {
    shown.starts_with("crates/")
        && shown.contains("/src/")
        && (shown.contains("diagnose") || shown.contains("doctor"))
}

/// Complaints about ids without a section, and about sections without an id.
pub(super) fn complaints(rust: &[Text], markdown: &[Text], shown: impl Fn(&Path) -> String) -> Vec<String> {
    let page = markdown.iter().find(|file| shown(&file.path) == PAGE);
    let sections: BTreeSet<&str> = page.iter().flat_map(|page| sections(&page.text)).collect();
    let ids: BTreeSet<&str> = rust
        .iter()
        .filter(|file| is_of_a_diagnosis(&shown(&file.path)))
        .flat_map(|file| ids(&file.text))
        .collect();
    let missing =
        ids.difference(&sections).map(|id| format!("{PAGE}: no section explains the diagnostic `{id}`"));
    let unused = sections.difference(&ids).map(|id| format!("{PAGE}: there is no diagnostic `{id}`"));
    missing.chain(unused).collect()
}

/// The ids in the headings of a page: those with one word in backticks, and nothing else.
fn sections(page: &str) -> impl Iterator<Item = &str> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings
        .filter_map(|line| line.trim_start_matches('#').trim().strip_prefix('`')?.strip_suffix('`'))
        .filter(|id| is_id(id))
}

/// The ids in a source, without those of its tests.
fn ids(source: &str) -> impl Iterator<Item = &str> {
    let source = source.split("\nmod tests {").next().unwrap_or_default();
    source.match_indices('"').filter_map(|(at, _)| {
        let (before, literal) = (source[..at].trim_end(), &source[at + 1..]);
        let text = literal.split_once('"')?.0;
        let is_constant = before.rsplit('\n').next().is_some_and(|line| {
            let name =
                line.split_once("const ").and_then(|(_, rest)| rest.split_once(':')).map(|(name, _)| name);
            name.is_some_and(|name| name.starts_with("ID") || name.ends_with("ID"))
        });
        (is_id(text) && (is_constant || BEFORE_ID.iter().any(|end| before.ends_with(end)))).then_some(text)
    })
}

/// A word in kebab case.
fn is_id(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(source: &str, page: &str) -> Vec<String> {
        let text = |path: &str, text: &str| Text { path: path.into(), text: text.to_owned() };
        let rust = [
            text("crates/a/src/diagnose/clock.rs", source),
            text("crates/a/src/other.rs", "Diagnostic::good(\"elsewhere\", \"x\")"),
        ];
        complaints(&rust, &[text(PAGE, page)], |path| path.display().to_string())
    }

    const SOURCE: &str = "const CLOCK_ID: &str = \"clock\";\n all.push(Diagnostic::new(\n    \"two-words\", Severity::Good, \
        \"not-an-id\", \"\"));\nlet ids = Ids { space: \"none\", file_id: \"third\" };\n\nmod tests { Diagnostic::good(\"of-a-test\", x) }";

    #[test]
    fn an_id_without_a_section_is_reported() {
        assert_eq!(
            found_in(SOURCE, "# clock\n## `two-words`\n"),
            ["clock", "third"].map(|id| format!("{PAGE}: no section explains the diagnostic `{id}`"))
        );
    }

    #[test]
    fn a_section_without_an_id_is_reported() {
        let page =
            "## `clock`\n## `gone`\n## The checks of `leasehold doctor`\n### `two-words`\n### `third`\n";
        assert_eq!(found_in(SOURCE, page), [format!("{PAGE}: there is no diagnostic `gone`")]);
    }
}
