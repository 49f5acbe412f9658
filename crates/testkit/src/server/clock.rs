//! Wall clocks of a process's own.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::preload;

/// The wall clock of one process: the machine's, and so many seconds more or less.
pub struct WallClock {
    file: PathBuf,
    library: PathBuf,
}

impl WallClock {
    /// A clock that goes with the machine's. What a process is to be started under is built here, by the compiler that links
    /// Rust programs.
    ///
    /// # Panics
    /// When there is no compiler.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        let library = preload::build(directory, "clock", include_str!("clock.c"));
        let clock = Self { file: directory.join("clock"), library };
        clock.set(0);
        clock
    }

    /// Sets it this many seconds away from the machine's.
    ///
    /// # Panics
    /// When its directory is gone.
    pub fn set(&self, seconds: i64) {
        let file = File::options().create(true).truncate(false).write(true).open(&self.file);
        let written = file.and_then(|file| file.write_all_at(&seconds.to_ne_bytes(), 0));
        written.expect("a private directory takes a file");
    }

    /// What the process is told of it.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let path = |path: &Path| path.display().to_string();
        [(preload::PRELOAD, path(&self.library)), ("LEASEHOLD_TEST_CLOCK", path(&self.file))]
    }
}
