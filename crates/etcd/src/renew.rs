//! Renewals. The maintenance task keeps the lease alive. A renewal extends a hold on that lease, and checks that its
//! key still exists: an operator may have broken the hold, and a server may report an expired lease as alive (etcd
//! issue 20616).

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::{EngineError, Fault, Hold, Instant, Loss, Renewed};

use crate::{
    claims::State,
    client::Client,
    error::unreadable,
    record::{Record, RecordState},
    session::Session,
    wire::{KeyValue, Range, Txn},
};

/// The keys read by one request: the server accepts up to 128 steps.
const BATCH: usize = 100;

impl Client {
    pub(crate) async fn renew(&self, holds: &[Hold]) -> Vec<Renewed> {
        let batches = holds.chunks(BATCH).map(|holds| self.renew_some(holds));
        join_all(batches).await.into_iter().flatten().collect()
    }

    async fn renew_some(&self, holds: &[Hold]) -> Vec<Renewed> {
        let sessions: Vec<Option<HeldKey>> = holds.iter().map(|hold| self.held_by(hold)).collect();
        let found = match self.read_keys(holds, &sessions).await {
            Ok(found) => found,
            // The server refuses the whole transaction if the user may not read one key.
            Err(error) if holds.len() > 1 && error.fault == Fault::Denied => {
                let alone = holds.iter().map(|hold| Box::pin(self.renew_some(std::slice::from_ref(hold))));
                return join_all(alone).await.into_iter().flatten().collect();
            }
            Err(error) => return holds.iter().map(|_| Renewed::Unknown(error.again())).collect(),
        };
        let each = holds.iter().zip(sessions).zip(found);
        each.map(|((hold, session), found)| match (session, found) {
            (Some(_), Some(found)) => self.renewed(hold, &found),
            _ => Renewed::Lost(Loss::Gone),
        })
        .collect()
    }

    /// The lease and the key of a hold; `None` if it is not held. A renewal counts as a sign of life, so the hold does
    /// not lapse meanwhile.
    fn held_by(&self, hold: &Hold) -> Option<HeldKey> {
        let now = self.now();
        let mut claims = self.claims();
        let entry = claims.get(hold.id)?;
        let State::Held { own: revision, .. } = entry.state else { return None };
        if entry.name != hold.name || i64::try_from(hold.token.number) != Ok(revision) {
            return None;
        }
        let session = Arc::clone(entry.data.slot.session());
        if session.is_gone() {
            return None;
        }
        let until = now.after(session.left(now).unwrap_or_default().min(hold.ttl));
        let key = entry.data.key.clone();
        claims.hold(hold.id, revision, true, (now, until));
        Some(HeldKey { session, key })
    }

    /// Reads the keys of the holds, and until when each lease was valid before that read. The order matters: a later
    /// keep-alive answer may be wrong for a lease that has ended since.
    async fn read_keys(
        &self,
        holds: &[Hold],
        sessions: &[Option<HeldKey>],
    ) -> Result<Vec<Option<Found>>, EngineError> {
        let (mut fresh, mut freshened) = (Vec::new(), Vec::new());
        for HeldKey { session, .. } in sessions.iter().flatten() {
            if !fresh.contains(&session.id) {
                fresh.push(session.id);
                freshened.push(async move { (self.freshen(session).await, session) });
            }
        }
        for (freshened, session) in join_all(freshened).await {
            if !session.is_gone() {
                freshened?;
            }
        }
        let mut found: Vec<Option<Found>> = holds.iter().map(|_| None).collect();
        let held: Vec<(usize, &HeldKey, Instant)> = sessions
            .iter()
            .enumerate()
            .filter_map(|(at, by)| by.as_ref().map(|by| (at, by, by.session.valid_until())))
            .collect();
        if held.is_empty() {
            return Ok(found);
        }
        let read = |(_, by, _): &(usize, &HeldKey, Instant)| Range::key(&by.key).into();
        let (_, mut reply) =
            self.ask(Txn { success: held.iter().map(read).collect(), ..Txn::default() }).await?;
        for (step, &(at, _, valid_until)) in held.iter().enumerate() {
            let kv = reply.range(step).ok_or_else(unreadable)?.kvs.pop();
            found[at] = kv.map(|kv| Found { kv, valid_until });
        }
        Ok(found)
    }

    fn renewed(&self, hold: &Hold, found: &Found) -> Renewed {
        let revision = found.kv.create_revision;
        if i64::try_from(hold.token.number) != Ok(revision) {
            return Renewed::Lost(Loss::Gone);
        }
        if Record::read(&found.kv.value).is_some_and(|record| record.state == RecordState::Broken) {
            return Renewed::Lost(Loss::Broken);
        }
        let now = self.now();
        let ttl = found.valid_until.since(now).min(hold.ttl);
        if ttl.is_zero() {
            return Renewed::Unknown(EngineError::new(
                Fault::Unknown,
                "its lease was not kept alive in time",
            ));
        }
        let mut claims = self.claims();
        match claims.get(hold.id).map(|entry| &entry.state) {
            Some(&State::Held { own: held, .. }) if held == revision => {
                claims.hold(hold.id, revision, true, (now, now.after(ttl)));
                Renewed::Extended { ttl: Some(ttl) }
            }
            _ => Renewed::Lost(Loss::Gone),
        }
    }
}

/// The lease and the key of a hold.
struct HeldKey {
    session: Arc<Session>,
    key: Vec<u8>,
}

/// A key, and until when its lease was valid by what was known before the key was read.
struct Found {
    kv: KeyValue,
    valid_until: Instant,
}
