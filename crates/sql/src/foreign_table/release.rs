//! Releases of one client.

use std::time::Duration;

use leasehold_core::{Release, Released};

use super::{
    client::{Client, Own, settling},
    commit::Outcome,
    owner_text::State,
    row::StoredRow,
    statements::Reading,
    store::{Access, Step},
};
use crate::{client::within_request_timeout, database::Failed, step::REQUEST_LIFE};

/// The connection on which all releases count as sent, for [`InFlight`](leasehold_core::InFlight).
const RELEASE_CONNECTION: u64 = 1;

impl Client {
    /// The verb `release`.
    pub(crate) async fn release(&self, releases: &[Release]) -> Vec<Released> {
        futures_util::future::join_all(releases.iter().map(|release| self.release_one(release))).await
    }

    async fn release_one(&self, release: &Release) -> Released {
        let now = self.clock.now();
        let is_unsettled =
            self.in_flight.release(release.id, RELEASE_CONNECTION, now, now.after(REQUEST_LIFE));
        // A claim whose commit was never sent has stored nothing, and never will.
        let Some(own) = self.own(release.id, &release.name) else {
            self.in_flight.settle(release.id);
            return Released::NotThere;
        };
        match within_request_timeout(self.free(release, &own, is_unsettled)).await {
            Ok(was_held) => {
                self.forget(release.id);
                self.in_flight.settle(release.id);
                let has_token = release.token.is_none_or(|token| token == own.token);
                if was_held && has_token { Released::Freed } else { Released::NotThere }
            }
            Err(failed) => Released::Unknown(failed.into()),
        }
    }

    /// Frees the row of a hold. Returns whether the row was that of the hold, not broken.
    async fn free(&self, release: &Release, own: &Own, is_unsettled: bool) -> Result<bool, Failed> {
        let is_unsettled = match own.commit.outcome().await {
            Outcome::Done => false,
            Outcome::Failed => return Ok(false),
            Outcome::Unknown => is_unsettled,
        };
        let mut borrowed = self.pool.borrow(Access::Lock).await?;
        let format = borrowed.conn.format();
        let key = format.key_of(&release.name)?;
        if is_unsettled && !format.tells_rows_apart() {
            // The row may be one that another program inserted after our commit failed: nobody but an operator can
            // tell, so the row stays.
            tracing::warn!(name = %release.name, "the row of a claim may have been left behind: its commit was not answered");
            borrowed.give_back();
            return Ok(false);
        }
        let room = format.owner_room();
        let texts =
            [State::Held, State::Broken, State::Released].map(|state| own.owner.in_state(state).text(room));
        let [held, broken, released] = texts.each_ref().map(String::as_str);
        // A wrong token starts no minimum hold time.
        let min_hold =
            release.min_hold.filter(|_| release.token == Some(own.token)).unwrap_or(Duration::ZERO);
        let mut steps = if is_unsettled { settling(&*borrowed.conn, &key, own) } else { Vec::new() };
        steps.extend([
            Step::Begin,
            Step::Run(format.read(&key, Reading::Locking)),
            Step::Run(format.free_own(&key, [held, broken], &own.identity, released, min_hold)),
            Step::Commit,
        ]);
        let mut results = borrowed.conn.run(&steps).await?;
        // The result of the read is the last but one.
        results.pop();
        let row = results.pop().unwrap_or_default().into_iter().next();
        let was_held = match row {
            Some(row) => own.state_in(&StoredRow::read(&row)?.0) == Some(State::Held),
            None => false,
        };
        borrowed.give_back();
        Ok(was_held)
    }
}
