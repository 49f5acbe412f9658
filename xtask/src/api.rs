//! `cargo xtask api [--write]`: compares the public API of the crate `leasehold` with the listing in `docs/api`.
//!
//! rustdoc describes the crates of this project as JSON, and `public-api` lists the items. The crate `leasehold` passes
//! on items of the other crates, so the listing has the items of those crates whose paths `leasehold` names.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;

use crate::{
    run::{Failure, Steps, succeed},
    side_by_side::Job,
    test::at_low_priority,
    workspace::Workspace,
};

const LISTING: &str = "docs/api/leasehold.txt";
/// The crate that users see.
const CRATE: &str = "leasehold";
/// The crates whose items it passes on.
const INNER_CRATES: [&str; 6] = ["core", "etcd", "redis", "sql", "tls", "zookeeper"];
/// The words between core and the engines: a new one must not compile before every engine handles it, also an engine of
/// a user. And the answer of `once_in`: a program that did not handle one of its words could do the work twice.
const EXHAUSTIVE: [&str; 12] = [
    "AllAnswer",
    "Answer",
    "Fault",
    "HoldAfter",
    "How",
    "OnceIn",
    "Released",
    "Renewed",
    "TimeLeft",
    "Upgraded",
    "Watched",
    "Written",
];
/// The release of the compiler whose JSON `public-api` in `xtask/Cargo.toml` reads.
const RUST: &str = "1.95";

/// The job that runs this chore in a process of its own.
pub(crate) fn job(workspace: &Workspace) -> Job {
    let mut chore = workspace.cargo("xtask");
    chore.arg("api");
    Job::new("public API", at_low_priority(&chore))
}

/// Fails if the listing is not that of the sources. With `write`, writes the listing.
pub(crate) fn check(steps: &mut Steps, workspace: &Workspace, write: bool) -> Result<(), Failure> {
    for name in std::iter::once(CRATE.to_owned()).chain(INNER_CRATES.map(|name| format!("{CRATE}-{name}"))) {
        steps.step(&format!("describe {name}"), || describe(workspace, &name))?;
    }
    steps.step("compare the public API", || {
        let listing = listing(workspace)?;
        let is_exhaustive = |line: &&str| {
            let name = line.strip_prefix("pub enum ").and_then(|path| path.split("::").nth(1));
            let name = name.and_then(|name| name.split('<').next());
            name.is_some_and(|name| !EXHAUSTIVE.contains(&name))
        };
        let exhaustive: Vec<_> = listing.lines().filter(is_exhaustive).collect();
        if !exhaustive.is_empty() {
            return Err(format!("public enums without #[non_exhaustive]: {}", exhaustive.join("; ")));
        }
        let path = workspace.root.join(LISTING);
        if write {
            return fs::write(path, listing).map_err(|error| format!("{LISTING}: {error}"));
        }
        let stored = fs::read_to_string(path).map_err(|error| format!("{LISTING}: {error}"))?;
        let changes = changes(&stored, &listing);
        if changes.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the public API changed. If this is intended, run `cargo xtask api --write` and add a line to \
             CHANGELOG.md:\n{}",
            changes.join("\n")
        ))
    })
}

/// Writes the JSON of a crate into the folder of the documentation.
fn describe(workspace: &Workspace, package: &str) -> Result<(), String> {
    let mut rustdoc = workspace.cargo("rustdoc");
    rustdoc.args(["--locked", "--quiet", "--lib", "--all-features", "--package", package]);
    // The folder of its own keeps the pages of the documentation.
    rustdoc.args(["--", "-Zunstable-options", "--output-format", "json", "--cap-lints", "allow"]);
    // Only rustdoc may use the unstable option: with the variable for all programs, cargo would build each dependency
    // anew.
    rustdoc.env("RUSTDOC", workspace.root.join("setup/rustdoc"));
    succeed(&mut rustdoc).map_err(|error| format!("{error} (the listing needs Rust {RUST})"))
}

fn json_path(workspace: &Workspace, package: &str) -> PathBuf {
    workspace.target.join("doc").join(format!("{}.json", package.replace('-', "_")))
}

/// The public API as lines: the items of the crate, then those of other crates that it passes on.
fn listing(workspace: &Workspace) -> Result<String, String> {
    let path = json_path(workspace, CRATE);
    let json = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let json: Value = serde_json::from_str(&json).map_err(|error| format!("{}: {error}", path.display()))?;
    let passed_on = passed_on(&json);
    let mut lines = items(workspace, CRATE)?;
    for name in INNER_CRATES {
        let inner = items(workspace, &format!("{CRATE}-{name}"))?;
        let is_passed_on = |line: &String| passed_on.contains(&root_item(subject(line)));
        lines.extend(inner.into_iter().filter(is_passed_on));
    }
    Ok(lines.join("\n") + "\n")
}

/// The items of a crate, one a line.
fn items(workspace: &Workspace, package: &str) -> Result<Vec<String>, String> {
    let api = public_api::Builder::from_rustdoc_json(json_path(workspace, package))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .sorted(true)
        .build()
        .map_err(|error| format!("{package}: {error} (the listing needs Rust {RUST})"))?;
    Ok(api.items().map(ToString::to_string).collect())
}

/// The paths of items of other crates that a crate passes on to its users.
fn passed_on(json: &Value) -> BTreeSet<String> {
    let items = json["index"].as_object().into_iter().flat_map(|index| index.values());
    let sources = items.filter_map(|item| item["inner"]["use"]["source"].as_str());
    sources.filter(|source| source.starts_with("leasehold_")).map(str::to_owned).collect()
}

/// The path of the item that a line is about. For an `impl` this is the type.
fn subject(line: &str) -> &str {
    let line = match line.strip_prefix("impl") {
        Some(of_impl) => of_impl.split_once(" for ").map_or(of_impl, |(_, of_type)| of_type),
        None => line,
    };
    let start = line.find("leasehold").unwrap_or(line.len());
    let end = line[start..].find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    &line[start..end.map_or(line.len(), |end| start + end)]
}

/// The first two parts of a path: the crate, and the item in its root.
fn root_item(path: &str) -> String {
    path.splitn(3, "::").take(2).collect::<Vec<_>>().join("::")
}

/// The lines that only one of two listings has.
fn changes(stored: &str, new: &str) -> Vec<String> {
    let (stored, new): (BTreeSet<_>, BTreeSet<_>) = (stored.lines().collect(), new.lines().collect());
    let removed = stored.difference(&new).map(|line| format!("-{line}"));
    removed.chain(new.difference(&stored).map(|line| format!("+{line}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_about_its_item() {
        for (line, item) in [
            ("pub fn leasehold_core::Guard::check(&self) -> leasehold_core::Error", "leasehold_core::Guard"),
            ("impl core::fmt::Debug for leasehold_core::Guard", "leasehold_core::Guard"),
            (
                "impl<T> core::convert::From<leasehold_core::Mode> for leasehold_core::Name<T>",
                "leasehold_core::Name",
            ),
            ("impl leasehold_core::Mode", "leasehold_core::Mode"),
            ("#[non_exhaustive] pub enum leasehold_core::Mode", "leasehold_core::Mode"),
            ("pub mod other", ""),
        ] {
            assert_eq!(root_item(subject(line)), item, "{line}");
        }
    }

    #[test]
    fn items_of_other_crates_are_found() {
        let json = serde_json::json!({"index": {
            "1": {"inner": {"use": {"source": "leasehold_core::Guard", "name": "Guard"}}},
            "2": {"inner": {"use": {"source": "tokio_rustls::rustls", "name": "rustls"}}},
            "3": {"inner": {"function": {}}},
        }});
        assert_eq!(passed_on(&json).into_iter().collect::<Vec<_>>(), ["leasehold_core::Guard"]);
    }

    #[test]
    fn each_changed_line_is_reported() {
        assert_eq!(changes("a\nb\n", "b\nc\n"), ["-a", "+c"]);
        assert_eq!(changes("a\n", "a\n"), [""; 0]);
    }
}
