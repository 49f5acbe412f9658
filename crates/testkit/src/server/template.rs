//! What servers begin with: made once for all tests, and copied for each server.

use std::{
    env,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::directory;

/// What a program that makes such data is, so that those of another one are not used.
pub(super) struct Maker<'a> {
    pub(super) name: &'a str,
    pub(super) program: &'a Path,
}

impl Maker<'_> {
    /// Puts what `make` puts into an empty directory at `data`, which is not there yet.
    ///
    /// `make` runs once for each version of the program, and for each user: what it made is kept where cargo keeps what tests
    /// make. Others who need it meanwhile wait.
    ///
    /// # Panics
    /// When there is no such program, or no room.
    pub(super) fn put(&self, data: &Path, make: impl FnOnce(&Path)) {
        let Some(cargo_tmp) = cargo_tmp() else {
            // A program that was taken from where cargo built it.
            return make(data);
        };
        fs::create_dir_all(&cargo_tmp).expect("a directory of cargo's can be written to");
        let program = fs::metadata(self.program).expect("a server is missing: run setup/debian");
        let user = nix::unistd::Uid::effective();
        let name = format!("{}-{user}-{}-{}", self.name, program.size(), program.mtime());
        let (made, draft) = (cargo_tmp.join(&name), cargo_tmp.join(format!("{name}.draft")));
        let lock_file = File::create(cargo_tmp.join(format!("{name}.lock")));
        let lock_file = lock_file.expect("a directory of cargo's can be written to");
        lock_file.lock().expect("a file can be locked");
        if !made.exists() {
            // A server that runs as another user cannot reach into the directory of cargo's.
            let scratch = directory::scratch();
            let fresh = scratch.path().join("data");
            make(&fresh);
            directory::remove(&draft);
            directory::copy(&fresh, &draft);
            fs::rename(&draft, &made).expect("a directory of cargo's can be written to");
        }
        drop(lock_file);
        directory::copy(&made, data);
    }
}

/// Where cargo keeps what tests make: beside the programs that it built, of which this is one.
fn cargo_tmp() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let target = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file())?;
    Some(target.join("tmp"))
}
