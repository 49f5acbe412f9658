//! The Python module: builds its wheel, installs the wheel into an empty virtual environment, and runs its tests there.
//!
//! The wheel of the tests is that of a debug build, because its library is compiled with the test programs. `cargo
//! xtask python wheel` builds the wheel of a release.

mod environment;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use self::environment::Environment;
use crate::{
    run::{Failure, Steps, shown, succeed},
    side_by_side::Job,
    suites::{Kind, Suite},
    workspace::Workspace,
};

/// The package with the sources of the module, below the root of the workspace.
const PACKAGE: &str = "crates/python";
/// The program that takes part in the storms of the tests. They look for it beside their interpreter.
const NEIGHBOUR: &str = "leasehold-e2e";
/// The largest wheel of a release, in bytes.
const LARGEST_WHEEL: u64 = 8_000_000;

/// `cargo xtask python [NAME...]`: builds and installs the wheel, and runs the tests whose names have one of these
/// parts.
pub(crate) fn test(steps: &mut Steps, workspace: &Workspace, names: &[&str]) -> Result<(), Failure> {
    steps.step("set up Python", || set_up(workspace))?;
    let suite = steps.step("build the wheel", || suite(workspace))?;
    steps.command("tests of the Python module", suite.command().args(names))
}

/// `cargo xtask python wheel`: builds the wheel of a release as `target/python/release/leasehold-*.whl`.
pub(crate) fn release(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    steps.step("set up Python", || tools(workspace).make())?;
    let wheel = steps.step("build the wheel of a release", || {
        build(workspace, "release", maturin(workspace).args(["--profile", "wheel"]))
    })?;
    steps.step("check the size of the wheel", || {
        let size = fs::metadata(&wheel).map_err(|error| format!("{}: {error}", wheel.display()))?.len();
        println!("   {}: {:.1} MB", wheel.display(), size as f64 / 1e6);
        if size <= LARGEST_WHEEL { Ok(()) } else { Err(format!("the wheel has {size} bytes")) }
    })
}

/// Makes the virtual environments.
pub(crate) fn set_up(workspace: &Workspace) -> Result<(), String> {
    tools(workspace).make()?;
    tests(workspace).make()
}

/// Builds the wheel with the library of the tests, and installs it. Returns the tests, which need [`set_up`].
pub(crate) fn suite(workspace: &Workspace) -> Result<Suite, String> {
    let mut maturin = maturin(workspace);
    let cargo = workspace.root.join("xtask/src/python/cargo");
    let real_cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    maturin.args(["--profile", "dev", "--strip", "false", "--compression-method", "stored"]);
    // Which old systems a debug build could run on is of no interest.
    maturin.args(["--compatibility", "linux"]).env("CARGO", cargo).env("LEASEHOLD_CARGO", real_cargo);
    let wheel = build(workspace, "debug", &mut maturin)?;
    let environment = tests(workspace);
    let mut pip = environment.pip();
    succeed(pip.args(["install", "--quiet", "--no-index", "--no-deps", "--force-reinstall"]).arg(wheel))?;
    link_program(&workspace.target.join("debug").join(NEIGHBOUR), &environment.program(NEIGHBOUR))?;
    Ok(Suite {
        package: "leasehold-python".to_owned(),
        target: "pytest".to_owned(),
        kind: Kind::Python,
        dir: workspace.root.join(PACKAGE),
        program: environment.python(),
    })
}

/// The check of the types of the module and of its examples by pyright, which finds other faults than mypy. It needs
/// Node.js, and installs it if there is none.
pub(crate) fn pyright_job(steps: &mut Steps, workspace: &Workspace) -> Result<Job, Failure> {
    let requirements = workspace.root.join(PACKAGE).join("pyright.txt");
    let pyright = Environment::new(folder(workspace).join("pyright"), requirements);
    steps.step("set up pyright", || pyright.make())?;
    let mut command = Command::new(pyright.program("pyright"));
    command.current_dir(workspace.root.join(PACKAGE)).arg("--pythonpath").arg(tests(workspace).python());
    Ok(Job::new("pyright, the Python module and its examples", command))
}

/// The environment with the tools that build.
fn tools(workspace: &Workspace) -> Environment {
    Environment::new(folder(workspace).join("tools"), workspace.root.join(PACKAGE).join("tools.txt"))
}

/// The environment of the tests, into which the wheel is installed.
fn tests(workspace: &Workspace) -> Environment {
    let requirements = workspace.root.join(PACKAGE).join("tests/requirements.txt");
    Environment::new(folder(workspace).join("tests"), requirements)
}

fn link_program(program: &Path, link: &Path) -> Result<(), String> {
    match fs::remove_file(link) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", link.display()));
        }
        _ => {}
    }
    std::os::unix::fs::symlink(program, link).map_err(|error| format!("{}: {error}", link.display()))
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("python")
}

/// `maturin build`, which shares the build directory with all other builds.
fn maturin(workspace: &Workspace) -> Command {
    let tools = tools(workspace);
    let mut maturin = Command::new(tools.program("maturin"));
    maturin.current_dir(workspace.root.join(PACKAGE)).args(["build", "--quiet", "--interpreter"]);
    maturin.arg(tools.python()).env("CARGO_TARGET_DIR", &workspace.target);
    maturin
}

/// Builds the only wheel in the folder `name`.
fn build(workspace: &Workspace, name: &str, maturin: &mut Command) -> Result<PathBuf, String> {
    let out = folder(workspace).join(name);
    match fs::remove_dir_all(&out) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", out.display()));
        }
        _ => {}
    }
    // maturin warns of each package that it does not know: those of the workspace that are compiled with this one.
    let output = maturin.arg("--out").arg(&out).output();
    let output = output.map_err(|error| format!("{} cannot be run: {error}", shown(maturin)))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{complaint}\n{} ended with {}", shown(maturin), output.status));
    }
    wheel_in(&out)
}

fn wheel_in(folder: &Path) -> Result<PathBuf, String> {
    let files = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut wheels = files.flatten().map(|file| file.path());
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    match (wheels.find(is_wheel), wheels.find(is_wheel)) {
        (Some(wheel), None) => Ok(wheel),
        _ => Err(format!("{} has not exactly one wheel", folder.display())),
    }
}
