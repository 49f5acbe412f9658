//! A cache of lock files that stay open between two holds of this process: to open one again takes longer than to
//! lock it.
//!
//! The cached files carry no kernel lock. A file that another process may also have open is not stored: its locks would
//! outlive this process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::super::{
    claims::lock_mutex,
    kernel::locks::{LockFile, NamePaths},
};
use crate::Name;

/// The maximum number of lock files kept open: enough for the names in use by a program, and few compared with any
/// limit on open files.
const MAX_OPEN: usize = 32;

/// An open lock file that no claim uses.
#[derive(Debug)]
pub(crate) struct IdleFile {
    pub(crate) paths: Arc<NamePaths>,
    pub(crate) lock_file: LockFile,
}

/// The idle lock files of one engine, at most one per name.
#[derive(Debug, Default)]
pub(crate) struct IdleFiles(Mutex<HashMap<Name, IdleFile>>);

impl IdleFiles {
    /// Removes and returns the lock file of a name, for one claim. The claim checks whether the path still leads to
    /// this file.
    pub(crate) fn take(&self, name: &Name) -> Option<IdleFile> {
        lock_mutex(&self.0).remove(name).filter(|idle_file| idle_file.lock_file.is_ours_alone())
    }

    /// Stores a lock file. Closes it instead if another process may have it open too, or if the cache is full.
    pub(crate) fn add(&self, idle_file: IdleFile) {
        let mut idle_files = lock_mutex(&self.0);
        if idle_file.lock_file.is_ours_alone()
            && (idle_files.len() < MAX_OPEN || idle_files.contains_key(&idle_file.paths.name))
        {
            idle_files.insert(idle_file.paths.name.clone(), idle_file);
        }
    }

    /// Closes all idle lock files; returns whether there were any.
    pub(crate) fn close_all(&self) -> bool {
        let closed = std::mem::take(&mut *lock_mutex(&self.0));
        !closed.is_empty()
    }
}
