//! The claims of this client that wait at one server.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

use leasehold_core::ClaimId;

use super::lock_mutex;

/// The claims that wait for notifications, and the foreign locks that they watch.
#[derive(Default)]
pub(crate) struct WaitingClaims {
    waiting: Mutex<HashSet<ClaimId>>,
    /// Locks that other programs hold, and for each our claims that are near the head of its queue.
    watched: Mutex<HashMap<String, HashSet<ClaimId>>>,
}

impl WaitingClaims {
    pub(crate) fn is_empty(&self) -> bool {
        lock_mutex(&self.waiting).is_empty()
    }

    /// The claim waits. Returns true if no other claim waited before.
    pub(crate) fn add(&self, claim: ClaimId) -> bool {
        let mut waiting = lock_mutex(&self.waiting);
        waiting.insert(claim) && waiting.len() == 1
    }

    /// The claim no longer waits, and watches no lock.
    pub(crate) fn remove(&self, claim: ClaimId) {
        if !lock_mutex(&self.waiting).remove(&claim) {
            return;
        }
        lock_mutex(&self.watched).retain(|_, watchers| {
            watchers.remove(&claim);
            !watchers.is_empty()
        });
    }

    /// The claim is to ask when the server reports that this lock changed. Bounded by the number of waiting claims.
    pub(crate) fn watch(&self, lock: String, claim: ClaimId) {
        lock_mutex(&self.watched).entry(lock).or_default().insert(claim);
    }

    /// The claims that watch this lock; they watch it no longer.
    pub(crate) fn take_watchers(&self, lock: &str) -> HashSet<ClaimId> {
        lock_mutex(&self.watched).remove(lock).unwrap_or_default()
    }

    /// No lock is watched any more: a new connection tracks none.
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
