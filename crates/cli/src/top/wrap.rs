//! Long lines on a narrow screen: they are continued on the next line, and nothing is cut. Pure.

use ratatui::text::Span;

/// By how much the continuation of a line of a table is indented.
pub(super) const TABLE_INDENT: usize = 4;

/// How many columns the first word of a line and the space after it have. The values of aligned facts begin there.
pub(super) fn value_column(line: &str) -> usize {
    let word = line.find(' ').unwrap_or(line.len());
    let space = line[word..].chars().take_while(|&c| c == ' ').count();
    Span::raw(&line[..word]).width() + space
}

/// The line as lines of at most `width` columns. It is split at spaces, so that a word that fits, such as a token,
/// stays whole. The lines after the first are indented by `indent`.
pub(super) fn wrap(line: &str, width: usize, indent: usize) -> Vec<String> {
    let indent = indent.min(width / 2);
    let mut lines = Vec::new();
    let mut rest = line;
    loop {
        let margin = if lines.is_empty() { 0 } else { indent };
        let end = fitting(rest, width - margin);
        let head = &rest[..end];
        // In the first line not before the value of a fact, which then would stand alone.
        let earliest = if lines.is_empty() { indent } else { 0 };
        let at = match rest[end..].chars().next() {
            None | Some(' ') => end,
            Some(_) => head.rfind(' ').filter(|&at| at > earliest).unwrap_or(end),
        };
        lines.push(" ".repeat(margin) + rest[..at].trim_end());
        rest = rest[at..].trim_start();
        if rest.is_empty() {
            return lines;
        }
    }
}

/// The length in bytes of the longest beginning that fits into this number of columns; at least one character.
fn fitting(text: &str, width: usize) -> usize {
    let (mut columns, mut end) = (0, 0);
    // Characters without a width need no column, but time: so their number is limited too.
    for (count, (at, c)) in text.char_indices().enumerate() {
        let mut buffer = [0; 4];
        columns += Span::raw(&*c.encode_utf8(&mut buffer)).width();
        if count > 0 && (columns > width || count >= width) {
            break;
        }
        end = at + c.len_utf8();
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_continued_at_spaces() {
        assert_eq!(wrap("", 10, 4), [""]);
        assert_eq!(wrap("ten chars.", 10, 4), ["ten chars."]);
        let fact = "note    run redis with appendfsync always";
        assert_eq!(value_column(fact), 8);
        assert_eq!(wrap(fact, 24, 8), ["note    run redis with", "        appendfsync", "        always"]);
        assert_eq!(wrap("note    appendfsync", 16, 8), ["note    appendfs", "        ync"]);
    }

    #[test]
    fn a_token_stays_whole_and_nothing_is_lost() {
        let row = "ci@runner-7:4410  1764198752000123  1h05m  21s  0f6c8a4d6ad54a5c9f8e1d0b7a3c2e11";
        for width in 36..90 {
            let lines = wrap(row, width, TABLE_INDENT);
            assert!(lines.iter().any(|line| line.contains("1764198752000123")), "{lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            let words: Vec<_> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
            assert_eq!(words, row.split_whitespace().collect::<Vec<_>>());
        }
    }

    #[test]
    fn columns_count_and_not_characters() {
        assert_eq!(wrap("日本語", 4, 0), ["日本", "語"]);
        assert_eq!(wrap("日本", 1, 4), ["日", "本"], "a screen of one column");
        let joined = "e\u{301}".repeat(100);
        let lines = wrap(&joined, 10, 0);
        assert!(lines.iter().all(|line| Span::raw(line).width() <= 10));
        assert_eq!(lines.concat(), joined);
    }
}
