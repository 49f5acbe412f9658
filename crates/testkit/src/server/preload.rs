//! What is preloaded into a server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// How a process is told what to load before its own libraries.
pub(super) const PRELOAD: &str = "LD_PRELOAD";

/// Compiles a library from C into `directory`, by the compiler that links Rust programs.
///
/// # Panics
/// When there is no compiler.
pub(super) fn build(directory: &Path, name: &str, source: &str) -> PathBuf {
    let (from, library) =
        (directory.join(name).with_extension("c"), directory.join(name).with_extension("so"));
    fs::write(&from, source).expect("a private directory takes a file");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O2", "-o"]).args([&library, &from]);
    let compiled = compile.status().expect("cc is missing: run setup/debian");
    assert!(compiled.success(), "cc failed");
    library
}

/// Joins what several parts want a process to be told: what they preload becomes one list.
pub(super) fn environment(
    parts: impl IntoIterator<Item = (&'static str, String)>,
) -> Vec<(&'static str, String)> {
    let (preloaded, mut rest): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(key, _)| *key == PRELOAD);
    if !preloaded.is_empty() {
        let libraries: Vec<_> = preloaded.into_iter().map(|(_, library)| library).collect();
        rest.push((PRELOAD, libraries.join(":")));
    }
    rest
}
