//! Asks the server for the position of a claim whose key exists.
//!
//! Keys ahead of a claim can only disappear. So a stale reply can delay a grant and never cause a wrong one. No reply
//! proves that the claim's own key still exists after the read; for that time a hold relies on the deadline of the
//! lease.

use leasehold_core::{Answer, Claim, ClaimId, EngineError, Hint, Mode, UNWATCHED_POLL};

use crate::{
    claims::{Blocker, State},
    client::Client,
    error::unreadable,
    position::{ClaimReply, QueuePosition, blockers_range},
    record::{Record, RecordState},
    watches::WatchTarget,
    wire::{Range, Txn},
};

/// The indexes of the reads: the claim's own key, the keys ahead, and the key of clients without a queue.
const OWN_OP: usize = 0;
const AHEAD_OP: usize = 1;
const BARE_KEY_OP: usize = 2;

impl Client {
    /// Reads the position of a claim whose key was created at `revision`. Asking also counts as a request of a claim
    /// that still waits, so the claim does not expire.
    pub(crate) async fn recheck(&self, claim: &Claim, revision: i64) -> Result<Answer, EngineError> {
        let registered = self
            .claims()
            .get(claim.id)
            .map(|entry| (entry.data.lease_slot.session().clone(), entry.data.key.clone()));
        let Some((session, key)) = registered else { return Ok(Answer::Gone) };
        let dir = self.dir(&claim.name);
        if let Err(error) = self.wait_until_confirmed(&session).await {
            return if session.has_ended() { Ok(self.mark_gone(claim)) } else { Err(error) };
        }
        let Some(ttl) = session.remaining(self.now()).map(|remaining| remaining.min(claim.ttl)) else {
            return Ok(Answer::Waiting(Hint::ask_in(UNWATCHED_POLL)));
        };
        if let Some(lock_key) = dir.lock_key() {
            return self.recheck_with_lock_key(claim, &dir, &lock_key, ttl).await;
        }
        let mut ahead = blockers_range(&dir, claim.mode).before(revision);
        // If the watch reports every change ahead of the claim, the client already knows all keys ahead. It then reads
        // only the oldest `limit` keys, which is enough, because each of these keys takes at least one permit.
        let knows_all_ahead = self.knows_all_ahead(claim);
        if let (Mode::Permits { limit, .. }, true) = (claim.mode, knows_all_ahead) {
            ahead = ahead.limit(limit.into());
        }
        let bare_key = Range::key(&dir.bare_key()).keys_only();
        let reads = vec![Range::key(&key).into(), ahead.into(), bare_key.into()];
        let (conn, mut reply) = self.ask(Txn { success: reads, ..Txn::default() }).await?;
        let read_revision = reply.revision();
        let own_key = reply.range(OWN_OP).ok_or_else(unreadable)?.kvs.pop();
        let own_key = own_key.filter(|own_key| own_key.create_revision == revision);
        if own_key.is_none_or(|own_key| is_ended_record(&own_key.value)) {
            return Ok(self.mark_gone(claim));
        }
        let ahead = reply.range(AHEAD_OP).ok_or_else(unreadable)?;
        self.read_new_min_holds(&ahead, &dir, (claim.mode, revision));
        let foreign = reply.range(BARE_KEY_OP).ok_or_else(unreadable)?.kvs.pop();
        let is_foreign = foreign.is_some();
        let position = QueuePosition::read(&dir, claim.mode, &ahead, None).with_foreign(foreign);
        if knows_all_ahead && !is_foreign && position.blocker.is_some() {
            self.note_contact(claim);
            return Ok(Answer::Waiting(Hint { ahead: position.ahead, ..Hint::default() }));
        }
        self.record_position(claim, &dir, &conn, ClaimReply { revision, read_revision, ttl, position })
    }

    /// Whether this client knows every claim ahead of this one and is notified when one of these claims ends.
    fn knows_all_ahead(&self, claim: &Claim) -> bool {
        let state = self.claims().get(claim.id).map(|entry| entry.state.clone());
        matches!(state, Some(State::Waiting { blocker: Blocker::Permits { .. }, .. }))
            && self.link.live().is_some_and(|conn| conn.watches.has(WatchTarget::Blocker(claim.id)))
    }

    /// Records that the claim asked now, so that it does not count as overdue.
    fn note_contact(&self, claim: &Claim) {
        let now = self.now();
        if let Some(entry) = self.claims().get(claim.id) {
            entry.asked_again(now);
        }
    }

    /// Marks the claim as ended. Its release later deletes its key, and prevents that a late request creates a key.
    pub(crate) fn mark_gone(&self, claim: &Claim) -> Answer {
        self.unwatch(claim.id);
        if let Some(entry) = self.claims().get(claim.id) {
            entry.state = State::Gone;
        }
        Answer::Gone
    }
}

/// Whether this is the record of this claim, and the claim has not ended.
pub(crate) fn is_claim_record(value: &[u8], id: ClaimId) -> bool {
    Record::read(value).is_some_and(|record| record.id == id && record.state == RecordState::Claim)
}

/// Whether this is the record of a broken hold or of a minimum hold, not of a claim.
pub(crate) fn is_ended_record(value: &[u8]) -> bool {
    Record::read(value).is_some_and(|record| record.state != RecordState::Claim)
}
