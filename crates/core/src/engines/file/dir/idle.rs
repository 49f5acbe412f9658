//! A cache of lock files that stay open between two holds of this process: to open one again takes longer than to
//! lock it.
//!
//! Nothing is locked on them. A file that another process may also have open is not stored: its locks would outlive
//! this process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::super::{
    claims::lock,
    kernel::locks::{Key, LockFile},
};
use crate::Name;

/// The maximum number of lock files kept open: enough for the names in use by a program, few against any limit of
/// open files.
const MAX_OPEN: usize = 32;

/// An open lock file that no claim uses.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) key: Arc<Key>,
    pub(crate) lock: LockFile,
}

/// The spare lock files of one engine, at most one per name.
#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<HashMap<Name, Spare>>);

impl Idle {
    /// Takes the lock file of a name out, for one claim. The claim checks whether its path still leads to it.
    pub(crate) fn take(&self, name: &Name) -> Option<Spare> {
        lock(&self.0).remove(name).filter(|spare| spare.lock.is_ours_alone())
    }

    /// Stores a lock file, unless that would differ from closing it.
    pub(crate) fn add(&self, spare: Spare) {
        let mut idle = lock(&self.0);
        if spare.lock.is_ours_alone() && (idle.len() < MAX_OPEN || idle.contains_key(&spare.key.name)) {
            idle.insert(spare.key.name.clone(), spare);
        }
    }

    /// Closes all of them; returns whether there were any.
    pub(crate) fn close(&self) -> bool {
        let closed = std::mem::take(&mut *lock(&self.0));
        !closed.is_empty()
    }
}
