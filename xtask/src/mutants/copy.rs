//! A private copy of the source tree, with a separate build directory, so that the user's tree and builds stay
//! unchanged. The copy is kept between runs, so code that no mutant changes is built only once.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use super::patch::{Mutant, apply};
use crate::workspace::{Workspace, cargo};

/// The copy: the source tree is in `tree`, its build is in `built`, and a third directory is for temporary files of its
/// tests.
pub(super) struct TreeCopy {
    dir: PathBuf,
}

/// A mutant that is applied to the tree of the copy. Dropping this value reverts the mutant.
pub(super) struct AppliedMutant<'a> {
    tree: PathBuf,
    mutant: &'a Mutant,
}

impl TreeCopy {
    /// Makes the copy equal to the current source tree, whatever an earlier run has left in the copy.
    pub(super) fn refresh(workspace: &Workspace) -> Result<Self, String> {
        let copy = Self { dir: workspace.target.join("mutants") };
        let files = files(&workspace.root)?;
        let failed = |error: io::Error| format!("{}: {error}", copy.dir.display());
        copy.empty_tmp()?;
        copy.remove_other_files(&files).map_err(failed)?;
        for file in &files {
            let (from, to) = (workspace.root.join(file), copy.tree().join(file));
            // A file that has not changed is not written, so that it keeps its time stamp and cargo does not rebuild
            // it.
            let text = fs::read(&from).map_err(failed)?;
            if fs::read(&to).ok().as_ref() != Some(&text) {
                fs::create_dir_all(to.parent().unwrap_or(&to)).map_err(failed)?;
                fs::copy(&from, &to).map_err(failed)?;
            }
        }
        Ok(copy)
    }

    /// Applies a mutant to the tree of the copy.
    pub(super) fn apply<'a>(&self, mutant: &'a Mutant) -> Result<AppliedMutant<'a>, String> {
        apply(&self.tree(), &mutant.path, &[])?;
        Ok(AppliedMutant { tree: self.tree(), mutant })
    }

    /// The command `cargo VERB` in the copy.
    pub(super) fn cargo(&self, verb: &str) -> Command {
        let mut command = cargo(verb);
        command.current_dir(self.tree());
        command.env("CARGO_TARGET_DIR", self.dir.join("built")).env("TMPDIR", self.tmp());
        command
    }

    /// The file for the output of commands.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("output")
    }

    /// Removes the files that a killed test left behind.
    pub(super) fn empty_tmp(&self) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", self.tmp().display());
        match fs::remove_dir_all(self.tmp()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => fs::create_dir_all(self.tmp()).map_err(failed),
        }
    }

    fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    fn tmp(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    /// Removes the files of the copy that are not among `files`.
    fn remove_other_files(&self, files: &BTreeSet<PathBuf>) -> io::Result<()> {
        let tree = self.tree();
        fs::create_dir_all(&tree)?;
        let mut dirs = vec![tree.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir)? {
                let entry = entry?;
                let path = entry.path();
                if entry.file_type()?.is_dir() {
                    dirs.push(path);
                } else if path.strip_prefix(&tree).is_ok_and(|file| !files.contains(file)) {
                    fs::remove_file(path)?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for AppliedMutant<'_> {
    fn drop(&mut self) {
        // If a mutant cannot be reverted, the next mutant will not apply. The next run repairs the copy.
        if let Err(error) = apply(&self.tree, &self.mutant.path, &["--reverse"]) {
            eprintln!("xtask: {}: cannot be reverted: {error}", self.mutant.name);
        }
    }
}

/// The files of the source tree that git tracks or would track. Build output and ignored files are not among them.
fn files(root: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().map_err(|error| format!("git cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let listed = String::from_utf8(output.stdout).map_err(|error| format!("git ls-files: {error}"))?;
    let files = listed.split_terminator('\0').map(PathBuf::from);
    Ok(files.filter(|file| root.join(file).is_file()).collect())
}
