//! Virtual environments of Python, in the build directory: nothing is installed into the user's Python.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::run::succeed;

/// An environment with the packages of a list.
pub(super) struct Environment {
    folder: PathBuf,
    requirements: PathBuf,
}

impl Environment {
    /// The environment in `folder` with the packages that the file `requirements` lists. It is not made yet.
    pub(super) const fn new(folder: PathBuf, requirements: PathBuf) -> Self {
        Self { folder, requirements }
    }

    /// Makes the environment, unless it was made with the same list for the same Python.
    pub(super) fn make(&self) -> Result<(), String> {
        let wanted = self.wanted()?;
        let record = self.folder.join("made-with");
        if fs::read_to_string(&record).is_ok_and(|made| made == wanted) {
            return Ok(());
        }
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.failed(&error)),
            _ => {}
        }
        succeed(Command::new("python3").args(["-m", "venv"]).arg(&self.folder))?;
        succeed(self.pip().args(["install", "--quiet", "--requirement"]).arg(&self.requirements))?;
        fs::write(record, wanted).map_err(|error| self.failed(&error))
    }

    /// What the environment depends on: the version of Python and the list.
    fn wanted(&self) -> Result<String, String> {
        let version = Command::new("python3").arg("--version").output();
        let version = version.map_err(|error| format!("python3 cannot be run: {error}: run setup/debian"))?;
        let list = fs::read_to_string(&self.requirements)
            .map_err(|error| format!("{}: {error}", self.requirements.display()))?;
        Ok(format!("{}{list}", String::from_utf8_lossy(&version.stdout)))
    }

    fn failed(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.folder.display())
    }

    /// The path of a program of the environment.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        Path::new(&self.folder).join("bin").join(name)
    }

    /// Its interpreter.
    pub(super) fn python(&self) -> PathBuf {
        self.program("python")
    }

    /// Its pip. The caller adds a command.
    pub(super) fn pip(&self) -> Command {
        let mut pip = Command::new(self.python());
        pip.args(["-m", "pip", "--disable-pip-version-check"]);
        pip
    }
}
