//! Installs the tools that checks and tests need. If a tool is missing and cannot be installed, this is an error;
//! nothing is skipped.

use std::{env, path::PathBuf, process::Command};

use crate::{
    run::{Failure, Steps, succeed},
    side_by_side::Job,
    static_program,
    test::at_low_priority,
    workspace::Workspace,
};

/// The release of cargo-deny for which our checks are written. Other releases may have other rules.
const CARGO_DENY: &str = "0.20.2";
/// The release of cargo-fuzz that runs the targets in `fuzz/`.
const CARGO_FUZZ: &str = "0.13.2";
/// The release of mdbook that renders the documentation.
const MDBOOK: &str = "0.5.4";
/// The release of cargo-deb that builds the Debian package.
const CARGO_DEB: &str = "3.8.0";

/// The settings for a fast build of these tools. Each tool runs for a second, so it is not worth minutes of compiling.
const QUICK_BUILD: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// Installs the packages of the system that the tests need.
pub(crate) fn for_tests(workspace: &Workspace) -> Result<(), String> {
    succeed(&mut Command::new(workspace.root.join("setup/debian")))
}

/// Installs the tools that the checks need: rustfmt, clippy, cargo-deny.
pub(crate) fn for_checks(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    for_lints(steps)?;
    for_other_systems(steps)?;
    match cargo_deny_job(workspace) {
        Some(mut job) => {
            steps.command(&job.name, &mut job.command)?;
            clean_up(workspace).map_err(|reason| Failure::new(&job.name, reason))
        }
        None => Ok(()),
    }
}

/// The systems other than Linux. The checks compile the library for them.
pub(crate) const OTHER_SYSTEMS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-gnu"];

/// Installs the standard libraries of the other systems, which compiling for them needs.
pub(crate) fn for_other_systems(steps: &mut Steps) -> Result<(), Failure> {
    let mut add = Command::new("rustup");
    steps.command("install the standard libraries", add.args(["target", "add"]).args(OTHER_SYSTEMS))
}

/// Installs what a static program needs: the standard library for its target, and a C compiler for that target.
pub(crate) fn for_static(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    steps.step("install the system packages", || for_tests(workspace))?;
    let mut add = Command::new("rustup");
    steps.command("install the standard library", add.args(["target", "add", &static_program::target()]))
}

/// Installs the tools that the format check and the lints need: rustfmt and clippy.
pub(crate) fn for_lints(steps: &mut Steps) -> Result<(), Failure> {
    for (component, program) in [("rustfmt", "cargo-fmt"), ("clippy", "cargo-clippy")] {
        if !is_installed(Command::new(program).arg("--version")) {
            let mut add = Command::new("rustup");
            add.args(["component", "add", component]);
            steps.command(&format!("install {component}"), &mut add)?;
        }
    }
    Ok(())
}

/// The job that installs cargo-deny. `None`: it is installed.
pub(crate) fn cargo_deny_job(workspace: &Workspace) -> Option<Job> {
    if is_installed(Command::new(cargo_deny(workspace)).arg("--version")) {
        return None;
    }
    let install = install(workspace, "cargo-deny", CARGO_DENY);
    Some(Job::new("install cargo-deny", at_low_priority(&install)))
}

/// The path of the project's own cargo-deny. It is in the build directory, so that the user's installation is not
/// changed.
pub(crate) fn cargo_deny(workspace: &Workspace) -> PathBuf {
    tool_folder(workspace, "cargo-deny", CARGO_DENY).join("bin/cargo-deny")
}

/// Installs cargo-fuzz, unless it is installed.
pub(crate) fn for_fuzz(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    if is_installed(Command::new(cargo_fuzz(workspace)).arg("--version")) {
        return Ok(());
    }
    let step = "install cargo-fuzz";
    steps.command(step, &mut install(workspace, "cargo-fuzz", CARGO_FUZZ))?;
    clean_up(workspace).map_err(|reason| Failure::new(step, reason))
}

/// The path of the project's own cargo-fuzz.
pub(crate) fn cargo_fuzz(workspace: &Workspace) -> PathBuf {
    tool_folder(workspace, "cargo-fuzz", CARGO_FUZZ).join("bin/cargo-fuzz")
}

/// Installs mdbook, unless it is installed.
pub(crate) fn for_book(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    if is_installed(Command::new(mdbook(workspace)).arg("--version")) {
        return Ok(());
    }
    let step = "install mdbook";
    steps.command(step, &mut install(workspace, "mdbook", MDBOOK))?;
    clean_up(workspace).map_err(|reason| Failure::new(step, reason))
}

/// The path of the project's own mdbook.
pub(crate) fn mdbook(workspace: &Workspace) -> PathBuf {
    tool_folder(workspace, "mdbook", MDBOOK).join("bin/mdbook")
}

/// Installs cargo-deb, unless it is installed.
pub(crate) fn for_deb(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    if is_installed(Command::new(cargo_deb(workspace)).arg("--version")) {
        return Ok(());
    }
    let step = "install cargo-deb";
    steps.command(step, &mut install(workspace, "cargo-deb", CARGO_DEB))?;
    clean_up(workspace).map_err(|reason| Failure::new(step, reason))
}

/// The path of the project's own cargo-deb.
pub(crate) fn cargo_deb(workspace: &Workspace) -> PathBuf {
    tool_folder(workspace, "cargo-deb", CARGO_DEB).join("bin/cargo-deb")
}

fn install(workspace: &Workspace, tool: &str, version: &str) -> Command {
    let mut install = workspace.cargo("install");
    install.args(["--locked", "--no-default-features", "--version", version, tool, "--root"]);
    // With a separate build directory, the build need not wait for other builds.
    install
        .arg(tool_folder(workspace, tool, version))
        .env("CARGO_TARGET_DIR", workspace.target.join("tools/build"));
    install.envs(QUICK_BUILD).env_remove("RUSTFLAGS");
    install
}

fn tool_folder(workspace: &Workspace, tool: &str, version: &str) -> PathBuf {
    workspace.target.join(format!("tools/{tool}-{version}"))
}

/// Removes the build directory of the tools. It is ten times as large as the tools.
pub(crate) fn clean_up(workspace: &Workspace) -> Result<(), String> {
    match std::fs::remove_dir_all(workspace.target.join("tools/build")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn is_installed(command: &mut Command) -> bool {
    command.current_dir(env::temp_dir()).output().is_ok_and(|output| output.status.success())
}
