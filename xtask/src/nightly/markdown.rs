//! Formats tables as Markdown.

/// A number with a comma after every three digits from the right.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or("")).collect();
    groups.join(",")
}

/// A count in bold. It is for counts that should be zero.
pub(super) fn bold(text: &str) -> String {
    format!("**{text}**")
}

/// A table with these column titles. The title of the first column may be empty.
pub(super) fn table<R: AsRef<[String]>>(titles: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let line = |cells: Vec<&str>| {
        let cells: Vec<String> = cells
            .into_iter()
            .map(|cell| if cell.is_empty() { " ".to_owned() } else { format!(" {cell} ") })
            .collect();
        format!("|{}|\n", cells.join("|"))
    };
    let rule = format!("|{}\n", "---|".repeat(titles.len()));
    let rows = rows.into_iter().map(|row| line(row.as_ref().iter().map(String::as_str).collect()));
    line(titles.to_vec()) + &rule + &rows.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_written_as_in_the_documentation() {
        let rows = [["grants".to_owned(), grouped(333_897)], ["none".to_owned(), grouped(0)]];
        let text = table(&["", "redis"], rows);
        assert_eq!(text, "| | redis |\n|---|---|\n| grants | 333,897 |\n| none | 0 |\n");
    }
}
