//! Wall clocks of a server's own.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

/// The wall clock of one server: the machine's, and so many seconds more or less.
pub(super) struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// A clock that goes with the machine's. What a server is to be started under is built here, by the compiler that links
    /// Rust programs.
    pub(super) fn new(directory: &Path) -> Self {
        let clock = Self { file: directory.join("clock"), library: directory.join("clock.so") };
        let source = directory.join("clock.c");
        fs::write(&source, include_str!("clock.c")).expect("a private directory takes a file");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O2", "-o"]).args([&clock.library, &source]);
        let compiled = compile.status().expect("cc is missing: run setup/debian");
        assert!(compiled.success(), "cc failed");
        clock.set(0);
        clock
    }

    /// Sets it this many seconds away from the machine's.
    pub(super) fn set(&self, seconds: i64) {
        let file = File::options().create(true).truncate(false).write(true).open(&self.file);
        let written = file.and_then(|file| file.write_all_at(&seconds.to_ne_bytes(), 0));
        written.expect("a private directory takes a file");
    }

    /// What the server's process is told of it.
    pub(super) fn environment(&self) -> [(&'static str, String); 2] {
        let path = |path: &Path| path.display().to_string();
        [("LD_PRELOAD", path(&self.library)), ("LEASEHOLD_TEST_CLOCK", path(&self.file))]
    }
}
