//! Asks the server for the position of a claim whose key exists.
//!
//! Keys ahead of a claim can only disappear. So a stale reply can delay a grant and never cause a wrong one. No reply
//! proves that the claim's own key still exists after it was read; the deadline of the lease covers that.

use leasehold_core::{Answer, Claim, EngineError, Hint, Mode};

use crate::{
    claims::{Blocker, State},
    client::Client,
    error::unreadable,
    position::{ClaimReply, QueuePosition, blockers_range},
    record::{Record, RecordState},
    watches::Target,
    wire::{Range, Txn},
};

impl Client {
    /// Reads the position of a claim whose key was created at `revision`. A claim that still waits is extended.
    pub(crate) async fn recheck(&self, claim: &Claim, revision: i64) -> Result<Answer, EngineError> {
        let known = self
            .claims()
            .get(claim.id)
            .map(|entry| (entry.data.slot.session().clone(), entry.data.key.clone()));
        let Some((session, key)) = known else { return Ok(Answer::Gone) };
        if let Err(error) = self.freshen(&session).await {
            return if session.is_gone() { Ok(self.mark_gone(claim)) } else { Err(error) };
        }
        let Some(ttl) = session.left(self.now()).map(|left| left.min(claim.ttl)) else {
            return Ok(Answer::Waiting(Hint::default()));
        };
        let dir = self.dir(&claim.name);
        let mut before = blockers_range(&dir, claim.mode).before(revision);
        // Where the watch reports every change ahead of the claim, the client knows all keys ahead, and the oldest
        // `limit` keys are enough: each takes at least one permit.
        let known = self.tracks_all_before(claim);
        if let (Mode::Permits { limit, .. }, true) = (claim.mode, known) {
            before = before.limit(limit.into());
        }
        let foreign = Range::key(&dir.bare_key()).keys_only();
        let reads = vec![Range::key(&key).into(), before.into(), foreign.into()];
        let (conn, mut reply) = self.ask(Txn { success: reads, ..Txn::default() }).await?;
        let seen = reply.revision();
        let own = reply.range(0).ok_or_else(unreadable)?.kvs.pop();
        let own = own.filter(|own| own.create_revision == revision);
        if own.is_none_or(|own| is_ended_record(&own.value)) {
            return Ok(self.mark_gone(claim));
        }
        let found = reply.range(1).ok_or_else(unreadable)?;
        self.check_min_holds(&found, &dir, (claim.mode, revision));
        let foreign = reply.range(2).ok_or_else(unreadable)?.kvs.pop();
        let is_foreign = foreign.is_some();
        let position = QueuePosition::read(&dir, claim.mode, &found, None).with_foreign(foreign);
        if known && !is_foreign && position.before.is_some() {
            self.note_contact(claim);
            return Ok(Answer::Waiting(Hint { ahead: position.ahead, ..Hint::default() }));
        }
        Ok(self.record_position(claim, &dir, &conn, ClaimReply { revision, seen, ttl, position }))
    }

    /// Whether this client knows every claim ahead of this one and is notified when one ends.
    fn tracks_all_before(&self, claim: &Claim) -> bool {
        let state = self.claims().get(claim.id).map(|entry| entry.state.clone());
        matches!(state, Some(State::Waiting { before: Blocker::Permits { .. }, .. }))
            && self.link.live().is_some_and(|conn| conn.watches.has(Target::Blocker(claim.id)))
    }

    fn note_contact(&self, claim: &Claim) {
        let now = self.now();
        if let Some(entry) = self.claims().get(claim.id) {
            entry.asked_again(now);
        }
    }

    /// Marks the claim as ended. Its release removes what is left of it, and what may still arrive.
    fn mark_gone(&self, claim: &Claim) -> Answer {
        self.unwatch(claim.id);
        if let Some(entry) = self.claims().get(claim.id) {
            entry.state = State::Gone;
        }
        Answer::Gone
    }
}

/// Whether this is the record of a broken hold or of a minimum hold, not of a claim.
pub(crate) fn is_ended_record(value: &[u8]) -> bool {
    Record::read(value).is_some_and(|record| record.state != RecordState::Claim)
}
