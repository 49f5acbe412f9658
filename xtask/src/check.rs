//! The checks that run no tests: format, lints, documentation, dependencies, and our own rules.

use std::process::Command;

use crate::{
    api, own_rules, packages,
    run::{Failure, Steps},
    setup,
    side_by_side::Job,
    test::at_low_priority,
    workspace::{PEERS, Package, Workspace},
};

/// The packages in which features change the code of the package itself. The features of the other packages only enable
/// features of these two. The nightly tier also lints the other packages with each feature.
const WITH_OWN_FEATURES: [&str; 2] = ["leasehold-core", "leasehold"];

/// All checks of `./test`, one after another. The fast checks come first.
pub(crate) fn all(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    format_and_own_rules(steps, workspace)?;
    let jobs = dependencies(workspace).into_iter().chain([lints_of_all(workspace)]);
    let jobs = jobs.chain([documentation(workspace), other_systems(workspace)]);
    let jobs = jobs.chain([packages::job(workspace), api::job(workspace)]);
    let jobs = jobs.chain(lints_of_features(workspace));
    one_after_another(steps, jobs)
}

/// The checks that take only a second: format and our own rules.
pub(crate) fn format_and_own_rules(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    steps.command("format", workspace.cargo("fmt").args(["--all", "--check"]))?;
    steps.command("format, peers", workspace.cargo_of_peers("fmt").arg("--check"))?;
    steps.step("own rules", || own_rules::all(workspace))
}

/// The checks that take too long to run for each change: the lints of every package without features, with each feature
/// alone and with the default features; the lints of the peers; and whether the library compiles for another system.
pub(crate) fn nightly_jobs(workspace: &Workspace) -> Vec<Job> {
    let default = clippy(workspace, "lints, default features", &["--workspace", "--all-targets"]);
    let each_feature = workspace.packages.iter().flat_map(feature_sets).map(|set| lints_of(workspace, &set));
    let mut peers = workspace.cargo_of_peers("clippy");
    peers.args(["--locked", "--all-targets", "--", "-D", "warnings"]);
    let peers = Job::new("lints, peers", peers);
    let other_systems = setup::OTHER_SYSTEMS.map(|system| with_all_features(workspace, system));
    other_systems.into_iter().chain([default]).chain(each_feature).chain([peers]).collect()
}

/// Compiles the library with its default features for the systems other than Linux.
pub(crate) fn other_systems(workspace: &Workspace) -> Job {
    let mut check = workspace.cargo("check");
    check.args(["--locked", "--package", "leasehold"]);
    setup::OTHER_SYSTEMS.into_iter().for_each(|system| {
        check.args(["--target", system]);
    });
    Job::new("compile for other systems", at_low_priority(&check))
}

/// Compiles the library with all its features for a system other than Linux. `true` in place of a C compiler makes no
/// object files of the C code of dependencies, because nothing is linked: only Rust code is checked.
fn with_all_features(workspace: &Workspace, system: &str) -> Job {
    let mut check = workspace.cargo("check");
    check.args(["--locked", "--package", "leasehold", "--all-features", "--target", system]);
    for tool in ["CC", "AR"] {
        check.env(format!("{tool}_{}", system.replace('-', "_")), "true");
    }
    Job::new(format!("compile for {system} with all features"), check)
}

/// Runs jobs one after another, until one of them fails.
fn one_after_another(steps: &mut Steps, jobs: impl IntoIterator<Item = Job>) -> Result<(), Failure> {
    jobs.into_iter().try_for_each(|mut job| steps.command(&job.name, &mut job.command))
}

/// Checks the licences, sources and versions of our dependencies.
pub(crate) fn dependencies(workspace: &Workspace) -> Vec<Job> {
    let deny = |name: &str, manifest: &str| {
        let mut deny = Command::new(setup::cargo_deny(workspace));
        deny.current_dir(&workspace.root).args(["--workspace", "--manifest-path", manifest]);
        deny.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
        Job::new(name, deny)
    };
    vec![deny("dependencies", "Cargo.toml"), deny("dependencies, peers", PEERS)]
}

/// The lints of all packages, with every feature.
pub(crate) fn lints_of_all(workspace: &Workspace) -> Job {
    clippy(workspace, "lints, all features", &["--workspace", "--all-targets", "--all-features"])
}

/// The lints of the packages whose own code depends on features.
pub(crate) fn lints_of_features(workspace: &Workspace) -> Vec<Job> {
    let with_own_features =
        workspace.packages.iter().filter(|package| WITH_OWN_FEATURES.contains(&package.name.as_str()));
    with_own_features.flat_map(feature_sets).map(|set| lints_of(workspace, &set)).collect()
}

/// Builds the documentation. A broken link is an error.
pub(crate) fn documentation(workspace: &Workspace) -> Job {
    let mut doc = workspace.cargo("doc");
    doc.args(["--locked", "--workspace", "--no-deps", "--all-features"]).env("RUSTDOCFLAGS", "-D warnings");
    Job::new("documentation", at_low_priority(&doc))
}

/// The lints with one set of features.
fn lints_of(workspace: &Workspace, (name, args): &(String, Vec<String>)) -> Job {
    clippy(workspace, name, &args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A run of clippy. It fails if there are warnings.
fn clippy(workspace: &Workspace, name: &str, args: &[&str]) -> Job {
    let mut clippy = workspace.cargo("clippy");
    clippy.arg("--locked").args(args).args(["--", "-D", "warnings"]);
    Job::new(name, at_low_priority(&clippy))
}

/// The sets of features to check for a package: no feature, and each feature alone. Packages are checked one by one,
/// because cargo unites the features of packages that it builds together.
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
            manifest: serde_json::Value::Null,
        };
        let sets = feature_sets(&package);
        assert_eq!(sets.len(), 3);
        assert_eq!(sets[0].1, ["-p", "x", "--no-default-features"]);
        assert_eq!(sets[2].1, ["-p", "x", "--no-default-features", "--features", "redis"]);
    }

    #[test]
    fn packages_with_own_features_exist() {
        let workspace = Workspace::find().unwrap();
        assert!(lints_of_features(&workspace).len() > 2 * WITH_OWN_FEATURES.len());
    }
}
