//! Lock files that stay open between two holds of this process: opening one again would take longer than locking it.
//!
//! Nothing is locked on them. One that another process may have open, too, does not stay: its locks would outlive this process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::{
    claims::lock,
    locks::{Key, LockFile},
};
use crate::Name;

/// The most lock files kept open: enough for the names that a program has in use, few against any limit of open files.
const KEPT_OPEN: usize = 32;

/// An open lock file that nobody uses.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) key: Arc<Key>,
    pub(super) lock: LockFile,
}

/// Those of one engine, at most one for each name.
#[derive(Debug, Default)]
pub(super) struct Idle(Mutex<HashMap<Name, Spare>>);

impl Idle {
    /// The one of a name, for a claim of its own. Whether its path still leads to it is for the claim to find out.
    pub(super) fn take(&self, name: &Name) -> Option<Spare> {
        lock(&self.0).remove(name).filter(|spare| spare.lock.is_ours_alone())
    }

    /// Keeps one, unless that cannot be as if it had been closed.
    pub(super) fn keep(&self, spare: Spare) {
        let mut idle = lock(&self.0);
        if spare.lock.is_ours_alone() && (idle.len() < KEPT_OPEN || idle.contains_key(&spare.key.name)) {
            idle.insert(spare.key.name.clone(), spare);
        }
    }

    /// Closes all of them; whether there were any.
    pub(super) fn close(&self) -> bool {
        let closed = std::mem::take(&mut *lock(&self.0));
        !closed.is_empty()
    }
}
