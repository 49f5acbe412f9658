//! Checks that every message of the shipped crates is explained, either on the troubleshooting page or on the page of
//! its engine.
//!
//! A message is a string of at least [`MIN_WORDS`] plain words, in code that ships. A phrase is a text between
//! backticks in the first column of a table on these pages. A phrase explains a message that contains its words. `...`
//! in a phrase and `{}` in a message match any text. A phrase on the troubleshooting page that matches no message is
//! out of date.
//!
//! What an engine's diagnosis and `leasehold doctor` say is explained by its id on another page, which the rule
//! `diagnostics` checks.

use std::path::Path;

use super::{Text, diagnostics};

const TROUBLESHOOTING: &str = "docs/troubleshooting.md";
const ENGINE_PAGES: &str = "docs/engines";
/// The crates whose messages users see.
const SHIPPED_CRATES: [&str; 8] = ["core", "redis", "etcd", "zookeeper", "sql", "tls", "leasehold", "cli"];
/// The files of the page for operators whose messages the command prints. The sentences of its other files are parts of
/// pages, which explain themselves.
const SERVE_FILES: [&str; 4] = ["settings.rs", "secret.rs", "server.rs", "tls.rs"];
/// The files of what tools for operators share whose messages they print.
const OPS_FILES: [&str; 1] = ["audit/mod.rs"];
/// This many plain words in a row are a sentence for a reader, and not a name, a key or a statement.
const MIN_WORDS: usize = 4;
/// Files whose sentences are no messages: help texts, what series of metrics show, and the findings that `show` prints
/// about an engine, because the documentation explains each setting in its own line.
const FILES_WITHOUT_MESSAGES: [&str; 7] =
    ["help.rs", "man.rs", "args.rs", "guarantee.rs", "metrics.rs", "promise.rs", "fuzz.rs"];
/// If one of these texts comes before a string, only programmers see the string.
const BEFORE_TEXT_FOR_PROGRAMMERS: [&str; 5] =
    ["expect(", "expect_err(", "reason =", "must_use =", "unreachable!("];
/// Strings that are no messages: words of servers that the code looks for, variants of a message that is explained as a
/// whole, and assertions for the compiler.
const NO_MESSAGES: [&str; 13] = [
    "revision of auth store is old",
    "user name is empty",
    "authentication is not enabled",
    "can't run this command",
    "can't access at least one",
    "hash to the same slot",
    "max number of clients",
    ", with args beginning with",
    "command called from script",
    "the registry key and a colon",
    "a node of a Redis Cluster",
    "it is no table",
    "the three ranges do not overlap",
];

/// Complaints about messages that no page explains, and about phrases of the troubleshooting page that explain no
/// message.
pub(super) fn complaints(rust: &[Text], markdown: &[Text], shown: impl Fn(&Path) -> String) -> Vec<String> {
    let is_troubleshooting = |file: &Text| shown(&file.path) == TROUBLESHOOTING;
    let pages = markdown
        .iter()
        .filter(|file| is_troubleshooting(file) || shown(&file.path).starts_with(ENGINE_PAGES));
    let phrases_of_pages: Vec<&str> = pages.flat_map(|file| phrases(&file.text)).collect();
    let mut complaints = Vec::new();
    let mut messages = Vec::new();
    for file in rust.iter().filter(|file| may_have_messages(&shown(&file.path))) {
        for (number, message) in strings(&file.text) {
            let must_be_explained = is_sentence(&message) && !NO_MESSAGES.contains(&message.as_str());
            if must_be_explained && !phrases_of_pages.iter().any(|phrase| explains(phrase, &message)) {
                let path = shown(&file.path);
                complaints.push(format!(
                    "{path}:{number}: no phrase of {TROUBLESHOOTING} or {ENGINE_PAGES} explains `{message}`"
                ));
            }
            messages.push(message);
        }
    }
    for phrase in markdown.iter().filter(|file| is_troubleshooting(file)).flat_map(|file| phrases(&file.text))
    {
        if !messages.iter().any(|message| explains(phrase, message)) {
            complaints.push(format!("{TROUBLESHOOTING}: no message has `{phrase}`"));
        }
    }
    complaints
}

fn may_have_messages(shown: &str) -> bool {
    let Some((name, inner)) = shown.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) else {
        return false;
    };
    let file = inner.rsplit('/').next().unwrap_or_default();
    let is_test = inner.contains("tests") || ["fixture.rs", "judge.rs", "properties.rs"].contains(&file);
    let is_shipped = SHIPPED_CRATES.contains(&name)
        || (name == "serve" && SERVE_FILES.contains(&inner))
        || (name == "ops" && OPS_FILES.contains(&inner));
    is_shipped
        && !is_test
        && !diagnostics::is_of_a_diagnosis(shown)
        && !FILES_WITHOUT_MESSAGES.contains(&file)
}

/// The phrases of at least two words in the first column of the tables on a page.
fn phrases(page: &str) -> impl Iterator<Item = &str> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter(|phrase| phrase.contains(' '))
}

/// Whether a message contains all parts of a phrase, in the same order.
fn explains(phrase: &str, message: &str) -> bool {
    let mut rest = message;
    phrase.split("...").map(str::trim).filter(|part| !part.is_empty()).all(|part| {
        match rest.split_once(part) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        }
    })
}

fn is_sentence(text: &str) -> bool {
    let is_plain = |word: &str| {
        let word = word.trim_end_matches([':', ';', '.', '?']);
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-' || c == '\'')
    };
    text.split(' ')
        .map(is_plain)
        .fold((0, 0), |(longest, in_a_row), is_plain| {
            let in_a_row = if is_plain { in_a_row + 1 } else { 0 };
            (longest.max(in_a_row), in_a_row)
        })
        .0
        >= MIN_WORDS
}

/// The strings in the code of a source that ships, each with its line number.
fn strings(source: &str) -> Vec<(usize, String)> {
    let source = source.split("\nmod tests {").next().unwrap_or_default();
    let mut strings = Vec::new();
    let mut rest = source;
    while let Some(index) = rest.find(['"', '\'', '/']) {
        let (before, here) = rest.split_at(index);
        if here.starts_with("//") {
            rest = here.split_once('\n').map_or("", |(_, behind)| behind);
        } else if before.ends_with("r#") && here.starts_with('"') {
            rest = here.split_once("\"#").map_or("", |(_, behind)| behind);
        } else if let Some(literal) = here.strip_prefix('"') {
            let (text, behind) = parse_string(literal);
            let line = source[..source.len() - here.len()].lines().count();
            if !BEFORE_TEXT_FOR_PROGRAMMERS.iter().any(|end| before.trim_end().ends_with(end)) {
                strings.push((line, text));
            }
            rest = behind;
        } else {
            // This is either a character literal, which may be a quote, or a lifetime.
            let quoted =
                ["'\"'", "'\\\"'", "'\\''", "'/'"].iter().find(|literal| here.starts_with(**literal));
            rest = &here[quoted.map_or(1, |literal| literal.len())..];
        }
    }
    strings
}

/// Parses a string literal from the character after its opening quote. Returns its value, and the text after its
/// closing quote.
fn parse_string(literal: &str) -> (String, &str) {
    let mut text = String::new();
    let mut chars = literal.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (text, &literal[at + 1..]),
            '\\' => match chars.next() {
                Some((at, '\n')) => {
                    let blank = literal[at..].len() - literal[at..].trim_start().len();
                    let (more, behind) = parse_string(&literal[at + blank..]);
                    return (text + &more, behind);
                }
                Some((_, escaped)) => text.push(escaped),
                None => {}
            },
            _ => text.push(c),
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! \"words of a comment only\"\nfn f<'a>() -> char {\n    say(\"cannot connect to {host}: \\\n     \
        no answer at all\");\n    x.expect(\"a bug of ours and nobody's\");\n    '\"'\n}\n#[cfg(test)]\nmod tests { \"of a test and no more\" }\n";

    fn found_in(source: &str, page: &str) -> Vec<String> {
        let text = |path: &str, text: &str| Text { path: path.into(), text: text.to_owned() };
        let rust = [
            text("crates/core/src/a.rs", source),
            text("crates/testkit/src/a.rs", "\"not one of those that ship\""),
        ];
        complaints(&rust, &[text(TROUBLESHOOTING, page)], |path| path.display().to_string())
    }

    #[test]
    fn an_unexplained_message_is_reported_with_its_line() {
        let found = found_in(SOURCE, "");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("crates/core/src/a.rs:3: ") && found[0].contains("no answer at all"),
            "{found:?}"
        );
        assert_eq!(
            found_in(SOURCE, "| `cannot connect to ...: no answer`, `no answer at all` | why |\n"),
            [""; 0]
        );
        assert_eq!(found_in(SOURCE, "| why | `no answer at all` |\n").len(), 1, "the first column counts");
    }

    #[test]
    fn a_phrase_without_a_message_is_reported() {
        let found = found_in(SOURCE, "| `no answer at all`, `not in any message` |\n");
        assert_eq!(found, ["docs/troubleshooting.md: no message has `not in any message`"]);
    }

    #[test]
    fn a_sentence_has_four_plain_words_in_a_row() {
        assert!(is_sentence("{x}: the server's disk is full, TLS"));
        for other in ["names no host", "SELECT a FROM b", "leasehold_lock a_b c d", ""] {
            assert!(!is_sentence(other), "{other}");
        }
    }

    #[test]
    fn parts_of_a_phrase_match_in_order() {
        assert!(explains("cannot ... by TLS", "cannot connect to {} by TLS: {}"));
        assert!(!explains("by TLS ... cannot", "cannot connect to {} by TLS: {}"));
    }
}
