//! Separate wall clocks for single processes.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::preload;

/// The wall clock of one process: the machine's time plus an offset in seconds.
pub struct WallClock {
    file: PathBuf,
    library: PathBuf,
}

impl WallClock {
    /// A clock that shows the machine's time. Builds the library that gives a process this clock, and that is preloaded
    /// into the process. The compiler is the C compiler that Rust uses for linking.
    ///
    /// # Panics
    /// If there is no compiler.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        let library = preload::build(directory, "clock", include_str!("clock.c"));
        let clock = Self { file: directory.join("clock"), library };
        clock.set(0);
        clock
    }

    /// Sets the clock to the machine's time plus `seconds`.
    ///
    /// # Panics
    /// If the directory of the clock is gone.
    pub fn set(&self, seconds: i64) {
        let file = File::options().create(true).truncate(false).write(true).open(&self.file);
        let written = file.and_then(|file| file.write_all_at(&seconds.to_ne_bytes(), 0));
        written.expect("a private directory takes a file");
    }

    /// The environment variables for the process.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let path = |path: &Path| path.display().to_string();
        [(preload::PRELOAD, path(&self.library)), ("LEASEHOLD_TEST_CLOCK", path(&self.file))]
    }
}
