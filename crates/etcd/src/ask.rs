//! Where a claim stands.
//!
//! Who is before a claim can only become fewer, so an old answer is never too good: it is true in that the claim holds, and late
//! at worst. Whether its own key is still there no answer can tell for the time after it; that is what the lease is for.

use leasehold_core::{Answer, Claim, EngineError, Hint, Mode};

use crate::{
    book::{Before, Place, fits},
    card::{Card, State},
    claim::{Standing, Waits, what_blocks},
    client::Client,
    error::unreadable,
    keys::Dir,
    watches::Target,
    wire::{Range, Txn, TxnResponse},
};

impl Client {
    /// Asks for a claim whose key was created at `revision`, and lets it live on.
    pub(crate) async fn ask_for(&self, claim: &Claim, revision: i64) -> Result<Answer, EngineError> {
        let session = self.book().get(claim.id).map(|entry| entry.seat.session().clone());
        let Some(session) = session else { return Ok(Answer::Gone) };
        if let Err(error) = self.freshen(&session).await {
            return if session.is_gone() { Ok(self.is_gone(claim)) } else { Err(error) };
        }
        let Some(ttl) = session.left(self.now()).map(|left| left.min(claim.ttl)) else {
            return Ok(Answer::Waiting(Hint::default()));
        };
        let dir = self.dir(&claim.name);
        let key = dir.key(claim.id, claim.mode);
        let watched = self.link.live().is_some_and(|conn| conn.watches.has(Target::Before(claim.id)));
        let mut before = what_blocks(&dir, claim.mode).before(revision);
        if let (Mode::Permits { limit, .. }, true) = (claim.mode, watched) {
            // As long as all of it is watched, the first ones say enough: each takes at least one permit.
            before = before.limit(limit.into());
        }
        let reads = vec![Range::key(&key).into(), before.into()];
        let (conn, mut said) = self.ask(Txn { success: reads, ..Txn::default() }).await?;
        let own = said.range(0).ok_or_else(unreadable)?.kvs.pop();
        let own = own.filter(|own| own.create_revision == revision);
        if own.is_none_or(|own| is_broken(&own.value)) {
            return Ok(self.is_gone(claim));
        }
        let there = said.range(1).ok_or_else(unreadable)?;
        let standing = Standing::read(&dir, claim.mode, &there, &key);
        let place = self.book().get(claim.id).map(|entry| entry.place.clone());
        match (place, standing.before) {
            // It was ended meanwhile.
            (None | Some(Place::Ending { .. } | Place::Lapsed), _) => Ok(Answer::Waiting(Hint::default())),
            // That it holds may have been heard while the answer was under way.
            (Some(Place::Held { .. }), _) | (_, None) => Ok(self.now_holds(claim, &conn, revision, ttl)),
            (Some(Place::Waiting { before: Before::Permits { before, most }, .. }), Some(_)) if watched => {
                self.still_waits(claim, revision, Before::Permits { before, most });
                Ok(Answer::Waiting(Hint::default()))
            }
            (_, Some(before)) => {
                let seen = seen(&said);
                self.now_waits(claim, &dir, &conn, Waits { revision, seen, before });
                Ok(Answer::Waiting(Hint { ahead: Some(standing.ahead), ask_in: None }))
            }
        }
    }

    /// All that it waits for is watched already; what was heard meanwhile counts.
    fn still_waits(&self, claim: &Claim, revision: i64, known: Before) {
        let now = self.now();
        let mut book = self.book();
        let Some(entry) = book.get(claim.id) else { return };
        let before = match &entry.place {
            Place::Waiting { before, .. } => before.clone(),
            _ => known,
        };
        if matches!(&before, Before::Permits { before, most } if fits(before, *most)) {
            return;
        }
        if matches!(entry.place, Place::Waiting { .. }) {
            entry.waits(revision, before, now);
        }
    }

    /// Nothing will come of the claim. What an operator left of it, its release removes.
    fn is_gone(&self, claim: &Claim) -> Answer {
        self.unwatch(claim.id);
        self.book().remove(claim.id);
        Answer::Gone
    }
}

fn seen(said: &TxnResponse) -> i64 {
    said.revision()
}

fn is_broken(value: &[u8]) -> bool {
    Card::read(value).is_some_and(|card| card.state != State::Claim)
}

/// Reads a directory with all that is in it, in the order of the line.
pub(crate) fn whole(dir: &Dir) -> Range {
    Range::between(&dir.all()).by_age(crate::wire::Order::Ascend)
}
