//! The test programs of the workspace, as cargo builds them.

use std::{
    fmt,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::workspace::Workspace;

/// The kind of a test program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The tests in `src/`.
    #[default]
    Unit,
    /// A file or folder of `tests/`.
    Integration,
    /// The tests of the Python module, in Python. Their program is the interpreter.
    Python,
}

/// The program that runs the tests of the Python module, with the arguments and the output of Rust's test harness.
const PYTHON_HARNESS: &str = "tests/run.py";

/// A test program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suite {
    pub(crate) package: String,
    pub(crate) target: String,
    pub(crate) kind: Kind,
    /// The directory of its package. The program runs in this directory.
    pub(crate) dir: PathBuf,
    /// The path of the built program.
    pub(crate) program: PathBuf,
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Unit => write!(f, "{}, unit tests of {}", self.package, self.target),
            Kind::Integration | Kind::Python => write!(f, "{}, {}", self.package, self.target),
        }
    }
}

impl Suite {
    /// The command that runs the tests of the program.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.dir).env("CARGO_MANIFEST_DIR", &self.dir);
        if self.kind == Kind::Python {
            // The tests use the installed wheel, and leave no files beside the sources.
            command.arg(PYTHON_HARNESS).env("LEASEHOLD_TEST_WHEEL", "1");
            command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
        }
        command
    }

    /// The names of the tests of the program.
    ///
    /// # Errors
    /// When the program does not list them.
    pub(crate) fn tests(&self) -> Result<Vec<String>, String> {
        let listed = self.command().args(["--list", "--format", "terse"]).output();
        let listed = listed.map_err(|error| format!("{self} cannot be run: {error}"))?;
        let lines = String::from_utf8_lossy(&listed.stdout);
        let tests: Vec<_> =
            lines.lines().filter_map(|line| line.strip_suffix(": test").map(str::to_owned)).collect();
        if tests.is_empty() { Err(format!("{self} has no tests")) } else { Ok(tests) }
    }

    fn read(message: &Value, workspace: &Workspace) -> Option<Self> {
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let dir = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
        let package = workspace.packages.iter().find(|package| package.dir == dir)?;
        let is_test = message["target"]["kind"].as_array()?.contains(&"test".into());
        Some(Self {
            package: package.name.clone(),
            target: message["target"]["name"].as_str()?.to_owned(),
            kind: if is_test { Kind::Integration } else { Kind::Unit },
            dir,
            program: message["executable"].as_str()?.into(),
        })
    }
}

/// Builds test programs with every feature. `packages` are the arguments of cargo that select the packages.
///
/// # Errors
/// When the test programs do not compile.
pub(crate) fn build(workspace: &Workspace, packages: &[&str]) -> Result<Vec<Suite>, String> {
    let mut cargo = workspace.cargo("test");
    cargo.args(["--locked", "--all-features", "--no-run", "--quiet"]).args(packages);
    cargo.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let output = cargo.output().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("the tests do not compile: cargo ended with {}", output.status));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let suites: Vec<Suite> = messages.filter_map(|message| Suite::read(&message, workspace)).collect();
    if suites.is_empty() { Err("cargo built no test program".to_owned()) } else { Ok(suites) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_programs_of_the_workspace_are_read() {
        let workspace = Workspace::find().unwrap();
        let manifest = workspace.root.join("xtask/Cargo.toml");
        let mut message = serde_json::json!({
            "reason": "compiler-artifact", "manifest_path": manifest, "executable": "/x/it-1",
            "target": { "name": "it", "kind": ["test"] }, "profile": { "test": true },
        });
        let suite = Suite::read(&message, &workspace).unwrap();
        assert_eq!((suite.package.as_str(), suite.target.as_str()), ("xtask", "it"));
        assert_eq!(suite.kind, Kind::Integration);
        message["target"]["kind"] = serde_json::json!(["bin"]);
        assert_eq!(Suite::read(&message, &workspace).unwrap().kind, Kind::Unit);
        message["profile"]["test"] = false.into();
        assert!(Suite::read(&message, &workspace).is_none(), "a program, not its tests");
        message["profile"]["test"] = true.into();
        message["manifest_path"] = "/elsewhere/Cargo.toml".into();
        assert!(Suite::read(&message, &workspace).is_none(), "a dependency");
    }
}
