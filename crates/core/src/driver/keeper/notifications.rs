//! Delivers the notifications of the engine to the claims and holds that they name. A notification for a claim or hold
//! that is gone is dropped.

use std::sync::{Arc, PoisonError};

use crate::{ClaimId, Contact, Name, Notification, driver::local::Control, driver::shared::Shared};

impl Shared {
    /// Handles a batch of notifications.
    pub(crate) fn receive(self: &Arc<Self>, batch: Vec<Notification>) {
        // An engine may notify its own claims and followers before any server was reached, and that is no answer.
        if self.profile.contact.as_ref().is_none_or(Contact::was_reached) {
            self.set_reached();
        }
        for notification in batch {
            match notification {
                Notification::Granted { name, id, grant, since } => {
                    if let Some(control) = self.claim_in_flight(&name, id) {
                        *control.pushed.lock().unwrap_or_else(PoisonError::into_inner) =
                            Some((id, grant, since));
                        control.wake.notify_one();
                    }
                }
                Notification::Recheck { name, id } => {
                    if let Some(control) = self.claim_in_flight(&name, id) {
                        control.wake.notify_one();
                    }
                }
                Notification::Lost { name, id, loss } => {
                    if !self.is_converting(&name, id) {
                        self.mark_lost(&name, id, loss);
                    }
                }
                Notification::Doubt => self.doubt_all(),
                Notification::AskAll => {
                    self.ask_all();
                    self.followers.hint_all();
                }
                Notification::Memo { name } => self.followers.hint(&name),
            }
        }
    }

    /// The control of the claim in flight with this id, if there is one.
    fn claim_in_flight(&self, name: &Name, id: ClaimId) -> Option<Arc<Control>> {
        let mut shard = self.table.shard(name);
        let claim = shard.get_mut(name)?.claim.as_ref().filter(|claim| claim.id == id)?;
        Some(Arc::clone(&claim.control))
    }

    /// Wakes the driver of every waiting claim, which then asks the engine, and renews every hold that is renewed in
    /// the background.
    fn ask_all(self: &Arc<Self>) {
        for shard in self.table.shards() {
            for claim in shard.values().filter_map(|state| state.claim.as_ref()) {
                claim.control.wake.notify_one();
            }
        }
        self.renew_all();
    }
}
