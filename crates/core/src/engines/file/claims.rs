//! The claims of one engine, by id, and the tombstones of released ids.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::kernel::locks::{LockFile, NamePaths};
use crate::{Claim, ClaimId, Previous, Token};

/// The maximum number of tombstones. Requests to this engine never leave the process, so only a request that another
/// thread of the process was about to make can be late.
const MAX_TOMBSTONES: usize = 1024;

/// Locks a mutex, also after a panic elsewhere: the guarded data is consistent between any two statements.
pub(super) fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One claim of this engine that waits or holds.
#[derive(Debug)]
pub(super) struct ClaimEntry {
    pub(super) claim: Claim,
    pub(super) paths: Arc<NamePaths>,
    /// Its own opened lock file, which carries its kernel locks.
    pub(super) lock_file: LockFile,
    pub(super) claim_state: ClaimState,
}

/// The state of a claim.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClaimState {
    /// In the queue.
    Waiting {
        /// The slot of its record.
        slot: u32,
        /// Its ticket.
        ticket: u64,
    },
    /// Holding.
    Holding {
        /// The slot of its record; 0 for an exclusive hold.
        slot: u32,
        /// The first token of the grant.
        token: Token,
        /// The number of tokens in the grant.
        tokens: u32,
        /// How the previous hold ended.
        previous: Previous,
    },
}

impl ClaimState {
    /// The slot of the claim's record.
    pub(super) const fn slot(self) -> u32 {
        match self {
            Self::Waiting { slot, .. } | Self::Holding { slot, .. } => slot,
        }
    }
}

/// What the engine knows of a claim id. The cell of a claim is locked while a verb works on the claim.
#[derive(Debug)]
pub(super) enum ClaimCell {
    /// The first call of the verb `claim` with this id has not returned yet.
    Fresh,
    /// The claim waits or holds.
    Live(Box<ClaimEntry>),
    /// The claim ended.
    Gone,
}

pub(super) type SharedCell = Arc<Mutex<ClaimCell>>;

/// The claims of one engine.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    cells: HashMap<ClaimId, SharedCell>,
    /// The ids of the claims that were released.
    tombstones: HashSet<ClaimId>,
    /// The same ids in the order of their releases, oldest first.
    tombstone_order: VecDeque<ClaimId>,
}

impl Claims {
    /// The cell of `id`, created if there is none; `None` for an id that was released before.
    pub(super) fn get_or_create(&self, id: ClaimId) -> Option<SharedCell> {
        let mut inner = lock_mutex(&self.0);
        if inner.tombstones.contains(&id) {
            return None;
        }
        Some(Arc::clone(inner.cells.entry(id).or_insert_with(|| Arc::new(Mutex::new(ClaimCell::Fresh)))))
    }

    /// The cell of `id`, if there is one.
    pub(super) fn find(&self, id: ClaimId) -> Option<SharedCell> {
        lock_mutex(&self.0).cells.get(&id).cloned()
    }

    /// Forgets `id`, whose cell the caller has set to [`ClaimCell::Gone`].
    pub(super) fn forget(&self, id: ClaimId) {
        lock_mutex(&self.0).cells.remove(&id);
    }

    /// Calls `visit` for every claim that waits or holds.
    #[cfg(test)]
    pub(super) fn for_each(&self, mut visit: impl FnMut(&ClaimEntry)) {
        for cell in lock_mutex(&self.0).cells.values() {
            if let ClaimCell::Live(entry) = &*lock_mutex(cell) {
                visit(entry);
            }
        }
    }

    /// Removes `id` for its release and leaves a tombstone: no later `claim` of this id creates anything.
    pub(super) fn add_tombstone(&self, id: ClaimId) -> Option<SharedCell> {
        let mut inner = lock_mutex(&self.0);
        let cell = inner.cells.remove(&id);
        if inner.tombstones.insert(id) {
            inner.tombstone_order.push_back(id);
            if inner.tombstone_order.len() > MAX_TOMBSTONES {
                let oldest = inner.tombstone_order.pop_front();
                inner.tombstones.remove(&oldest.expect("the queue is longer than the bound"));
            }
        }
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_id_cannot_be_used_again_and_memory_is_bounded() {
        let claims = Claims::default();
        let id = |n: u32| ClaimId(u128::from(n).to_be_bytes());
        assert!(claims.get_or_create(id(0)).is_some());
        assert!(claims.add_tombstone(id(0)).is_some() && claims.add_tombstone(id(0)).is_none());
        assert!(claims.get_or_create(id(0)).is_none() && claims.find(id(0)).is_none());
        for n in 1..=MAX_TOMBSTONES as u32 {
            claims.add_tombstone(id(n));
        }
        assert_eq!(lock_mutex(&claims.0).tombstones.len(), MAX_TOMBSTONES);
        assert!(claims.get_or_create(id(0)).is_some(), "the oldest was forgotten");
        assert!(claims.get_or_create(id(1)).is_none());
    }
}
