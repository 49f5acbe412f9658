//! How a test starts a program: into the same world, whatever started the test.
//!
//! A shell in the background ignores signals, a login has its locale, a service its limits. None of it is to decide what a
//! test sees, so every process of these tests is started from here.

use std::{ffi::OsStr, process::Command, sync::Once};

use nix::sys::{
    resource::{Resource, getrlimit, setrlimit},
    stat::{Mode, umask},
};

/// What a program still gets from whoever started the test: where programs and temporary files are.
const PASSED_ON: [&str; 4] = ["PATH", "TMPDIR", "LD_LIBRARY_PATH", "LLVM_PROFILE_FILE"];

/// As many open files as a login may have.
const OPEN_FILES: u64 = 1024;

/// The command that is tested.
pub(crate) const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// A program, with its arguments to be added. It finds every signal at its default and none blocked, no terminal, an environment
/// of its own, and the limits below; it is its own session, and is killed when the thread that started it is gone.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    static LIMITS: Once = Once::new();
    LIMITS.call_once(set_limits);
    // Each becomes the next, so that the process is the program in the end.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "setsid", "env", "--default-signal"]).arg(name);
    command.env_clear().envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs([("HOME", "/nonexistent"), ("LC_ALL", "C.UTF-8"), ("TZ", "UTC"), ("TERM", "dumb")]);
    command.current_dir("/");
    command
}

/// What processes inherit and nothing in a command changes is set for this one.
fn set_limits() {
    umask(Mode::from_bits_truncate(0o022));
    for (resource, wanted) in [(Resource::RLIMIT_NOFILE, OPEN_FILES), (Resource::RLIMIT_CORE, 0)] {
        let (_, hard) = getrlimit(resource).unwrap();
        // Only root gets more than the hard limit; others do with less.
        let _ = setrlimit(resource, wanted, hard.max(wanted)).or_else(|_| setrlimit(resource, hard, hard));
    }
}
