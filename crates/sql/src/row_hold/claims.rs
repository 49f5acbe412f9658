//! The claims of one client, by id, and the tombstones of released ids.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use leasehold_core::{ClaimId, Name};
use tokio::sync::Mutex as AsyncMutex;

use super::client::{Connection, ConnectionTask};

/// The maximum number of tombstones. Every request of a claim is made by this process, so only a request that was about
/// to be made can be late.
const MAX_TOMBSTONES: usize = 1024;

/// The state of a claim. It is locked while a verb works on the claim.
pub(super) enum ClaimState {
    /// Its first request has not been answered yet.
    Fresh,
    /// It asks again.
    Waiting,
    /// Its connection holds the row.
    Held { connection: Connection, name: Name, number: u64 },
    /// It was released without an answer, and its connection is being closed.
    Closing(ConnectionTask),
    /// It has ended.
    Gone,
}

pub(super) type ClaimCell = Arc<AsyncMutex<ClaimState>>;

/// The claims of one client.
#[derive(Default)]
pub(super) struct Claims(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    cells: HashMap<ClaimId, ClaimCell>,
    tombstones: HashSet<ClaimId>,
    /// The same ids, oldest first.
    tombstone_order: VecDeque<ClaimId>,
}

impl Claims {
    /// The cell of a claim, created if there is none; `None` for a claim that was released before.
    pub(super) fn get_or_create(&self, id: ClaimId) -> Option<ClaimCell> {
        let mut inner = self.lock();
        if inner.tombstones.contains(&id) {
            return None;
        }
        let fresh = || Arc::new(AsyncMutex::new(ClaimState::Fresh));
        Some(Arc::clone(inner.cells.entry(id).or_insert_with(fresh)))
    }

    /// The cell of a claim, if there is one.
    pub(super) fn find(&self, id: ClaimId) -> Option<ClaimCell> {
        self.lock().cells.get(&id).cloned()
    }

    /// Forgets a claim that has nothing.
    pub(super) fn forget(&self, id: ClaimId) {
        self.lock().cells.remove(&id);
    }

    /// Whether the claim was released.
    pub(super) fn is_released(&self, id: ClaimId) -> bool {
        self.lock().tombstones.contains(&id)
    }

    /// Prevents later requests from creating anything for a claim, for its release. The caller forgets the claim when
    /// nothing of it is left.
    pub(super) fn bury(&self, id: ClaimId) -> Option<ClaimCell> {
        let mut inner = self.lock();
        if inner.tombstones.insert(id) {
            inner.tombstone_order.push_back(id);
            if inner.tombstone_order.len() > MAX_TOMBSTONES
                && let Some(oldest) = inner.tombstone_order.pop_front()
            {
                inner.tombstones.remove(&oldest);
            }
        }
        inner.cells.get(&id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under this lock can panic in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
