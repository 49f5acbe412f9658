//! Where a claim stands.
//!
//! Who is before a claim can only become fewer, so an old answer is never too good: it is true in that the claim holds, and late
//! at worst. Whether its own key is still there no answer can tell for the time after it; that is what the lease is for.

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
    /// Asks for a claim whose key was created at `revision`, and lets it live on.
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
        // What is known of all that came before is kept up by what is heard. Then the first ones say enough, for each takes at
        // least one permit.
        let known = self.tracks_all_before(claim);
        if let (Mode::Permits { limit, .. }, true) = (claim.mode, known) {
            before = before.limit(limit.into());
        }
        let bare_key = Range::key(&dir.bare_key()).keys_only();
        let reads = vec![Range::key(&key).into(), before.into(), bare_key.into()];
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

    /// Whether this client knows of each claim before this one, and hears of its end.
    fn tracks_all_before(&self, claim: &Claim) -> bool {
        let place = self.claims().get(claim.id).map(|entry| entry.state.clone());
        matches!(place, Some(State::Waiting { before: Blocker::Permits { .. }, .. }))
            && self.link.live().is_some_and(|conn| conn.watches.has(Target::Blocker(claim.id)))
    }

    fn note_contact(&self, claim: &Claim) {
        let now = self.now();
        if let Some(entry) = self.claims().get(claim.id) {
            entry.speaks(now);
        }
    }

    /// Nothing will come of the claim. What is left of it, or may still arrive, its release removes.
    fn mark_gone(&self, claim: &Claim) -> Answer {
        self.unwatch(claim.id);
        if let Some(entry) = self.claims().get(claim.id) {
            entry.state = State::Gone;
        }
        Answer::Gone
    }
}

/// Whether an operator broke it, or nobody holds by it any more.
pub(crate) fn is_ended_record(value: &[u8]) -> bool {
    Record::read(value).is_some_and(|record| record.state != RecordState::Claim)
}
