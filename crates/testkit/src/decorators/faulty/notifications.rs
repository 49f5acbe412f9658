//! Notifications through the faulty network.

use std::mem;

use leasehold_core::Notification;

use super::{Fault, Faulty};
use crate::decorators::Verb;

impl Faulty {
    /// The next batch that gets through. If this future is dropped, no batch is lost: there is no await between taking
    /// a batch from the engine and returning or storing it.
    pub(super) async fn next_notifications(&self) -> Vec<Notification> {
        loop {
            let ready = self.take_ready();
            if !ready.is_empty() {
                return ready;
            }
            let batch = tokio::select! {
                biased;
                batch = self.inner.notifications() => batch,
                () = self.wake.notified() => continue,
            };
            if self.state().gone {
                continue;
            }
            let fault = self.state().plan.draw(Verb::Notification);
            if fault == Some(Fault::SessionGone) {
                self.lose_session().await;
            } else if let Some(batch) = self.pass_notifications(batch, fault) {
                return batch;
            }
        }
    }

    fn take_ready(&self) -> Vec<Notification> {
        let mut state = self.state();
        if state.gone { Vec::new() } else { mem::take(&mut state.notification.ready) }
    }

    fn pass_notifications(
        &self,
        mut batch: Vec<Notification>,
        fault: Option<Fault>,
    ) -> Option<Vec<Notification>> {
        let notification = &mut self.state().notification;
        match fault {
            Some(Fault::RequestLost | Fault::ReplyLost | Fault::SessionGone) => return None,
            Some(Fault::Late) => {
                notification.late.extend(batch);
                return None;
            }
            Some(Fault::Reordered) => {
                notification.overtaken.extend(batch);
                return None;
            }
            Some(Fault::Duplicated) => notification.ready.extend(batch.iter().cloned()),
            None => {}
        }
        batch.append(&mut notification.overtaken);
        Some(batch)
    }
}
