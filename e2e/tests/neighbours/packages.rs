//! Programs that lock with packages of PyPI and npm. `pip` and `npm` install the packages once for each list of
//! versions, below `target/tmp`. The machine must have them, and `python3` and `node`.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
    time::{Duration, Instant},
};

const PYTHON: [&str; 21] = [
    "redis==8.1.0",
    "python-redis-lock==4.0.1",
    "walrus==0.9.8",
    "redlock-py==1.0.8",
    "pottery==3.0.1",
    "filelock==4.2.11",
    "portalocker==4.4.2",
    "fasteners==0.20",
    "etcd3==0.12.0",
    // Newer versions of these two do not work with etcd3.
    "protobuf==3.20.3",
    "tenacity==6.3.1",
    "etcd3gw==2.6.0",
    "PALs==0.4.0",
    "sqlalchemy-dlock==0.9.0",
    "SQLAlchemy==2.1.9",
    "psycopg2-binary==2.9.13",
    "PyMySQL==1.2.4",
    "Django==5.2.19",
    "django-pglocks==2.1.0",
    "django-pglock==1.8.0",
    "tooz==9.1.0",
];
const NODE: [&str; 7] = [
    "ioredis@5.4.1",
    "redlock4@npm:redlock@4.2.0",
    "redlock5@npm:redlock@5.0.0-beta.2",
    "redis-semaphore@5.8.0",
    "etcd3@1.1.2",
    "advisory-lock@2.0.0",
    "pg-mutex-lock@1.0.1",
];
/// The time limit for events that come soon or never.
const PATIENCE: Duration = Duration::from_secs(180);

/// The directory of the packages.
static PACKAGES: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("neighbours");
    let (list, wanted) = (dir.join("list"), [&PYTHON[..], &NODE[..]].concat().join("\n"));
    if fs::read_to_string(&list).is_ok_and(|there| there == wanted) {
        return dir;
    }
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target"]);
    installed(pip.arg(dir.join("python")).args(PYTHON));
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]);
    installed(npm.arg(&dir).args(NODE));
    fs::write(list, wanted).unwrap();
    dir
});

/// The Python into which `cargo xtask python` installs the wheel of our module, as the nightly tier does.
fn python_of_the_wheel() -> Command {
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python").join("tests/bin/python");
    assert!(python.exists(), "{} is missing: run cargo xtask python", python.display());
    Command::new(python)
}

pub(crate) fn installed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| {
        panic!(
            "{command:?}: {error}: this needs python3 with pip, node with npm, a JDK with mvn, go, and their registries"
        )
    });
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A program that locks with a package.
pub(crate) struct Neighbour(Child);

impl Neighbour {
    /// Starts a program; `kind` is a package as in the scripts beside this file.
    pub(crate) fn start(kind: &str, what: &str, dir: &str, name: &str, sections: usize) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/neighbours");
        let is_node = ["redlock4", "redlock5", "mutex", "semaphore"].contains(&kind);
        let (program, script) = if is_node { ("node", "neighbour.cjs") } else { ("python3", "neighbour.py") };
        let mut command = if kind == "leasehold" { python_of_the_wheel() } else { Command::new(program) };
        command.arg(folder.join(script)).args([what, kind, dir, name, &sections.to_string()]);
        Self::run(command)
    }

    /// Runs a command with the search paths of the packages.
    pub(crate) fn run(mut command: Command) -> Self {
        command.env("PYTHONPATH", PACKAGES.join("python")).env("NODE_PATH", PACKAGES.join("node_modules"));
        // Python puts no files beside the scripts.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Sends an empty line to its standard input.
    pub(crate) fn tell(&mut self) {
        use std::io::Write;
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// The next line of output, one byte at a time, so that nothing of a later line is lost.
    pub(crate) fn next_line(&mut self) -> String {
        use std::io::Read;
        let output = self.0.stdout.as_mut().unwrap();
        let (mut line, mut byte) = (Vec::new(), [0]);
        while output.read(&mut byte).unwrap() == 1 && byte != [b'\n'] {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    /// The first line of output: "held" or "taken".
    pub(crate) fn first_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Closes its standard input, so that it releases, and waits for its end.
    pub(crate) fn finish(mut self) {
        drop(self.0.stdin.take());
        let limit = Instant::now() + PATIENCE;
        while Instant::now() < limit {
            if let Some(status) = self.0.try_wait().unwrap() {
                return assert!(status.success(), "the program failed: {status}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the program does not end");
    }
}

/// Kills the program, even if the test fails.
impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
