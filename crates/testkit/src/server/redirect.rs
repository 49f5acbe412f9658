//! Redirects the outgoing connections of a server.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use super::preload;

/// Redirects the outgoing connections of one process to other ports of this machine; the address that the process uses
/// does not matter. Connections of clients to the process are not affected. So each pair of servers has a separate
/// connection, although each server announces the same address to all others.
pub(super) struct Redirect {
    file: PathBuf,
    library: PathBuf,
}

impl Redirect {
    /// Builds the library to preload into the processes.
    ///
    /// # Panics
    /// If there is no compiler.
    pub(super) fn build(directory: &Path) -> PathBuf {
        preload::build(directory, "redirect", include_str!("redirect.c"))
    }

    /// The redirections of a process that runs in `directory`. There are none at first.
    pub(super) fn new(directory: &Path, library: &Path) -> Self {
        let redirect = Self { file: directory.join("redirect"), library: library.to_owned() };
        redirect.set([]);
        redirect
    }

    /// From now on, for each pair of ports, a connection to the first port goes to the second port.
    pub(super) fn set(&self, pairs: impl IntoIterator<Item = (u16, u16)>) {
        let mut text = String::new();
        for (port, other) in pairs {
            writeln!(text, "{port} {other}").expect("a string takes all");
        }
        // The rename is atomic: a concurrent reader sees either the old or the new file.
        let new = self.file.with_extension("new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.file));
        written.expect("a private directory takes a file");
    }

    /// The environment variables for the process.
    pub(super) fn environment(&self) -> [(&'static str, String); 2] {
        let path = |path: &Path| path.display().to_string();
        [(preload::PRELOAD, path(&self.library)), ("LEASEHOLD_TEST_REDIRECT", path(&self.file))]
    }
}
