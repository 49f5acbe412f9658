//! Starts programs in the same environment, whatever started the test.
//!
//! A background shell ignores signals, a login sets a locale, a service sets limits. Such settings must not change the
//! result of a test, so every process of these tests is started from here.

use std::{ffi::OsStr, process::Command, sync::Once};

use nix::sys::{
    resource::{Resource, getrlimit, setrlimit},
    stat::{Mode, umask},
};

/// The environment variables that a program inherits: the paths of programs and temporary files.
const PASSED_ON: [&str; 4] = ["PATH", "TMPDIR", "LD_LIBRARY_PATH", "LLVM_PROFILE_FILE"];

/// The usual limit of open files of a login.
const OPEN_FILES: u64 = 1024;

/// The command under test.
pub(crate) const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// A program without arguments yet. It starts with default signal actions, no blocked signal, no terminal, a fixed
/// environment and the limits below, in a session of its own. It is killed when the thread that started it ends.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    program_in(&["setsid"], name)
}

/// A program in a session that this program and these arguments make.
pub(crate) fn program_in(session: &[&str], name: impl AsRef<OsStr>) -> Command {
    static LIMITS: Once = Once::new();
    LIMITS.call_once(set_limits);
    // Each program executes the next, so that the process becomes the program.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).args(session).args(["env", "--default-signal"]).arg(name);
    command.env_clear().envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs([("HOME", "/nonexistent"), ("LC_ALL", "C.UTF-8"), ("TZ", "UTC"), ("TERM", "dumb")]);
    command.current_dir("/");
    command
}

/// Sets the inherited limits that `Command` cannot set, for this process.
fn set_limits() {
    umask(Mode::from_bits_truncate(0o022));
    for (resource, wanted) in [(Resource::RLIMIT_NOFILE, OPEN_FILES), (Resource::RLIMIT_CORE, 0)] {
        let (_, hard) = getrlimit(resource).unwrap();
        // Only root may exceed the hard limit; other users get the hard limit.
        let _ = setrlimit(resource, wanted, hard.max(wanted)).or_else(|_| setrlimit(resource, hard, hard));
    }
}
