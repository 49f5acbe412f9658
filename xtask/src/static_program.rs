//! `cargo xtask static`: builds the command as a static program, and uses it in a root that has nothing else.
//!
//! A static program contains its C library (musl), so it runs on every Linux of its architecture, whatever C library
//! the system has, and in an empty container image.

use std::{
    env::consts::ARCH,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    deb::output,
    run::{Failure, Steps},
    setup,
    workspace::Workspace,
};

const PACKAGE: &str = "leasehold-cli";
const NAME: &str = "leasehold";
/// What a Redis prints when its socket is open, in letters that differ between its releases.
const IS_READY: &str = "ready to accept connections";

/// The target of the compiler.
pub(crate) fn target() -> String {
    format!("{ARCH}-unknown-linux-musl")
}

/// Builds the program as `target/static/leasehold`, and checks that it needs nothing but the kernel.
pub(crate) fn build_and_try(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    setup::for_static(steps, workspace)?;
    let target = target();
    let mut build = workspace.cargo("build");
    build.args(["--release", "--locked", "-p", PACKAGE, "--target", &target]);
    steps.command("build the static program", &mut build)?;
    let directory = workspace.target.join("static");
    let program = directory.join(NAME);
    steps.step("use the static program in an empty root", || {
        let built = workspace.target.join(target).join("release").join(NAME);
        fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        fs::copy(&built, &program).map_err(|error| format!("{}: {error}", program.display()))?;
        let root = Root::new(directory.join("root"), &program)?;
        root.use_program()
    })
}

/// A directory that contains the program, an empty `/proc`, and nothing else. Dropping it removes it.
struct Root {
    path: PathBuf,
}

impl Root {
    fn new(path: PathBuf, program: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if path.exists() {
            fs::remove_dir_all(&path).map_err(failed)?;
        }
        fs::create_dir_all(path.join("proc")).map_err(failed)?;
        fs::copy(program, path.join(NAME)).map_err(failed)?;
        Ok(Self { path })
    }

    /// Takes locks on engines in the root: in files, in SQLite, and in a Redis whose socket is in the root.
    fn use_program(&self) -> Result<(), String> {
        let version = format!("{NAME} {}\n", env!("CARGO_PKG_VERSION"));
        self.expect(&["--version"], &version)?;
        let server = Redis::start(&self.path)?;
        for url in ["file:///locks", "sqlite:///locks.db", "redis+unix:///redis.sock"] {
            // The only program of the root is the command itself.
            self.expect(&["--url", url, "run", "a-name", "--", "/leasehold", "--version"], &version)?;
            self.expect(&["--url", url, "list"], "")?;
        }
        drop(server);
        Ok(())
    }

    /// Runs the program in the root and compares what it prints.
    fn expect(&self, arguments: &[&str], expected: &str) -> Result<(), String> {
        let mut run = Command::new("unshare");
        // `/proc` is mounted in a mount namespace of the program, which ends with it.
        run.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        run.arg(format!("--root={}", self.path.display())).arg("/leasehold").args(arguments);
        let printed = output(run.env_clear())?;
        if printed.stdout == expected.as_bytes() {
            Ok(())
        } else {
            Err(format!("{arguments:?} printed {printed:?} in an empty root, not {expected:?}"))
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A Redis that listens only on a socket in a directory. Dropping it ends it.
struct Redis {
    process: Child,
}

impl Redis {
    fn start(directory: &Path) -> Result<Self, String> {
        // Debian's `redis-tools` has the server under the name of its checker, without a service.
        let checker = output(Command::new("sh").args(["-c", "command -v redis-check-rdb"]))?;
        let (checker, server) = (String::from_utf8_lossy(&checker.stdout), directory.join("redis-server"));
        let cannot_start = |error: std::io::Error| format!("redis-server cannot be started: {error}");
        symlink(checker.trim(), &server).map_err(cannot_start)?;
        let mut command = Command::new(&server);
        command.args(["--port", "0", "--save", "", "--unixsocket", "redis.sock"]);
        command.current_dir(directory).stdout(Stdio::piped()).stdin(Stdio::null());
        let mut redis = Self { process: command.spawn().map_err(cannot_start)? };
        let printed = redis.process.stdout.as_mut().map(BufReader::new);
        let mut lines = printed.into_iter().flat_map(BufRead::lines).map_while(Result::ok);
        match lines.any(|line| line.to_lowercase().contains(IS_READY)) {
            true => Ok(redis),
            false => Err("redis-server ended before its socket was open".to_owned()),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
