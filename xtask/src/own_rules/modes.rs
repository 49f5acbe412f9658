//! Checks that every mode of the SQL engines conforms on every database. Several databases share the type of a mode, so
//! a conformance test of that type alone does not show on which databases the mode was tested.

use std::path::Path;

use super::Text;
use crate::workspace::Workspace;

/// The directory of the crate whose engines have modes.
const CRATE: &str = "crates/sql";

/// For each function that makes an engine: the database, the function, the file of its conformance test, and what that
/// file has to contain.
const CONFORMANCE_TESTS: [(&str, &str, &str, &str); 9] = [
    ("postgres", "engine", "postgres/conformance.rs", "fn the_postgres_engine_conforms()"),
    ("postgres", "session_engine", "postgres/session/conformance.rs", "fn the_locks_of_sessions_conform()"),
    ("postgres", "row_engine", "row_hold/postgres.rs", "\nsuite!("),
    ("postgres", "foreign_table_engine", "postgres/foreign_tables.rs", "\nforeign_table_tests!("),
    ("mysql", "engine", "mysql/conformance.rs", "fn the_mysql_engine_conforms()"),
    ("mysql", "session_engine", "mysql/sessions/conformance.rs", "fn the_locks_of_sessions_conform()"),
    ("mysql", "row_engine", "row_hold/mysql.rs", "\nsuite!("),
    ("mysql", "foreign_table_engine", "mysql/foreign_tables.rs", "\nforeign_table_tests!("),
    ("sqlite", "engine", "sqlite/conformance.rs", "fn the_sqlite_engine_conforms()"),
];

/// The tests that each test of a mode by a macro runs: the file of the macro, and its conformance test.
const MACROS: [(&str, &str); 2] =
    [("row_hold/suite.rs", "fn conformance()"), ("foreign/mod.rs", "inserted_rows_conform = Insert")];

/// Complaints about modes without a conformance test.
pub(super) fn complaints(workspace: &Workspace, rust: &[Text]) -> Vec<String> {
    let dir = workspace.root.join(CRATE);
    let (sources, tests) = (dir.join("src"), dir.join("tests"));
    let mut complaints = Vec::new();
    let mut require = |file: &str, needle: &str, what: &str| {
        let found = rust.iter().any(|text| text.path == tests.join(file) && text.text.contains(needle));
        if !found {
            complaints.push(format!(
                "{CRATE}/tests/{file}: {what} has no conformance test: {:?} is missing",
                needle.trim()
            ));
        }
    };
    MACROS.iter().for_each(|(file, needle)| require(file, needle, "a mode"));
    for file in rust.iter().filter(|file| file.path.starts_with(&sources)) {
        let Some(database) = database(&file.path, &sources) else { continue };
        for function in makers(&file.text) {
            let test = CONFORMANCE_TESTS.iter().find(|test| (test.0, test.1) == (database, function));
            let (_, _, test, needle) =
                test.unwrap_or(&("", "", "?", "a line in xtask/src/own_rules/modes.rs"));
            require(test, needle, &format!("{database}::{function}"));
        }
    }
    complaints
}

/// The database of a source file: the first directory below `sources`.
fn database<'a>(path: &'a Path, sources: &Path) -> Option<&'a str> {
    path.strip_prefix(sources).ok()?.components().next()?.as_os_str().to_str()
}

/// The public functions of a module that make an engine.
fn makers(text: &str) -> impl Iterator<Item = &str> {
    let functions = text.lines().filter_map(|line| line.strip_prefix("pub fn ")?.split_once('('));
    functions.map(|(name, _)| name).filter(|name| *name == "engine" || name.ends_with("_engine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_without_a_conformance_test_is_a_complaint() {
        let workspace = Workspace { root: "/w".into(), target: "/w/target".into(), packages: Vec::new() };
        let text =
            |path: &str, text: &str| Text { path: Path::new("/w/crates/sql").join(path), text: text.into() };
        let macros = || MACROS.map(|(file, needle)| text(&format!("tests/{file}"), needle));
        let mode = || text("src/mysql/row_hold.rs", "pub fn row_engine(config: Config) -> RowEngine {\n");
        let mut all = Vec::from(macros());
        all.push(mode());
        let found = complaints(&workspace, &all);
        assert!(found.len() == 1 && found[0].contains("mysql::row_engine"), "{found:?}");
        all.push(text("tests/row_hold/mysql.rs", "\nsuite!(Rig);\n"));
        assert_eq!(complaints(&workspace, &all), [""; 0]);
        all.push(text("src/sqlite/mod.rs", "pub fn session_engine() -> SessionEngine {\n"));
        assert!(complaints(&workspace, &all)[0].contains("sqlite::session_engine"));
        assert_eq!(complaints(&workspace, &[]).len(), MACROS.len());
    }
}
