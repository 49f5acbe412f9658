//! The diagnosis of the file engine, and the parts of it that every engine with files on this machine shares: `mounts`
//! and `place` look at the file system, `limits` at the limits of the process and of its user. Nothing is created.

mod directory;
mod holders;
mod limits;
mod mounts;
mod place;
mod processes;

pub use limits::{LimitIds, diagnose_limits};
pub use place::{PlaceIds, diagnose_place, is_on_overlay};

use super::{dir::open::Access, engine::FileEngine};
use crate::{Diagnostic, Severity};

/// The ids of the diagnostics about the file system of the lock directory.
const PLACE: PlaceIds = PlaceIds {
    file_system_id: "file-fs",
    mount_id: "file-mount",
    space_id: "file-space",
    without_space: "new names cannot be locked",
};
/// The ids of the diagnostics about limits.
const LIMITS: LimitIds = LimitIds { open_files_id: "file-open-files", inotify_id: "file-inotify" };

/// What an operator should know about the lock directory, its file system, and this process.
pub(super) fn diagnose(engine: &FileEngine) -> Vec<Diagnostic> {
    let path = &engine.dir.path;
    let lock_dir = match engine.dir.lock_dir(Access::ExistingToRead) {
        Ok(lock_dir) => lock_dir,
        // The directory is refused, and the error says why.
        Err(error) => {
            let advice = "mend the directory, or name another one in the URL";
            return vec![Diagnostic::new("file-directory", Severity::Broken, error.message, advice)];
        }
    };
    let sharing_group = lock_dir.and_then(|lock_dir| lock_dir.sharing_group);
    let mut all = directory::diagnose(path, lock_dir.is_some(), sharing_group);
    all.extend(diagnose_place(path, &PLACE));
    all.extend(diagnose_limits(lock_dir.is_some().then_some(path), &LIMITS));
    all.push(processes::diagnose(sharing_group.is_some()));
    all.extend(holders::diagnose(engine));
    all
}
