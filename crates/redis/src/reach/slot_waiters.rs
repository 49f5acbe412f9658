//! The waiting claims of each slot, which ask again when the slot moves, or when notifications of the slot were missed.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use leasehold_core::{ClaimId, Mailbox, Name, Notification};

/// The waiting claims of one client, by the slot of their name. The number of waiting claims bounds the size.
#[derive(Default)]
pub(crate) struct SlotWaiters {
    /// The claims, and the name for which each waits.
    slots: Mutex<HashMap<u16, HashMap<ClaimId, Name>>>,
    /// The number of slots with waiters. It is mostly 0, and then [`remove`](Self::remove) does not lock `slots`.
    slot_count: AtomicUsize,
}

impl SlotWaiters {
    /// Adds a claim that waits for a name of this slot.
    pub(crate) fn add(&self, slot: u16, claim: ClaimId, name: &Name) {
        let mut slots = self.lock();
        slots.entry(slot).or_default().insert(claim, name.clone());
        self.slot_count.store(slots.len(), Ordering::Release);
    }

    /// Removes a claim. Returns whether it waited.
    pub(crate) fn remove(&self, slot: u16, claim: ClaimId) -> bool {
        // A claim is removed only after the answer that added it, so the count read here includes the slot of the
        // claim.
        if self.slot_count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut slots = self.lock();
        let Some(claims) = slots.get_mut(&slot) else { return false };
        let was_waiting = claims.remove(&claim).is_some();
        if claims.is_empty() {
            slots.remove(&slot);
        }
        self.slot_count.store(slots.len(), Ordering::Release);
        was_waiting
    }

    /// Makes the waiting claims of this slot ask again.
    pub(crate) fn recheck(&self, slot: u16, mailbox: &Mailbox) {
        let slots = self.lock();
        for (&id, name) in slots.get(&slot).into_iter().flatten() {
            mailbox.push(Notification::Recheck { name: name.clone(), id });
        }
    }

    /// Locks the claims.
    fn lock(&self) -> MutexGuard<'_, HashMap<u16, HashMap<ClaimId, Name>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
