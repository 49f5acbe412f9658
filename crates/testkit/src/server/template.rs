//! Initial data of servers: created once for all tests, and copied for each server.

use std::{
    env,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::directory;

/// The stored initial data of one kind of server, which `program` created. Each program, and each version of it, has
/// its own stored data.
pub(super) struct DataTemplate<'a> {
    pub(super) name: &'a str,
    pub(super) program: &'a Path,
}

impl DataTemplate<'_> {
    /// Fills `data`, a directory that does not exist yet, with the result of `create`.
    ///
    /// `create` runs only one time for each version of the program and each user. Its result is kept in the directory
    /// in which cargo lets tests keep files. Parallel callers wait for each other.
    ///
    /// # Panics
    /// If the program does not exist, or the disk is full.
    pub(super) fn copy_to(&self, data: &Path, create: impl FnOnce(&Path)) {
        let Some(cargo_tmp) = cargo_tmp() else {
            // The test program is not in cargo's target directory, so there is no place to keep the result.
            return create(data);
        };
        fs::create_dir_all(&cargo_tmp).expect("a directory of cargo's can be written to");
        let program = fs::metadata(self.program).expect("a server is missing: run setup/debian");
        let user = nix::unistd::Uid::effective();
        let name = format!("{}-{user}-{}-{}", self.name, program.size(), program.mtime());
        let (template, draft) = (cargo_tmp.join(&name), cargo_tmp.join(format!("{name}.draft")));
        let lock_file = File::create(cargo_tmp.join(format!("{name}.lock")));
        let lock_file = lock_file.expect("a directory of cargo's can be written to");
        lock_file.lock().expect("a file can be locked");
        if !template.exists() {
            // A server that runs as another user has no access to cargo's directory.
            let scratch = directory::scratch();
            let created = scratch.path().join("data");
            create(&created);
            directory::remove(&draft);
            directory::copy(&created, &draft);
            fs::rename(&draft, &template).expect("a directory of cargo's can be written to");
        }
        drop(lock_file);
        directory::copy(&template, data);
    }
}

/// Cargo's directory for files of tests. It is found from the path of this test program.
fn cargo_tmp() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let target = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file())?;
    Some(target.join("tmp"))
}
