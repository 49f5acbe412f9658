//! Where the connections go that a server makes itself.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use super::preload;

/// Leads what one process connects to through other ports of this machine, whatever address it uses. Its clients are not
/// concerned. So each pair of servers has a connection of its own, although all announce one address to all.
pub(super) struct Redirect {
    file: PathBuf,
    library: PathBuf,
}

impl Redirect {
    /// Builds what processes are to be started under.
    ///
    /// # Panics
    /// When there is no compiler.
    pub(super) fn build(directory: &Path) -> PathBuf {
        preload::build(directory, "redirect", include_str!("redirect.c"))
    }

    /// That of a process that runs in `directory`; it leads nothing elsewhere yet.
    pub(super) fn new(directory: &Path, library: &Path) -> Self {
        let redirect = Self { file: directory.join("redirect"), library: library.to_owned() };
        redirect.set([]);
        redirect
    }

    /// From now on, a connection to the first port of a pair goes to the second.
    pub(super) fn set(&self, pairs: impl IntoIterator<Item = (u16, u16)>) {
        let mut text = String::new();
        for (port, other) in pairs {
            writeln!(text, "{port} {other}").expect("a string takes all");
        }
        // Whoever reads it meanwhile sees the old one or the new.
        let new = self.file.with_extension("new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.file));
        written.expect("a private directory takes a file");
    }

    /// What the process is told of it.
    pub(super) fn environment(&self) -> [(&'static str, String); 2] {
        let path = |path: &Path| path.display().to_string();
        [(preload::PRELOAD, path(&self.library)), ("LEASEHOLD_TEST_REDIRECT", path(&self.file))]
    }
}
