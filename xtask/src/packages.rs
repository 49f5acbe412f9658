//! `cargo xtask packages`: packs the published packages as for an upload, and compiles what was packed.
//!
//! Cargo itself would compile each package apart, with features of its own, which takes minutes. Here all unpacked
//! packages form one workspace, which is compiled once, with all features and without code generation.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    run::{Failure, Steps, succeed},
    side_by_side::Job,
    test::at_low_priority,
    workspace::Workspace,
};

/// The job that runs this chore in a process of its own.
pub(crate) fn job(workspace: &Workspace) -> Job {
    let mut chore = workspace.cargo("xtask");
    chore.arg("packages");
    Job::new("packages", at_low_priority(&chore))
}

/// Packs, unpacks and compiles the published packages.
pub(crate) fn check(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    // Asks the registry, as for an upload, and uploads nothing. It keeps no packed file.
    steps.command("try to publish", &mut of_published(workspace, "publish", &["--dry-run"]))?;
    steps.command("pack the packages", &mut of_published(workspace, "package", &[]))?;
    let unpacked = steps.step("unpack the packages", || unpack(workspace))?;
    let mut check = workspace.cargo("check");
    check.current_dir(&unpacked).args(["--offline", "--workspace", "--all-features"]);
    check.env("CARGO_TARGET_DIR", &workspace.target);
    steps.command("compile the packages", &mut check)
}

/// The command `cargo VERB` on all published packages.
fn of_published(workspace: &Workspace, verb: &str, args: &[&str]) -> Command {
    let mut command = workspace.cargo(verb);
    command.args(["--no-verify", "--locked", "--allow-dirty"]).args(args);
    workspace.published().for_each(|package| {
        command.args(["--package", &package.name]);
    });
    command
}

/// Unpacks the packages into one new workspace. Returns its folder.
fn unpack(workspace: &Workspace) -> Result<PathBuf, String> {
    let packed = workspace.target.join("package");
    let dir = packed.join("unpacked");
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(failed)?;
    }
    fs::create_dir_all(&dir).map_err(failed)?;
    for package in workspace.published() {
        let archive = packed.join(format!("{}.crate", package.release()));
        // All files of a package have the same time. Cargo would take files that were compiled before for unchanged.
        succeed(Command::new("tar").arg("xzmf").arg(archive).arg("-C").arg(&dir))?;
    }
    // The versions of all dependencies, as in this workspace.
    fs::copy(workspace.root.join("Cargo.lock"), dir.join("Cargo.lock")).map_err(failed)?;
    let releases = workspace.published().map(|package| (package.name.clone(), package.release()));
    fs::write(dir.join("Cargo.toml"), manifest(&releases.collect::<Vec<_>>())).map_err(failed)?;
    check_texts(workspace, &dir)?;
    Ok(dir)
}

/// The manifest of the workspace of unpacked packages: their dependencies on each other lead to these folders, and not
/// to a registry.
fn manifest(releases: &[(String, String)]) -> String {
    let members: Vec<_> = releases.iter().map(|(_, folder)| format!("{folder:?}")).collect();
    let patches: String =
        releases.iter().map(|(name, folder)| format!("{name} = {{ path = {folder:?} }}\n")).collect();
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n[patch.crates-io]\n{patches}",
        members.join(", ")
    )
}

/// Returns an error if a package lacks its readme or a licence.
fn check_texts(workspace: &Workspace, dir: &Path) -> Result<(), String> {
    for package in workspace.published() {
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            let path = dir.join(package.release()).join(file);
            if fs::metadata(&path).map_or(0, |metadata| metadata.len()) == 0 {
                return Err(format!("the package {} lacks the text of {file}", package.name));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_packages_depend_on_each_other() {
        let manifest = manifest(&[("a".into(), "a-0.1.0".into()), ("b".into(), "b-0.1.0".into())]);
        assert!(manifest.contains("members = [\"a-0.1.0\", \"b-0.1.0\"]"), "{manifest}");
        assert!(manifest.contains("[patch.crates-io]\na = { path = \"a-0.1.0\" }\nb = {"), "{manifest}");
    }
}
