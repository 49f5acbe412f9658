//! The claims of this client that wait at one server.

use crate::lock_mutex;
use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

use leasehold_core::ClaimId;

/// The claims that wait for notifications, and the foreign locks that they watch.
#[derive(Default)]
pub(crate) struct WaitingClaims {
    /// All claims that wait at this server.
    waiting: Mutex<HashSet<ClaimId>>,
    /// Locks that other programs hold, and for each lock our claims that watch it: those near the head of our queue.
    watched: Mutex<HashMap<String, HashSet<ClaimId>>>,
}

impl WaitingClaims {
    /// Whether no claim waits.
    pub(crate) fn is_empty(&self) -> bool {
        lock_mutex(&self.waiting).is_empty()
    }

    /// Adds a claim. Returns true if the claim was not there, and is now the only one.
    pub(crate) fn add(&self, claim: ClaimId) -> bool {
        let mut waiting = lock_mutex(&self.waiting);
        waiting.insert(claim) && waiting.len() == 1
    }

    /// Removes a claim, which then watches no lock.
    pub(crate) fn remove(&self, claim: ClaimId) {
        if !lock_mutex(&self.waiting).remove(&claim) {
            return;
        }
        lock_mutex(&self.watched).retain(|_, watchers| {
            watchers.remove(&claim);
            !watchers.is_empty()
        });
    }

    /// Makes a claim watch a lock: it asks again when the server reports that the lock changed. There are never more
    /// watches than waiting claims.
    pub(crate) fn watch(&self, lock: String, claim: ClaimId) {
        lock_mutex(&self.watched).entry(lock).or_default().insert(claim);
    }

    /// Removes all watches of this lock, and returns the claims that watched it.
    pub(crate) fn take_watchers(&self, lock: &str) -> HashSet<ClaimId> {
        lock_mutex(&self.watched).remove(lock).unwrap_or_default()
    }

    /// Removes all watches: on a new connection the server tracks no lock.
    pub(crate) fn clear_watches(&self) {
        lock_mutex(&self.watched).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_stops_waiting_watches_no_lock() {
        let claims = WaitingClaims::default();
        let [one, two] = [1, 2].map(|byte| ClaimId([byte; 16]));
        assert!(claims.add(one) && !claims.add(one) && !claims.add(two));
        claims.watch("lock:a".to_owned(), one);
        claims.watch("lock:a".to_owned(), two);
        claims.watch("lock:b".to_owned(), one);
        claims.remove(one);
        assert_eq!(claims.take_watchers("lock:a"), HashSet::from([two]));
        assert!(claims.take_watchers("lock:a").is_empty() && claims.take_watchers("lock:b").is_empty());
        assert!(!claims.is_empty());
        claims.remove(two);
        assert!(claims.is_empty());
    }
}
