//! The lock packages of other languages. `pip`, `npm`, `go` and `mvn` fetch them from their registries into a directory
//! below `target/tmp`. They are fetched again only if the list of their versions has changed.

use std::{env, fs, path::PathBuf, process::Command};

use crate::{Failure, foreign::recipe_path};

const NODE_PACKAGES: [&str; 2] = ["ioredis@5.4.1", "redlock@5.0.0-beta.2"];
const GO_MODULES: [&str; 2] =
    ["github.com/go-redsync/redsync/v4@v4.18.1", "github.com/redis/go-redis/v9@v9.23.0"];
const JAVA_LIBRARIES: [[&str; 3]; 2] =
    [["org.redisson", "redisson", "4.7.0"], ["org.slf4j", "slf4j-nop", "2.0.17"]];
/// What is compared with the Python module.
const PYTHON_PACKAGES: [&str; 1] = ["redis==8.1.0"];
/// The options of Java on a production server.
const JAVA_OPTIONS: [&str; 3] = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData"];

/// A program that locks with npm's `redlock`.
pub(crate) fn redlock() -> Result<Command, Failure> {
    let dir = PackageDir::new("node")?;
    dir.install(&NODE_PACKAGES.join("\n"), || {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]);
        run_to_end(npm.arg(&dir.0).args(NODE_PACKAGES))
    })?;
    let mut program = Command::new("node");
    program.arg(recipe_path("redlock_pairs.cjs")).env("NODE_PATH", dir.0.join("node_modules"));
    Ok(program)
}

/// A program that locks with Go's redsync.
pub(crate) fn redsync() -> Result<Command, Failure> {
    let dir = PackageDir::new("go")?;
    let source = fs::read_to_string(recipe_path("redsync_pairs.go"))?;
    dir.install(&format!("{GO_MODULES:?}\n{source}"), || {
        fs::write(dir.0.join("main.go"), &source)?;
        let go = |arguments: &[&str]| run_to_end(Command::new("go").args(arguments).current_dir(&dir.0));
        go(&["mod", "init", "pairs"])?;
        go(&[&["get"], &GO_MODULES[..]].concat())?;
        go(&["build", "-o", "redsync_pairs", "."])
    })?;
    Ok(Command::new(dir.0.join("redsync_pairs")))
}

/// A program that locks with Redisson.
pub(crate) fn redisson() -> Result<Command, Failure> {
    let dir = PackageDir::new("java")?;
    let source = recipe_path("RedissonPairs.java");
    let (jars, classes) = (dir.0.join("jars"), dir.0.join("classes"));
    let path = format!("{}/*:{}", jars.display(), classes.display());
    dir.install(&format!("{JAVA_LIBRARIES:?}\n{}", fs::read_to_string(&source)?), || {
        fs::create_dir_all(&classes)?;
        let project = dir.0.join("pom.xml");
        fs::write(&project, pom())?;
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "--file"]).arg(&project);
        run_to_end(maven.args([
            "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
            &format!("-DoutputDirectory={}", jars.display()),
        ]))?;
        run_to_end(
            Command::new("javac").args(["-J-XX:-UsePerfData", "-cp", &path, "-d"]).arg(&classes).arg(&source),
        )
    })?;
    let mut program = Command::new("java");
    program.args(JAVA_OPTIONS).args(["-cp", &path, "RedissonPairs"]);
    Ok(program)
}

fn pom() -> String {
    let needed = JAVA_LIBRARIES.map(|[group, name, version]| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        )
    });
    format!(
        "<project><modelVersion>4.0.0</modelVersion><groupId>leasehold</groupId><artifactId>pairs</artifactId>\
         <version>1</version><dependencies>{}</dependencies></project>",
        needed.concat()
    )
}

/// A program that locks with the Python module, from the wheel of a release, or with redis-py.
pub(crate) fn python_pairs(library: &str, port: u16) -> Result<Command, Failure> {
    let wheel = wheel()?;
    let dir = PackageDir::new("python")?;
    let built = fs::metadata(&wheel)?.modified()?;
    dir.install(&format!("{PYTHON_PACKAGES:?} {} {built:?}", wheel.display()), || {
        run_to_end(Command::new("python3").args(["-m", "venv"]).arg(dir.0.join("venv")))?;
        let mut pip = Command::new(dir.0.join("venv/bin/pip"));
        run_to_end(pip.args(["install", "--disable-pip-version-check"]).args(PYTHON_PACKAGES).arg(&wheel))
    })?;
    let mut program = Command::new(dir.0.join("venv/bin/python"));
    program.arg(recipe_path("python_pairs.py")).args([library, &port.to_string()]);
    Ok(program)
}

/// The wheel of a release, which `cargo xtask python wheel` builds.
fn wheel() -> Result<PathBuf, Failure> {
    let missing = "build the wheel first: cargo xtask python wheel";
    let files = fs::read_dir(target()?.join("python/release")).map_err(|_| missing)?;
    let mut paths = files.flatten().map(|file| file.path());
    paths.find(|path| path.extension().is_some_and(|extension| extension == "whl")).ok_or(missing.into())
}

/// Cargo's target directory, wherever that is: this program is `target/release/leasehold-bench`.
fn target() -> Result<PathBuf, Failure> {
    let program = env::current_exe()?;
    Ok(program.ancestors().nth(2).ok_or("this program is in no target directory")?.to_owned())
}

/// The directory for the packages of one language.
struct PackageDir(PathBuf);

impl PackageDir {
    fn new(language: &str) -> Result<Self, Failure> {
        Ok(Self(target()?.join("tmp/bench-languages").join(language)))
    }

    /// Empties the directory and fills it by `install`. Does nothing if it was filled for this list of versions before.
    fn install(&self, versions: &str, install: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let list = self.0.join("list");
        if fs::read_to_string(&list).is_ok_and(|there| there == versions) {
            return Ok(());
        }
        let _ = fs::remove_dir_all(&self.0);
        fs::create_dir_all(&self.0)?;
        install()?;
        Ok(fs::write(list, versions)?)
    }
}

fn run_to_end(command: &mut Command) -> Result<(), Failure> {
    let output = command.output().map_err(|error| {
        format!("{command:?}: {error}: this needs python3, node with npm, go, a JDK with mvn, and their registries")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let [out, complaint] =
        [output.stdout, output.stderr].map(|output| String::from_utf8_lossy(&output).into_owned());
    Err(format!("{command:?}: {complaint}{out}").into())
}
