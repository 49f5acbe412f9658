//! The width of comments and documents. rustfmt limits the width of code, but it does not change comments.

/// The largest number of columns of a line.
const MAX_COLUMNS: usize = 120;

/// Complaints about comments of a source that are too wide.
pub(super) fn of_comments(shown: &str, text: &str) -> Vec<String> {
    let is_comment = |line: &str| ["//", "--"].iter().any(|start| line.trim_start().starts_with(start));
    complaints(shown, (1..).zip(text.lines()).filter(|(_, line)| is_comment(line)))
}

/// Complaints about lines of a document that are too wide. Tables, code blocks and links are left out, because they
/// cannot be wrapped.
pub(super) fn of_document<'a>(shown: &str, lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<String> {
    complaints(shown, lines.filter(|(_, line)| !line.trim_start().starts_with('|') && !line.contains("](")))
}

fn complaints<'a>(shown: &str, lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<String> {
    let columns = |line: &str| line.chars().count();
    lines
        .filter(|(_, line)| columns(line) > MAX_COLUMNS && !line.contains("://"))
        .map(|(number, line)| {
            format!("{shown}:{number}: {} columns, at most {MAX_COLUMNS}: wrap the text", columns(line))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(start: &str) -> String {
        format!("{start}{}", "x".repeat(MAX_COLUMNS))
    }

    #[test]
    fn wide_comments_are_found_and_code_is_left_to_rustfmt() {
        for start in ["// ", "    /// ", "-- "] {
            assert_eq!(of_comments("a.rs", &format!("fn f();\n{}\n", wide(start))).len(), 1, "{start}");
        }
        let narrow = format!("// {}", "ä".repeat(MAX_COLUMNS - 3));
        for fine in [narrow, wide("let code = "), wide("// https://")] {
            assert_eq!(of_comments("a.rs", &fine), [""; 0]);
        }
    }

    #[test]
    fn wide_text_is_found_and_tables_and_links_are_left() {
        let found = |line: &str| of_document("a.md", [(7, line)].into_iter());
        assert!(found(&wide("text ")).concat().starts_with("a.md:7: 125 columns"));
        for fine in ["| ", "[page](", "https://"] {
            assert_eq!(found(&wide(fine)), [""; 0], "{fine}");
        }
    }
}
