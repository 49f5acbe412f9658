//! What only the file engine has: the descriptor of a hold.

use std::{io, os::fd::OwnedFd};

use crate::{Guard, Locks, open::EngineHandle};

impl Locks {
    /// Duplicates the descriptor by which a hold of the file engine locks its lock file, for a child process that
    /// inherits it. If this process ends without a release, the name stays taken as long as the duplicate, or a copy of
    /// it in a child process, is open. A release frees the name all the same. `None` if the hold does not exist any
    /// more, and on other engines.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let url = format!("file:{}", dir.path().display());
    /// let locks = leasehold::Locks::connect(&url)?;
    /// let guard = locks.mutex("backup").blocking().acquire()?;
    /// let descriptor = locks.descriptor(&guard).unwrap();
    /// assert!(descriptor.is_some(), "it is a hold of the file engine");
    /// guard.release_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// An error of the operating system: it has no descriptor left.
    pub fn descriptor(&self, guard: &Guard) -> io::Result<Option<OwnedFd>> {
        match &self.handle {
            EngineHandle::File(file) => file.descriptor(guard.id()),
            _ => Ok(None),
        }
    }
}
