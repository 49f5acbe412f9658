//! Checks what the manifests of the published packages say to a registry, to docs.rs and to each other.

use std::path::Path;

use serde_json::Value;

use crate::workspace::{Package, Workspace};

/// The texts that each published package must have.
const TEXTS: [&str; 5] = ["description", "license", "readme", "rust_version", "edition"];
/// The lists of words that each published package must have.
const LISTS: [&str; 2] = ["keywords", "categories"];
/// The files of the licence, in the folder of each published package.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Complaints about the manifests of all published packages.
pub(super) fn complaints(workspace: &Workspace) -> Vec<String> {
    workspace
        .published()
        .flat_map(|package| of_package(package, |file| is_file(&package.dir, file)))
        .collect()
}

fn is_file(dir: &Path, name: &str) -> bool {
    // Follows a link, as cargo does when it packs the file.
    dir.join(name).metadata().is_ok_and(|metadata| metadata.is_file())
}

fn of_package(package: &Package, has_file: impl Fn(&str) -> bool) -> Vec<String> {
    let manifest = &package.manifest;
    let mut missing: Vec<String> = TEXTS
        .into_iter()
        .filter(|key| manifest[key].as_str().is_none_or(str::is_empty))
        .map(str::to_owned)
        .collect();
    let is_empty = |key: &&str| manifest[key].as_array().is_none_or(Vec::is_empty);
    missing.extend(LISTS.into_iter().filter(is_empty).map(str::to_owned));
    missing
        .extend(LICENCES.into_iter().filter(|file| !has_file(file)).map(|file| format!("the file {file}")));
    let docs = &manifest["metadata"]["docs"]["rs"];
    let has_docsrs = docs["rustdoc-args"] == serde_json::json!(["--cfg", "docsrs"]);
    if is_library(manifest) && !(docs["all-features"] == true && has_docsrs) {
        missing.push("package.metadata.docs.rs with all features and --cfg docsrs".to_owned());
    }
    let complaints = missing.into_iter().map(|what| format!("{}: its manifest lacks {what}", package.name));
    complaints.chain(dependencies(package)).collect()
}

fn is_library(manifest: &Value) -> bool {
    let targets = manifest["targets"].as_array();
    targets.is_some_and(|targets| targets.iter().any(|target| target["kind"][0] == "lib"))
}

/// Packages that tests and examples of an earlier published package use. A dependency for development names them
/// without a version, so that cargo leaves it out of the published package: the testkit is not published, and
/// `leasehold` is published after the packages that it depends on.
const LEFT_OUT: [&str; 2] = ["leasehold-testkit", "leasehold"];

/// Complaints about dependencies on packages of this workspace. Each needs exactly its own release.
fn dependencies(package: &Package) -> Vec<String> {
    let exact = format!("={}", package.manifest["version"].as_str().unwrap_or_default());
    let own = package.manifest["dependencies"].as_array().into_iter().flatten();
    own.filter(|dependency| dependency["path"].is_string())
        .filter_map(|dependency| {
            let (name, requirement) = (dependency["name"].as_str()?, dependency["req"].as_str()?);
            let is_left_out = dependency["kind"] == "dev" && LEFT_OUT.contains(&name);
            let wanted = if is_left_out { "*" } else { &exact };
            let wrong = format!("{}: depends on {name} {requirement}, not on {wanted}", package.name);
            (requirement != wanted).then_some(wrong)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaints_after(change: impl Fn(&mut Value)) -> Vec<String> {
        let mut manifest = json!({
            "name": "x", "version": "1.2.3", "manifest_path": "/x/Cargo.toml", "features": {}, "publish": null,
            "description": "d", "license": "MIT", "readme": "README.md", "rust_version": "1.89", "edition": "2024",
            "keywords": ["k"], "categories": ["c"], "targets": [{"kind": ["lib"], "name": "x"}],
            "metadata": {"docs": {"rs": {"all-features": true, "rustdoc-args": ["--cfg", "docsrs"]}}},
            "dependencies": [
                {"name": "leasehold-core", "req": "=1.2.3", "path": "/core", "kind": null},
                {"name": "leasehold-testkit", "req": "*", "path": "/testkit", "kind": "dev"},
                {"name": "tokio", "req": "^1", "kind": null},
            ],
        });
        change(&mut manifest);
        of_package(&Package::read(&manifest).unwrap(), |file| file.starts_with("LICENSE-"))
    }

    #[test]
    fn a_whole_manifest_has_no_complaint() {
        assert_eq!(complaints_after(|_| ()), [""; 0]);
    }

    #[test]
    fn each_missing_entry_is_a_complaint() {
        for key in TEXTS.iter().chain(&LISTS).chain(&["metadata"]) {
            let found = complaints_after(|manifest| manifest[*key] = Value::Null);
            assert_eq!(found.len(), 1, "{key}: {found:?}");
        }
        let found =
            complaints_after(|manifest| manifest["metadata"]["docs"]["rs"]["rustdoc-args"] = json!([]));
        assert!(found[0].contains("docsrs"), "{found:?}");
    }

    #[test]
    fn another_release_of_a_package_and_a_published_testkit_are_complaints() {
        let found = complaints_after(|manifest| manifest["dependencies"][0]["req"] = json!("^1.2.3"));
        assert!(found[0].ends_with("depends on leasehold-core ^1.2.3, not on =1.2.3"), "{found:?}");
        let found = complaints_after(|manifest| manifest["dependencies"][1]["req"] = json!("=1.2.3"));
        assert!(found[0].ends_with("not on *"), "{found:?}");
    }

    #[test]
    fn the_library_and_the_command_are_published_and_the_testkit_is_not() {
        let workspace = Workspace::find().unwrap();
        let published: Vec<_> = workspace.published().map(|package| &*package.name).collect();
        assert!(published.contains(&"leasehold") && published.contains(&"leasehold-cli"), "{published:?}");
        assert!(!published.contains(&"leasehold-testkit") && !published.contains(&"xtask"), "{published:?}");
    }
}
