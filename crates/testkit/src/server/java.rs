//! Java, as the servers and programs of tests need it.

use std::{path::Path, process::Command};

/// Where the system's package manager puts libraries.
const LIBRARIES: &str = "/usr/share/java";
/// Quick to start rather than fast when warm, and nothing is left where the system keeps temporary files.
const QUICK: [&str; 4] = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"];

/// What `java` is told of a program that uses these libraries, and keeps to `directory`. Errors that are logged go to its
/// standard error.
pub(super) fn java_arguments(libraries: &[&str], directory: &Path) -> Vec<String> {
    let mut arguments: Vec<_> = QUICK.map(str::to_owned).into();
    arguments.extend([
        format!("-Djava.io.tmpdir={}", directory.display()),
        "-Djava.net.preferIPv4Stack=true".to_owned(),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error".to_owned(),
        "--class-path".to_owned(),
        class_path(libraries),
    ]);
    arguments
}

/// Where these libraries are, and one that logs; each names those that it needs itself.
fn class_path(libraries: &[&str]) -> String {
    let all = libraries.iter().chain(&["slf4j-simple"]);
    all.map(|name| format!("{LIBRARIES}/{name}.jar")).collect::<Vec<_>>().join(":")
}

/// Runs `java`, and answers what it said on both of its outputs, line by line; panics when it says that something is wrong.
pub(super) fn java(directory: &Path, arguments: &[String]) -> Vec<String> {
    let output = Command::new("java").current_dir(directory).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start java: {error}: run setup/debian"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "java {}: {text}", arguments.join(" "));
    text.lines().map(str::to_owned).collect()
}
