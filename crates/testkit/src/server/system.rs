//! Programs of another system than this one, with older or newer versions of the servers.

use std::{env, fs, path::PathBuf};

/// The variable that names a directory with the layout of a system: the *other system*. A program that the other system
/// lacks is taken from this system. See `setup/server`.
const SYSTEM: &str = "LEASEHOLD_TEST_SYSTEM";
/// Debian's directories for programs, relative to a system.
const PROGRAMS: [&str; 2] = ["usr/bin", "usr/sbin"];

fn other() -> Option<PathBuf> {
    env::var_os(SYSTEM).map(PathBuf::from)
}

/// A file or directory of the other system. `None`: it does not exist there, or there is no other system.
pub(super) fn file(path: &str) -> Option<PathBuf> {
    other().map(|system| system.join(path)).filter(|file| file.exists())
}

/// A program of the other system. `None`: it does not exist there, or there is no other system.
pub(super) fn program(name: &str) -> Option<String> {
    let found = PROGRAMS.iter().find_map(|directory| file(&format!("{directory}/{name}")));
    found.map(|program| program.display().to_string())
}

/// A program of the newest PostgreSQL in the other system; if it has none, of the newest PostgreSQL in this system.
/// Debian installs these programs in directories that are not in `PATH`.
pub(super) fn postgres_program(name: &str) -> String {
    let systems = other().into_iter().chain([PathBuf::from("/")]);
    let newest = |system: PathBuf| {
        let versions = fs::read_dir(system.join("usr/lib/postgresql")).into_iter().flatten().flatten();
        let found = versions.filter_map(|version| {
            let program = version.path().join("bin").join(name);
            Some((version.file_name().to_str()?.parse::<u32>().ok()?, program))
                .filter(|(_, file)| file.exists())
        });
        found.max().map(|(_, program)| program.display().to_string())
    };
    systems.into_iter().find_map(newest).unwrap_or_else(|| name.to_owned())
}
