//! Programs in Go, for tests that leasehold and other programs keep each other out.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

/// The library sources of the system's package manager.
const LIBRARIES: &str = "/usr/share/gocode";

/// Builds the program from the single file `source` in the directory `output`, and returns the path of the program. The
/// compiler's cache is in `output` too, so only the first build takes long. Parallel builds wait for each other.
///
/// # Panics
/// If the program cannot be built.
#[must_use]
pub fn go_program(source: &Path, output: &Path) -> PathBuf {
    let directory = std::path::absolute(output.join("go")).expect("a path is not empty");
    let (cache, scratch) = (directory.join("cache"), directory.join("scratch"));
    fs::create_dir_all(&scratch).expect("a directory of cargo's can be written to");
    let lock_file = File::create(directory.join("lock")).expect("a directory of cargo's can be written to");
    lock_file.lock().expect("a file can be locked");
    let program =
        directory.join(source.parent().and_then(Path::file_name).expect("a source is in a directory"));
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&program, source])
        // The build uses neither the network nor a home directory.
        .envs([("GO111MODULE", "off"), ("GOPATH", LIBRARIES), ("GOENV", "off"), ("GOFLAGS", "")])
        .envs([("GOCACHE", &cache), ("GOTMPDIR", &scratch)])
        .output()
        .unwrap_or_else(|error| panic!("cannot start go: {error}: run setup/debian"));
    let stderr = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{} cannot be built: {stderr}", source.display());
    program
}
