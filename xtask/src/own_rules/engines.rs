//! Checks that the tests of every engine call the conformance suite. Otherwise nobody would notice an engine without
//! it.

use std::path::Path;

use super::Text;
use crate::workspace::{Package, Workspace};

/// The entry point of the suite, as the conformance test of an engine calls it.
const SUITE_CALL: &str = "suite::engine";

/// The crate of the suite. The engines in this crate are decorators, which have tests of their own.
const TESTKIT: &str = "leasehold-testkit";

/// Complaints about engines that have no conformance test.
pub(super) fn complaints(workspace: &Workspace, rust: &[Text]) -> Vec<String> {
    let testkit = workspace.packages.iter().find(|package| package.name == TESTKIT);
    let mut complaints = Vec::new();
    for package in workspace.packages.iter().filter(|package| ships_engines(package)) {
        let packages_with_tests: Vec<&Path> =
            [Some(package), testkit].into_iter().flatten().map(dir_of).collect();
        let is_test =
            |file: &&Text| packages_with_tests.iter().any(|dir| file.path.starts_with(dir.join("tests")));
        let tests: Vec<&str> = rust.iter().filter(is_test).map(|file| file.text.as_str()).collect();
        for file in rust.iter().filter(|file| file.path.starts_with(package.dir.join("src"))) {
            for engine in engines_in(&file.path, &file.text) {
                if !is_conformant(engine, &tests) {
                    let shown = workspace.shown(&file.path);
                    complaints.push(format!(
                        "{shown}: engine `{engine}` has no conformance test: call `{SUITE_CALL}` with it in tests/ of its crate"
                    ));
                }
            }
        }
    }
    complaints
}

/// Whether a package has engines for users. Wrappers in benches and in the simulation are no locks for users.
fn ships_engines(package: &Package) -> bool {
    package.name != TESTKIT && package.dir.parent().is_some_and(|parent| parent.ends_with("crates"))
}

fn dir_of(package: &Package) -> &Path {
    &package.dir
}

/// The types for which this source implements `Engine`, except in tests and in the kit for the tests of programs, whose
/// engine wraps the memory engine with faults.
fn engines_in<'a>(path: &Path, text: &'a str) -> Vec<&'a str> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    if path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "test")
        || name.ends_with(b"tests.rs")
    {
        return Vec::new();
    }
    let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    (shipped.lines().filter(|line| line.starts_with("impl")))
        .filter_map(|line| line.split_once(" Engine for "))
        .filter_map(|(_, rest)| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next())
        .collect()
}

fn is_conformant(engine: &str, tests: &[&str]) -> bool {
    tests.iter().any(|text| text.contains(SUITE_CALL) && text.contains(engine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_found_where_they_ship() {
        let text = "impl Engine for FileEngine {}\nimpl<T> Engine for Other<T> {}\n#[cfg(test)]\nmod tests {\n\
                    impl Engine for Toy {}\n}\n";
        assert_eq!(
            engines_in(Path::new("crates/core/src/engines/file/engine.rs"), text),
            ["FileEngine", "Other"]
        );
        for test in ["crates/core/src/engines/file/tests/toy.rs", "src/tests.rs", "src/wait_tests.rs"] {
            assert_eq!(engines_in(Path::new(test), text), [""; 0], "{test}");
        }
        assert_eq!(engines_in(Path::new("a.rs"), "// impl Engine for Words\n"), [""; 0]);
    }

    #[test]
    fn a_conformance_test_uses_the_engine_and_the_suite() {
        assert!(is_conformant("FileEngine", &["FileEngine::open(); suite::engine(x)"]));
        assert!(!is_conformant("FileEngine", &["FileEngine::open()", "suite::engine(memory)"]));
    }

    #[test]
    fn an_engine_without_a_test_is_a_complaint() {
        let package = |name: &str, dir: &str| Package {
            name: name.into(),
            dir: dir.into(),
            features: Vec::new(),
            bins: Vec::new(),
            manifest: serde_json::Value::Null,
        };
        let workspace = Workspace {
            root: "/w".into(),
            target: "/w/target".into(),
            packages: vec![
                package("core", "/w/crates/core"),
                package(TESTKIT, "/w/crates/kit"),
                package("bench", "/w/bench"),
            ],
        };
        let text = |path: &str, text: &str| Text { path: path.into(), text: text.into() };
        let engine = text("/w/crates/core/src/a.rs", "impl Engine for A {}\n");
        let decorator = text("/w/crates/kit/src/d.rs", "impl Engine for Faulty {}\n");
        let stopwatch = text("/w/bench/src/s.rs", "impl Engine for Stopwatch {}\n");
        let found = complaints(&workspace, &[engine, decorator, stopwatch]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/core/src/a.rs: engine `A`"), "{found:?}");
        for home in ["/w/crates/core/tests/it.rs", "/w/crates/kit/tests/it.rs"] {
            let engine = text("/w/crates/core/src/a.rs", "impl Engine for A {}\n");
            let test = text(home, "suite::engine(&A)");
            assert_eq!(complaints(&workspace, &[engine, test]), [""; 0]);
        }
    }
}
