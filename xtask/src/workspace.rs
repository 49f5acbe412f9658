//! The paths of the workspace, its packages and its sources, as cargo reports them.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::run::Failure;

/// The manifest of the peers (other lock crates). They are a separate workspace, because their dependencies would
/// change the builds of this one.
pub(crate) const PEERS: &str = "peers/Cargo.toml";

/// The workspace on which this program works.
pub(crate) struct Workspace {
    /// The directory of the workspace manifest.
    pub(crate) root: PathBuf,
    /// The directory for cargo's builds.
    pub(crate) target: PathBuf,
    /// The packages of the workspace.
    pub(crate) packages: Vec<Package>,
}

/// One package of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    /// Its name, as it is written after `-p`.
    pub(crate) name: String,
    /// The directory of its manifest.
    pub(crate) dir: PathBuf,
    /// Its features except `default`.
    pub(crate) features: Vec<String>,
    /// The names of its programs, as they are written after `--bin`.
    pub(crate) bins: Vec<String>,
    /// Its manifest, as cargo reports it.
    pub(crate) manifest: Value,
}

impl Workspace {
    /// Finds the workspace of the current directory.
    pub(crate) fn find() -> Result<Self, Failure> {
        let metadata = metadata().map_err(|reason| Failure::new("find the workspace", reason))?;
        Self::read(&metadata)
            .ok_or_else(|| Failure::new("find the workspace", "cargo metadata answered in an unknown form"))
    }

    fn read(metadata: &Value) -> Option<Self> {
        let packages = metadata["packages"].as_array()?.iter().map(Package::read).collect::<Option<_>>()?;
        let path = |key: &str| metadata[key].as_str().map(PathBuf::from);
        Some(Self { root: path("workspace_root")?, target: path("target_directory")?, packages })
    }

    /// The packages that a release publishes.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Package> {
        // `publish = false` is an empty list of registries.
        self.packages.iter().filter(|package| package.manifest["publish"].is_null())
    }

    /// The command `cargo VERB`, run in the root of the workspace.
    pub(crate) fn cargo(&self, verb: &str) -> Command {
        let mut command = cargo(verb);
        command.current_dir(&self.root);
        command
    }

    /// The command `cargo VERB` in the workspace of the peers.
    pub(crate) fn cargo_of_peers(&self, verb: &str) -> Command {
        let mut command = self.cargo(verb);
        command.args(["--manifest-path", PEERS]).env("CARGO_TARGET_DIR", self.target.join("peers"));
        command
    }

    /// All files of the workspace whose names end with `.extension`, sorted. Hidden directories and build output are
    /// left out.
    pub(crate) fn files(&self, extension: &str) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut dirs = vec![self.root.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir)? {
                let entry = entry?;
                let (path, kind) = (entry.path(), entry.file_type()?);
                let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
                if kind.is_dir() && !is_hidden && path != self.target && !path.join("CACHEDIR.TAG").exists() {
                    dirs.push(path);
                } else if kind.is_file() && path.extension().is_some_and(|found| found == extension) {
                    found.push(path);
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// The path as it is printed: relative to the root of the workspace.
    pub(crate) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

impl Package {
    /// Its name with its version, as in the name of its packed file.
    pub(crate) fn release(&self) -> String {
        format!("{}-{}", self.name, self.manifest["version"].as_str().unwrap_or_default())
    }

    pub(crate) fn read(metadata: &Value) -> Option<Self> {
        let is_bin =
            |target: &&Value| target["kind"].as_array().is_some_and(|kinds| kinds.contains(&"bin".into()));
        let mut features: Vec<String> = metadata["features"].as_object()?.keys().cloned().collect();
        features.retain(|feature| feature != "default");
        Some(Self {
            name: metadata["name"].as_str()?.to_owned(),
            dir: Path::new(metadata["manifest_path"].as_str()?).parent()?.to_owned(),
            features,
            bins: (metadata["targets"].as_array()?.iter().filter(is_bin))
                .filter_map(|target| target["name"].as_str().map(str::to_owned))
                .collect(),
            manifest: metadata.clone(),
        })
    }
}

fn metadata() -> Result<Value, String> {
    let output = cargo("metadata").args(["--no-deps", "--format-version", "1"]).output();
    let output = output.map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// The command for `cargo VERB`, with the cargo that runs this program.
pub(crate) fn cargo(verb: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg(verb);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_found() {
        let workspace = Workspace::find().unwrap();
        let named = |name: &str| workspace.packages.iter().find(|package| package.name == name).unwrap();
        assert_eq!(named("xtask").bins, ["xtask"]);
        assert_eq!(named("xtask").dir, workspace.root.join("xtask"));
        let features = &named("leasehold-core").features;
        assert!(features.contains(&"file".to_owned()) && !features.contains(&"default".to_owned()));
        let sources = workspace.files("rs").unwrap();
        assert!(sources.contains(&workspace.root.join("xtask/src/main.rs")));
        assert!(sources.iter().all(|path| !path.starts_with(&workspace.target)));
    }
}
