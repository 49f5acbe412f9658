//! Libraries that are preloaded into a server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The variable that names libraries to load before all others.
pub(super) const PRELOAD: &str = "LD_PRELOAD";

/// Compiles a C library into `directory`, with the C compiler that Rust uses for linking.
///
/// # Panics
/// If there is no compiler.
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

/// Joins the environment variables that several parts of a test need. The preloaded libraries of all parts become one
/// list.
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
