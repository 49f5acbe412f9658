//! Rules for every Rust source: its length, and words that mark unfinished work.

/// The largest number of lines of a source file. A reader should be able to remember the structure of a file.
const MAX_LINES: usize = 500;

/// Words that mark unfinished work, or a test that is not run. (They are written so that this file does not contain
/// them.)
const UNDONE_WORDS: [&str; 4] =
    [concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("#[ig", "nore"), concat!("db", "g!(")];

/// Complaints about a source. `shown` is its path for the messages.
pub(super) fn complaints(shown: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        complaints.push(format!("{shown}: {lines} lines, at most {MAX_LINES}: split it by concept"));
    }
    for (number, line) in (1..).zip(text.lines()) {
        for word in UNDONE_WORDS.iter().filter(|word| line.contains(**word)) {
            complaints.push(format!("{shown}:{number}: `{word}` means not done"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_found() {
        assert_eq!(complaints("a.rs", &"x\n".repeat(500)), [""; 0]);
        assert_eq!(complaints("a.rs", &"x\n".repeat(501)).len(), 1);
    }

    #[test]
    fn unfinished_work_is_found_with_its_line() {
        for word in UNDONE_WORDS {
            let complaints = complaints("a.rs", &format!("fn f() {{\n    {word}\n}}\n"));
            assert_eq!(complaints.len(), 1);
            assert!(complaints[0].starts_with("a.rs:2: "), "{complaints:?}");
        }
    }
}
