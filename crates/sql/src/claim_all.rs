//! Several names in one transaction, which locks their rows in byte order.

use leasehold_core::{AllAnswer, Answer, Claim, EngineError, Hint, InFlightRequest};

use crate::{
    client::{Client, within_request_timeout},
    step_all::{AllChanges, NotGranted},
};

impl Client {
    /// Claims all names in one transaction, or none.
    pub(crate) async fn claim_all(&self, claims: &[Claim]) -> Result<AllAnswer, EngineError> {
        self.ensure_maintenance();
        let now = self.now();
        if let Some(index) = claims.iter().position(|claim| self.in_flight.is_released(claim.id, now)) {
            let answer = AllAnswer::Taken { index, hint: Hint::default() };
            return answer
                .after_end_of(claims, |releases| async move { self.release(&releases).await })
                .await;
        }
        let in_flight: Vec<_> = claims.iter().map(|claim| self.start_claim(claim.id, now)).collect();
        let (sent, done) = {
            let _permit = self.row_wait_permit().await;
            (self.now(), within_request_timeout(self.database.claim_all(claims, self.id)).await)
        };
        // Nothing of a transaction that certainly did nothing can arrive later.
        if done.as_ref().err().is_none_or(|failed| !failed.fault.may_be_applied()) {
            in_flight.into_iter().for_each(InFlightRequest::complete);
        }
        let AllChanges { now, reply, changes } = done?;
        if let Some(now) = now {
            self.learn_time(sent, now);
        }
        let notifications = changes.iter().flat_map(|changes| &changes.notifications);
        notifications
            .filter(|notification| notification.client == self.id)
            .for_each(|notification| self.handle_notification(notification));
        match reply {
            Ok(grants) => {
                claims.iter().for_each(|claim| {
                    self.note_held(claim.id);
                    self.note_granted(claim.id);
                });
                Ok(AllAnswer::Held(grants))
            }
            Err(NotGranted { index, answer }) => {
                claims.iter().for_each(|claim| self.note_ended(claim.id));
                Ok(match answer {
                    Ok(Answer::Taken(hint) | Answer::Waiting(hint)) => AllAnswer::Taken { index, hint },
                    Ok(Answer::Gone | Answer::Held(_)) => AllAnswer::Taken { index, hint: Hint::default() },
                    Err(error) => AllAnswer::Refused { index, error },
                })
            }
        }
    }
}
