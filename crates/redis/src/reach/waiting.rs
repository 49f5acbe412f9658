//! Whose claims wait in which slot: who is to ask again when a slot moves or its news were not heard.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use leasehold_core::{ClaimId, Mailbox, Name, News};

/// The claims of one client that wait, by the slot of their name. Bounded by them.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<HashMap<u16, HashMap<ClaimId, Name>>>);

impl Waiting {
    pub(crate) fn add(&self, slot: u16, claim: ClaimId, name: &Name) {
        self.lock().entry(slot).or_default().insert(claim, name.clone());
    }

    pub(crate) fn remove(&self, slot: u16, claim: ClaimId) {
        let mut slots = self.lock();
        if let Some(claims) = slots.get_mut(&slot) {
            claims.remove(&claim);
            if claims.is_empty() {
                slots.remove(&slot);
            }
        }
    }

    /// Makes the claims of this slot ask.
    pub(crate) fn ring(&self, slot: u16, mailbox: &Mailbox) {
        let slots = self.lock();
        for (&id, name) in slots.get(&slot).into_iter().flatten() {
            mailbox.push(News::Ring { name: name.clone(), id });
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u16, HashMap<ClaimId, Name>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
