//! Every check that needs no test run: format, lints, documentation, dependencies, our own rules.

use std::process::Command;

use crate::{
    own_rules,
    run::{Failure, Steps},
    setup,
    workspace::{PEERS, Package, Workspace},
};

/// All checks, the quick ones first.
pub(crate) fn all(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    steps.command("format", workspace.cargo("fmt").args(["--all", "--check"]))?;
    steps.command("format, peers", workspace.peers("fmt").arg("--check"))?;
    steps.step("own rules", || own_rules::all(workspace))?;
    dependencies(steps, workspace)?;
    lints(steps, workspace)?;
    documentation(steps, workspace)
}

fn dependencies(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    let deny = |manifest: &str| {
        let mut deny = Command::new(setup::cargo_deny(workspace));
        deny.current_dir(&workspace.root).args(["--workspace", "--manifest-path", manifest]);
        deny.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
        deny
    };
    steps.command("dependencies", &mut deny("Cargo.toml"))?;
    steps.command("dependencies, peers", &mut deny(PEERS))
}

fn lints(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    let clippy = |what: &[&str]| {
        let mut clippy = workspace.cargo("clippy");
        clippy.arg("--locked").args(what).args(["--", "-D", "warnings"]);
        clippy
    };
    steps.command("lints, default features", &mut clippy(&["--workspace", "--all-targets"]))?;
    steps.command("lints, all features", &mut clippy(&["--workspace", "--all-targets", "--all-features"]))?;
    for (name, args) in workspace.packages.iter().flat_map(feature_sets) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        steps.command(&name, &mut clippy(&args))?;
    }
    let mut clippy = workspace.peers("clippy");
    clippy.args(["--locked", "--all-targets", "--", "-D", "warnings"]);
    steps.command("lints, peers", &mut clippy)
}

/// No feature, and each one alone: package by package, for cargo unites the features of packages that it builds together.
fn feature_sets(package: &Package) -> Vec<(String, Vec<String>)> {
    if package.features.is_empty() {
        return Vec::new();
    }
    let name = &package.name;
    let args = |more: &[&str]| -> Vec<String> {
        ["-p", name, "--no-default-features"].iter().chain(more).map(|&arg| arg.to_owned()).collect()
    };
    let none = (format!("lints, {name} without features"), args(&[]));
    let alone =
        |feature: &String| (format!("lints, {name} with {feature} alone"), args(&["--features", feature]));
    std::iter::once(none).chain(package.features.iter().map(alone)).collect()
}

fn documentation(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    let mut doc = workspace.cargo("doc");
    doc.args(["--locked", "--workspace", "--no-deps", "--all-features"]).env("RUSTDOCFLAGS", "-D warnings");
    steps.command("documentation", &mut doc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_linted_alone() {
        let package = Package {
            name: "x".into(),
            dir: "x".into(),
            features: vec!["file".into(), "redis".into()],
            bins: Vec::new(),
        };
        let sets = feature_sets(&package);
        assert_eq!(sets.len(), 3);
        assert_eq!(sets[0].1, ["-p", "x", "--no-default-features"]);
        assert_eq!(sets[2].1, ["-p", "x", "--no-default-features", "--features", "redis"]);
    }
}
