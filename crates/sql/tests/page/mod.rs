//! The page that documents the columns of the tables.

const PAGE: &str = include_str!("../../../../docs/engines/sql-tables.md");

/// The columns on the page for one database system: `table column type`, sorted.
pub(crate) fn columns(system: &str) -> Vec<String> {
    let (mut table, mut kind_index, mut columns) = ("", None, Vec::new());
    for line in PAGE.lines() {
        if let Some(heading) = line.strip_prefix("## `") {
            table = heading.trim_end_matches('`');
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match cells.get(1) {
            Some(&"column") => kind_index = cells.iter().position(|cell| *cell == system),
            Some(cell) if cell.starts_with('`') => {
                let kind = cells[kind_index.expect("the page has a column for each system")];
                assert!(cells.len() == 7 && !cells[5].is_empty(), "the page explains the column: {line}");
                if kind != "–" {
                    columns.push(format!("{table} {} {kind}", cell.trim_matches('`')));
                }
            }
            _ => {}
        }
    }
    columns.sort();
    columns
}

/// Asserts that the page lists exactly these columns.
#[track_caller]
pub(crate) fn assert_listed(system: &str, mut actual_columns: Vec<String>) {
    actual_columns.sort();
    assert!(actual_columns.len() > 30, "{actual_columns:?}");
    assert_eq!(columns(system), actual_columns);
}
