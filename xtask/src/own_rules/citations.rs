//! Checks the citations of rules. A citation is a letter and a number, as in "R1". Each rule is stated in one document,
//! together with the test that shows that the code follows it. Each citation must name a stated rule.

use std::collections::{BTreeMap, BTreeSet};

/// The document that states the rules (R) and the invariants (I), each under a heading like `### R1. Its name`.
const RULES: &str = "docs/rules.md";

/// The document with the fault matrix (F), a table in which each row is one fault.
const FAULT_MATRIX: &str = "docs/proof.md";

/// The extensions of the files in which rules are cited.
pub(super) const KINDS: [&str; 9] = ["rs", "md", "patch", "lua", "sql", "txt", "toml", "py", "sh"];

/// Words that look like citations but are none: here an option of compilers.
const NO_CITATIONS: [&str; 1] = ["O2"];

/// If one of these words comes before a bare number, the text cites a rule without saying which list it means.
const VAGUE_WORDS: [&str; 4] = ["rule", "rules", "trap", "traps"];

/// A rule, as its document states it.
struct Rule<'a> {
    line: usize,
    id: &'a str,
    has_reason: bool,
    /// The tests of the rule, each as `path.rs::name`.
    tests: Vec<&'a str>,
}

/// Complaints about citations of unknown rules, about rules that nothing cites, and about rules without a reason or a
/// test. `files` has the path and the text of all files that may cite rules.
pub(super) fn complaints(files: &BTreeMap<String, &str>) -> Vec<String> {
    let text = |path: &str| files.get(path).copied().unwrap_or_default();
    let rules = rules(text(RULES));
    let known_ids: BTreeSet<&str> =
        rules.iter().map(|rule| rule.id).chain(fault_ids(text(FAULT_MATRIX))).collect();
    let mut complaints = Vec::new();
    let mut cited_ids = BTreeSet::new();
    for (path, text) in files {
        for (number, line) in (1..).zip(text.lines()) {
            for id in citations(line) {
                if !known_ids.contains(id) {
                    complaints.push(format!(
                        "{path}:{number}: {id} is neither in {RULES} nor a row of {FAULT_MATRIX}"
                    ));
                } else if !path.ends_with(".md") {
                    cited_ids.insert(id);
                }
            }
            if let Some(words) = vague_citation(line) {
                complaints
                    .push(format!("{path}:{number}: \"{words}\" names no list: cite a rule of {RULES}"));
            }
        }
    }
    let mut seen_ids = BTreeSet::new();
    for rule in &rules {
        let mut complain =
            |what: String| complaints.push(format!("{RULES}:{}: {} {what}", rule.line, rule.id));
        if !seen_ids.insert(rule.id) {
            complain("is stated twice".to_owned());
        }
        if !cited_ids.contains(rule.id) {
            complain("is cited by no code, test or seeded bug".to_owned());
        }
        if !rule.has_reason {
            complain("has no reason: a paragraph that begins with `Why: `".to_owned());
        }
        if rule.tests.is_empty() {
            complain("names no test that holds it, as `path.rs::name`".to_owned());
        }
        for test in rule.tests.iter().filter(|test| !is_test(test, files)) {
            complain(format!("names the test `{test}`, which does not exist"));
        }
    }
    complaints
}

/// The rules that a document states, in order.
fn rules(text: &str) -> Vec<Rule<'_>> {
    let mut rules: Vec<Rule<'_>> = Vec::new();
    for (line, words) in (1..).zip(text.lines()) {
        if let Some((id, _)) = words.strip_prefix("### ").and_then(|heading| heading.split_once(". ")) {
            rules.push(Rule { line, id, has_reason: false, tests: Vec::new() });
        } else if let Some(rule) = rules.last_mut() {
            rule.has_reason |= words.starts_with("Why: ");
            rule.tests.extend(words.split('`').skip(1).step_by(2).filter(|code| code.contains(".rs::")));
        }
    }
    rules
}

/// The numbers in the first column of the fault matrix.
fn fault_ids(text: &str) -> impl Iterator<Item = &str> {
    let first_cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    first_cells.flat_map(|cell| cell.split(", ")).filter(|id| id.starts_with('F') && is_id(id))
}

/// The words of a line that consist of a capital letter and a number. Bytes in URLs, such as `%C3`, are left out.
fn citations(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut char_before = None;
    line.split_inclusive(move |c| !is_part(c)).filter_map(move |piece| {
        let is_byte = char_before == Some('%');
        char_before = piece.chars().next_back();
        let word = piece.trim_end_matches(|c| !is_part(c));
        (!is_byte && is_id(word) && !NO_CITATIONS.contains(&word)).then_some(word)
    })
}

fn is_id(word: &str) -> bool {
    let mut chars = word.chars();
    matches!(word.len(), 2 | 3)
        && chars.next().is_some_and(|letter| letter.is_ascii_uppercase())
        && chars.all(|digit| digit.is_ascii_digit())
}

/// A word such as "rule" that is followed by a bare number, if the line has one.
fn vague_citation(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let bare = word.trim_start_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase();
        let next = words.peek().filter(|next| next.starts_with(|c: char| c.is_ascii_digit()));
        if let (true, Some(next)) = (VAGUE_WORDS.contains(&bare.as_str()), next) {
            return Some(format!("{word} {next}"));
        }
    }
    None
}

/// Whether `test` is `path.rs::name`, and the file at this path has a test function of this name.
fn is_test(test: &str, files: &BTreeMap<String, &str>) -> bool {
    let Some((path, name)) = test.rsplit_once("::") else { return false };
    let lines: Vec<&str> = files.get(path).copied().unwrap_or_default().lines().map(str::trim).collect();
    let signature = format!("fn {name}(");
    lines.iter().enumerate().any(|(index, line)| {
        let is_function = line.strip_prefix("async ").unwrap_or(line).starts_with(&signature);
        let above =
            lines[..index].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        is_function && above.into_iter().any(|line| line.starts_with("#[test]") || line.contains("::test"))
    })
}

// A citation of a rule that does not exist is written in two parts, so that this file does not contain it.
#[cfg(test)]
mod tests {
    use super::*;

    const RULE: &str = "# Rules\n\n### R1. Its name\n\nWhat must be.\n\nWhy: so.\n\n`a/src/x.rs::holds`\n";
    const TEST: &str = "// R1\n#[test]\n#[cfg(unix)]\n/// Words.\nfn holds() {}\nfn helps() {}\n";

    fn found_in(files: &[(&str, &str)]) -> Vec<String> {
        complaints(&files.iter().map(|&(path, text)| (path.to_owned(), text)).collect())
    }

    fn assert_one(files: &[(&str, &str)], words: &str) {
        let complaints = found_in(files);
        assert!(
            complaints.len() == 1 && complaints[0].contains(words),
            "{complaints:?} are not one with {words:?}"
        );
    }

    #[test]
    fn a_rule_that_is_cited_and_held_passes() {
        assert_eq!(found_in(&[(RULES, RULE), ("a/src/x.rs", TEST)]), [""; 0]);
        let asynchronous = TEST.replace("#[test]", "#[tokio::test]").replace("fn holds", "async fn holds");
        assert_eq!(found_in(&[(RULES, RULE), ("a/src/x.rs", &asynchronous)]), [""; 0]);
    }

    #[test]
    fn a_citation_of_an_unknown_rule_is_reported_with_its_line() {
        let text = format!("{TEST}// R1, {}: words.\n", concat!("R", "99"));
        assert_one(&[(RULES, RULE), ("a/src/x.rs", &text)], concat!("a/src/x.rs:7: R", "99 is neither"));
        for kind in ["b.md", "b.patch", "b.sql"] {
            assert_one(&[(RULES, RULE), ("a/src/x.rs", TEST), (kind, concat!("(Q", "7)"))], ":1: Q");
        }
    }

    #[test]
    fn a_bare_number_is_no_citation() {
        for text in [concat!("//! Rule", " 4."), concat!("(trap", " 12, R1)")] {
            assert_one(&[(RULES, RULE), ("a/src/x.rs", TEST), ("b.md", text)], "names no list");
        }
        assert_eq!(vague_citation("the rules of R1, 4 of them"), None);
    }

    #[test]
    fn a_rule_cited_only_by_documents_is_reported() {
        let code = TEST.replace("// R1\n", "");
        assert_one(&[(RULES, RULE), ("a/src/x.rs", &code), ("b.md", "R1\n")], "R1 is cited by no code");
    }

    #[test]
    fn a_missing_test_is_reported() {
        for other in ["a/src/x.rs::helps", "a/src/x.rs::hold", "a/src/y.rs::holds"] {
            let rule = RULE.replace("a/src/x.rs::holds", other);
            assert_one(&[(RULES, &rule), ("a/src/x.rs", TEST)], other);
        }
    }

    #[test]
    fn a_rule_without_reason_or_test_and_a_duplicate_are_reported() {
        assert_one(&[(RULES, &RULE.replace("Why: ", "")), ("a/src/x.rs", TEST)], "has no reason");
        assert_one(&[(RULES, &RULE.replace('`', "")), ("a/src/x.rs", TEST)], "names no test");
        assert_one(&[(RULES, &format!("{RULE}{RULE}")), ("a/src/x.rs", TEST)], "R1 is stated twice");
    }

    #[test]
    fn rows_of_the_fault_matrix_can_be_cited() {
        let rows = "| F01 | a fault | Redis |\n| F02, F03 | others | etcd |\n";
        let code = format!("{TEST}// F01, F03\n");
        assert_eq!(found_in(&[(RULES, RULE), (FAULT_MATRIX, rows), ("a/src/x.rs", &code)]), [""; 0]);
        let code = format!("{TEST}// {}\n", concat!("F", "99"));
        assert_one(&[(RULES, RULE), (FAULT_MATRIX, rows), ("a/src/x.rs", &code)], "99 is neither");
    }

    #[test]
    fn bytes_words_and_options_are_not_citations() {
        let line = "\"%C3%A4\", SHA256, R1a, x_R1, r1, R, R100, \"-O2\"";
        assert_eq!(citations(line).collect::<Vec<_>>(), [""; 0]);
        assert_eq!(citations("(R1), I13: F01-F03").collect::<Vec<_>>(), ["R1", "I13", "F01", "F03"]);
    }
}
