//! `cargo xtask deb`: builds the Debian package of the command, installs it into an empty root, and uses it there.
//!
//! The package has no scripts of its own: it enables and starts nothing. So it can be installed into a directory that
//! has no system, by `dpkg --root`.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use crate::{
    run::{Failure, Steps, shown, succeed},
    setup,
    workspace::Workspace,
};

/// The package that has the command and, in its manifest, the contents of the Debian package.
const PACKAGE: &str = "leasehold-cli";
/// The name of the Debian package.
const NAME: &str = "leasehold";
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
const UNIT: &str = "usr/lib/systemd/system/leasehold-serve.service";
const SETTINGS: &str = "etc/leasehold/serve.env";

/// Builds the package as `target/debian/leasehold.deb`, and checks that it can be installed, used and purged.
pub(crate) fn build_and_try(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    setup::for_deb(steps, workspace)?;
    let mut build = workspace.cargo("build");
    steps.command("build the command", build.args(["--release", "--locked", "-p", PACKAGE]))?;
    steps.step("write the completions", || write_completions(&workspace.target.join("release")))?;
    let package = workspace.target.join("debian").join(format!("{NAME}.deb"));
    steps.command("build the Debian package", &mut cargo_deb(workspace, &package))?;
    steps.step("install, use and purge the Debian package", || {
        let root = workspace.target.join("debian/root");
        let tried =
            Installation::new(root.clone(), &package).and_then(|installation| installation.use_and_purge());
        tried.and_then(|()| fs::remove_dir_all(&root).map_err(|error| format!("{}: {error}", root.display())))
    })
}

/// Writes the completions of all shells beside the program, where the manifest expects them.
fn write_completions(programs: &Path) -> Result<(), String> {
    let directory = programs.join("completions");
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    for shell in SHELLS {
        let output = output(Command::new(programs.join(NAME)).args(["completions", shell]))?;
        let file = directory.join(format!("{NAME}.{shell}"));
        fs::write(&file, output.stdout).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

fn cargo_deb(workspace: &Workspace, package: &Path) -> Command {
    let mut command = Command::new(setup::cargo_deb(workspace));
    command.current_dir(&workspace.root);
    // The program `xz` is much faster than the library within a cargo-deb that was built quickly.
    command.args([
        "--no-build",
        "--no-strip",
        "--compress-system",
        "-p",
        PACKAGE,
        "--maintainer",
        &maintainer(),
        "--output",
    ]);
    command.arg(package);
    command
}

/// Who builds the package, from the variables that all tools of Debian read.
fn maintainer() -> String {
    let of = |variable: &str, default: &str| env::var(variable).unwrap_or_else(|_| default.to_owned());
    format!("{} <{}>", of("DEBFULLNAME", "root"), of("DEBEMAIL", "root@localhost"))
}

/// The package in a root that has nothing else.
struct Installation {
    root: PathBuf,
}

impl Installation {
    /// Installs the package.
    fn new(root: PathBuf, package: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", root.display());
        if root.exists() {
            fs::remove_dir_all(&root).map_err(failed)?;
        }
        let database = root.join("var/lib/dpkg");
        for directory in ["updates", "info", "triggers"] {
            fs::create_dir_all(database.join(directory)).map_err(failed)?;
        }
        for file in ["status", "available"] {
            fs::write(database.join(file), "").map_err(failed)?;
        }
        let installation = Self { root };
        // The libraries that it depends on are those of this system.
        succeed(installation.dpkg().args(["--force-depends", "--install"]).arg(package))?;
        Ok(installation)
    }

    fn dpkg(&self) -> Command {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", self.root.display())).arg("--log=/dev/null");
        dpkg
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn use_and_purge(&self) -> Result<(), String> {
        self.check_files()?;
        self.run_under_a_lock()?;
        self.ask_doctor()?;
        let start = self.check_unit()?;
        self.serve(&start)?;
        // The locks of users are no part of the package.
        let locks = self.path("locks");
        fs::remove_dir_all(&locks).map_err(|error| format!("{}: {error}", locks.display()))?;
        succeed(self.dpkg().arg("--purge").arg(NAME))?;
        let left = Command::new("find").arg(&self.root).args(["-name", "*leasehold*"]).output();
        match left {
            Ok(left) if left.stdout.is_empty() => Ok(()),
            left => Err(format!("the purge left files behind: {left:?}")),
        }
    }

    /// The manual page and the completions are complete, and the settings are private.
    fn check_files(&self) -> Result<(), String> {
        let page =
            output(Command::new("gzip").arg("-dc").arg(self.path("usr/share/man/man1/leasehold.1.gz")))?;
        if !String::from_utf8_lossy(&page.stdout).contains(".SH ENVIRONMENT") {
            return Err("the manual page is not complete".to_owned());
        }
        let completions = self.path("usr/share/bash-completion/completions/leasehold");
        output(Command::new("bash").args(["-c", ". \"$0\"; complete -p leasehold"]).arg(completions))?;
        let mode = output(Command::new("stat").args(["-c", "%a"]).arg(self.path(SETTINGS)))?;
        if mode.stdout == b"600\n" { Ok(()) } else { Err(format!("{SETTINGS} is not private: {mode:?}")) }
    }

    /// The installed command, with locks in the root.
    fn command(&self) -> Command {
        let mut command = Command::new(self.path("usr/bin/leasehold"));
        command.env("LEASEHOLD_URL", format!("file://{}", self.path("locks").display()));
        command
    }

    fn run_under_a_lock(&self) -> Result<(), String> {
        let run = output(self.command().args(["run", "a-name", "--", "sh", "-c", "echo $LEASEHOLD_NAME"]))?;
        if run.stdout == b"a-name\n" { Ok(()) } else { Err(format!("the command printed {run:?}")) }
    }

    /// Users of the package can lock. A warning about the file system of this machine is no fault of the package.
    fn ask_doctor(&self) -> Result<(), String> {
        let doctor = self.command().arg("doctor").output().map_err(|error| format!("doctor: {error}"))?;
        let can_lock = String::from_utf8_lossy(&doctor.stdout)
            .lines()
            .any(|line| line.starts_with("good") && line.contains(" this user can lock and release "));
        match (can_lock, doctor.status.code()) {
            (true, Some(0 | 1)) => Ok(()),
            _ => Err(format!("doctor found {doctor:?}")),
        }
    }

    /// The page answers when it is started as the unit starts it, on another port.
    fn serve(&self, options: &[String]) -> Result<(), String> {
        let mut command = self.command();
        command.args(options).args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let page = command.spawn().map_err(|error| format!("{} cannot be run: {error}", shown(&command)))?;
        let mut page = Page(page);
        let live = page.get("/livez")?;
        if live.starts_with("HTTP/1.1 200 ") { Ok(()) } else { Err(format!("the page answered {live:?}")) }
    }

    /// The unit is valid, is not enabled, and calls the command with options that exist. Returns these
    /// options.
    fn check_unit(&self) -> Result<Vec<String>, String> {
        let unit = fs::read_to_string(self.path(UNIT)).map_err(|error| format!("{UNIT}: {error}"))?;
        // The program of the unit has to exist, so the checked copy has the path of the program in the root.
        let program = self.path("usr/bin/leasehold").display().to_string();
        let copy = self.path("leasehold-serve.service");
        let written = fs::write(&copy, unit.replace("/usr/bin/leasehold", &program));
        written.map_err(|error| format!("{}: {error}", copy.display()))?;
        let verified = output(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy))?;
        fs::remove_file(&copy).map_err(|error| format!("{}: {error}", copy.display()))?;
        // An unknown setting is a message, and no failure.
        if !verified.stderr.is_empty() {
            return Err(format!(
                "systemd-analyze has complaints: {}",
                String::from_utf8_lossy(&verified.stderr)
            ));
        }
        let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/leasehold "));
        let words = start.unwrap_or_default().split(' ').filter(|word| !word.starts_with('$'));
        let words: Vec<String> = words.map(str::to_owned).collect();
        output(self.command().args(&words).arg("--help"))?;
        match self.path("etc/systemd").exists() {
            false => self.check_restarts(&unit).map(|()| words),
            true => Err("the package enables its service".to_owned()),
        }
    }

    /// systemd does not start the service again and again while its settings have no URL.
    fn check_restarts(&self, unit: &str) -> Result<(), String> {
        let mut start = Command::new(self.path("usr/bin/leasehold"));
        let started = start.args(["--require-url", "serve"]).env_clear().output();
        let started = started.map_err(|error| format!("{} cannot be run: {error}", shown(&start)))?;
        let code = started.status.code().map(|code| code.to_string()).unwrap_or_default();
        let mut finals = unit.lines().filter_map(|line| line.strip_prefix("RestartPreventExitStatus="));
        if finals.any(|codes| codes.split(' ').any(|listed| listed == code)) {
            Ok(())
        } else {
            Err(format!("without a URL the service exits with {code:?}, and systemd starts it again"))
        }
    }
}

/// The running page, ended when it is dropped.
struct Page(Child);

impl Page {
    /// The answer to a request. The page has said its address before.
    fn get(&mut self, path: &str) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("the page does not answer: {error}");
        let mut line = String::new();
        if let Some(stdout) = self.0.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
        }
        let address = line.trim().trim_start_matches("http://").trim_end_matches('/');
        let mut connection = TcpStream::connect(address).map_err(failed)?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).map_err(failed)?;
        Ok(answer)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The output of a command that succeeds.
pub(crate) fn output(command: &mut Command) -> Result<Output, String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(output),
        Ok(output) => Err(format!("{} failed: {output:?}", shown(command))),
        Err(error) => Err(format!("{} cannot be run: {error}", shown(command))),
    }
}
