//! Java, for servers and programs of tests.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::SystemTime,
};

use super::{directory::remove, system};

/// The libraries of the system's package manager.
const LIBRARIES: &str = "/usr/share/java";
/// The libraries that a ZooKeeper needs. Each item is the beginning of a file name.
const ZOOKEEPER_LIBRARIES: [&str; 7] =
    ["zookeeper-jute", "slf4j-api", "netty-", "metrics-core", "snappy-java", "commons-io", "commons-cli"];
/// Options that make a start quick, and an option that keeps Java from leaving files in the system's temporary
/// directory.
const QUICK: [&str; 4] = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"];

/// Compiles the program in the single file `source` against these libraries of the system. Returns a command that runs
/// the program; the caller adds arguments to it. The classes are kept in the directory `output` until the source
/// changes. Parallel compilations wait for each other.
///
/// # Panics
/// If the program cannot be compiled.
#[must_use]
pub fn java_program(source: &Path, libraries: &[&str], output: &Path) -> Command {
    let name = source.file_stem().and_then(|name| name.to_str()).expect("a source has a name");
    let directory = std::path::absolute(output.join("java").join(name)).expect("a path is not empty");
    fs::create_dir_all(&directory).expect("a directory of cargo's can be written to");
    let lock_file = File::create(directory.join("lock")).expect("a directory of cargo's can be written to");
    lock_file.lock().expect("a file can be locked");
    // Without compiled classes, `java` would compile the source at every start, which takes a second.
    let classes = directory.join("classes");
    if modified_time(&classes)
        .is_none_or(|compiled| modified_time(source).is_none_or(|written| written >= compiled))
    {
        compile(source, libraries, &classes);
    }
    let mut command = Command::new("java");
    let libraries = [&*classes.display().to_string(), &class_path(libraries)].join(":");
    command.args(java_arguments(&libraries, &directory)).arg(name);
    command
}

/// Compiles into a temporary directory, and then renames this directory, so that a killed compilation leaves no partial
/// result.
fn compile(source: &Path, libraries: &[&str], classes: &Path) {
    let partial: PathBuf = classes.with_extension("half");
    let compiled = Command::new("javac")
        .arg("-J-XX:-UsePerfData")
        .arg("--class-path")
        .arg(class_path(libraries))
        .arg("-d")
        .args([&partial, source])
        .output();
    let compiled = compiled.unwrap_or_else(|error| panic!("cannot start javac: {error}: run setup/debian"));
    let stderr = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{} cannot be compiled: {stderr}", source.display());
    remove(classes);
    fs::rename(partial, classes).expect("a directory of cargo's can be written to");
}

/// When a file was last changed; `None` if it does not exist.
fn modified_time(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// The arguments of `java` for a program with this class path and temporary directory. Errors are logged to standard
/// error.
pub(super) fn java_arguments(class_path: &str, directory: &Path) -> Vec<String> {
    let mut arguments: Vec<_> = QUICK.map(str::to_owned).into();
    arguments.extend([
        format!("-Djava.io.tmpdir={}", directory.display()),
        "-Djava.net.preferIPv4Stack=true".to_owned(),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error".to_owned(),
        "--class-path".to_owned(),
        class_path.to_owned(),
    ]);
    arguments
}

/// The class path of these libraries and a logger. Each library file names the other files that it needs.
pub(super) fn class_path(libraries: &[&str]) -> String {
    class_path_below(Path::new(LIBRARIES), libraries)
}

/// The class path of these libraries for a server. If `LEASEHOLD_TEST_SYSTEM` names another system, the libraries are
/// those of that system; otherwise they are those of this system.
pub(super) fn server_class_path(libraries: &[&str]) -> String {
    let Some(other) = system::file(LIBRARIES.trim_start_matches('/')) else { return class_path(libraries) };
    // The libraries in the directory of the other system come first. Without them, libraries of this system would be
    // loaded: each library names the files that it needs by absolute paths.
    let needed = fs::read_dir(&other).into_iter().flatten().flatten().map(|file| file.path());
    let needed = needed.filter(|file| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        ZOOKEEPER_LIBRARIES.iter().any(|needed| name.starts_with(needed)) && name.ends_with(".jar")
    });
    let needed: Vec<String> = needed.map(|file| file.display().to_string()).collect();
    format!("{}:{}", needed.join(":"), class_path_below(&other, libraries))
}

fn class_path_below(directory: &Path, libraries: &[&str]) -> String {
    let all = libraries.iter().chain(&["slf4j-simple"]);
    all.map(|name| format!("{}/{name}.jar", directory.display())).collect::<Vec<_>>().join(":")
}

/// Runs `java` with this input and returns the lines of standard output and standard error. Panics if `java` fails.
pub(super) fn java(directory: &Path, arguments: &[String], input: &str) -> Vec<String> {
    let mut command = Command::new("java");
    command.current_dir(directory).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().unwrap_or_else(|error| panic!("cannot start java: {error}: run setup/debian"));
    // The program may have ended without reading its input.
    drop(child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().expect("a child of ours is waited for once");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "java {}: {text}", arguments.join(" "));
    text.lines().map(str::to_owned).collect()
}
