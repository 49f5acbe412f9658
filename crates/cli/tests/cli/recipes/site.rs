//! A machine of a reader: a directory with the reader's programs and a lock directory.

use std::{fs, path::Path, process::Output};

use crate::{
    start::{LEASEHOLD, program},
    tools::{Dir, Running, code, finish},
};

/// What each program of the reader does: it says that it ran, and fails or hangs if a file of its name says so.
const PROGRAM: &str = "#!/bin/sh
me=$(basename \"$0\")
echo \"$me $*\" >> \"$SITE/log\"
if [ -e \"$SITE/hangs-$me\" ]; then exec sleep 1000; fi
[ ! -e \"$SITE/fails-$me\" ]
";

/// The directories of the pages whose programs are replaced by those of the site.
const PROGRAMS: [&str; 2] = ["/usr/local/bin/", "/app/"];

/// A directory with programs, in which snippets run.
pub(super) struct Site {
    dir: Dir,
    url: String,
}

impl Site {
    /// A site whose locks are files.
    pub(super) fn on_files(programs: &[&str]) -> Self {
        let dir = Dir::new();
        let url = dir.url();
        Self::with(dir, url, programs)
    }

    /// A site whose holds are leases, which need no process.
    pub(super) fn with_leases(programs: &[&str]) -> Self {
        let dir = Dir::new();
        let url = format!("sqlite://{}", dir.path().join("locks.db").display());
        Self::with(dir, url, programs)
    }

    fn with(dir: Dir, url: String, programs: &[&str]) -> Self {
        fs::create_dir(dir.path().join("bin")).unwrap();
        for name in programs {
            dir.file(name, PROGRAM, 0o755);
            std::os::unix::fs::symlink(dir.path().join(name), dir.path().join("bin").join(name)).unwrap();
        }
        std::os::unix::fs::symlink(LEASEHOLD, dir.path().join("bin/leasehold")).unwrap();
        Self { dir, url }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// From now on, the program fails.
    pub(super) fn let_fail(&self, name: &str) {
        self.dir.file(&format!("fails-{name}"), "", 0o644);
    }

    /// From now on, the program does not end.
    pub(super) fn let_hang(&self, name: &str) {
        self.dir.file(&format!("hangs-{name}"), "", 0o644);
    }

    /// A snippet with the paths of this site.
    pub(super) fn here(&self, snippet: &str) -> String {
        let bin = format!("{}/bin/", self.path().display());
        PROGRAMS.iter().fold(snippet.to_owned(), |text, programs| text.replace(programs, &bin))
    }

    /// Starts a script as this shell does, with the programs of the site first in its path.
    fn shell(&self, shell: &[&str], script: &str) -> std::process::Command {
        let mut command = program(shell[0]);
        command.args(&shell[1..]).args(["-c", script]).current_dir(self.path());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}/bin:{path}", self.path().display()));
        command.envs([("SITE", self.path().as_os_str()), ("LEASEHOLD_URL", self.url.as_ref())]);
        command.env("RUNNER_TEMP", self.path()).env("BUILD_URL", "https://ci.example/job/7/");
        command
    }

    /// Runs a script to its end.
    pub(super) fn run(&self, shell: &[&str], script: &str) -> Output {
        finish(self.shell(shell, script))
    }

    /// Starts a script whose input is open.
    pub(super) fn start(&self, shell: &[&str], script: &str) -> Running {
        Running::start(self.shell(shell, script))
    }

    /// Checks that a script of `sh -e` ends with success.
    #[track_caller]
    pub(super) fn succeed(&self, script: &str) {
        let output = self.run(&["sh", "-e"], script);
        assert_eq!(code(&output), 0, "{script}\n{output:?}");
    }

    /// Checks that a name is free, or becomes free when a process ends that has nothing else to do.
    #[track_caller]
    pub(super) fn is_free(&self, name: &str) {
        self.succeed(&format!("leasehold run --wait 60s {name} -- true"));
    }

    /// What the programs of the site said.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }
}
