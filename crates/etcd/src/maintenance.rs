//! The background upkeep of a client: keeps its leases alive, watches the keys of lasting holds, ends claims that sent
//! no request in time, and ends expired minimum holds.

use std::sync::Arc;

use leasehold_core::{
    BoxFuture, ClaimId, EngineError, Instant, LONGEST_SLEEP, Mailbox, Maintain, end_claims,
};

use crate::{
    client::Client,
    engine::REQUEST_TIMEOUT,
    lock_mutex, runtime,
    session::SessionAction,
    watches::{WatchStart, WatchTarget},
    wire::Revoke,
};

impl Maintain for Client {
    fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    fn end_overdue(&self, id: ClaimId) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(self.end_overdue_claim(id))
    }

    /// Does what is due at `now`, and returns when the next round is due.
    fn round(self: &Arc<Self>, now: Instant) -> Instant {
        let mut next_round = now.after(LONGEST_SLEEP);
        for session in self.sessions.all() {
            match session.next_action(now) {
                SessionAction::WaitUntil(until) => next_round = next_round.min(until),
                SessionAction::KeepAlive => match self.link.live() {
                    Some(conn) => conn.keep_alive(session.id),
                    None => {
                        // Connects again; a later round sends the keep-alive.
                        let link = self.link.clone();
                        runtime::spawn(async move { drop(link.conn().await) });
                    }
                },
                SessionAction::Revoke => {
                    self.forget_lease(session.id);
                    let (client, id) = (Arc::clone(self), session.id);
                    runtime::spawn(async move {
                        // If the request is lost, the lease ends by itself.
                        let _ = runtime::within(REQUEST_TIMEOUT, client.ask(Revoke { id })).await;
                    });
                }
                SessionAction::Forget => self.lease_is_gone(session.id),
            }
        }
        let (overdue, holds_to_watch) = {
            let mut claims = self.claims();
            (claims.take_overdue(now), claims.begin_watches(now))
        };
        // A hold that has lasted for a while is watched, so that its holder learns at once that the key was deleted or
        // the hold broken.
        if let Some(conn) = self.link.live() {
            next_round = conn.watches.cancel_idle(now).map_or(next_round, |at| next_round.min(at));
            for id in holds_to_watch {
                let entry = self
                    .claims()
                    .get(id)
                    .map(|entry| (entry.data.hold_key().to_vec(), entry.state.own().copied()));
                let Some((key, Some(revision))) = entry else { continue };
                let start = WatchStart::Now { read_revision: revision };
                self.watch_target(&conn, WatchTarget::Own(id), (key, Vec::new()), start);
            }
        }
        end_claims(self, overdue);
        let expired_leases: Vec<i64> = {
            let mut min_holds = lock_mutex(&self.min_hold_leases);
            next_round = min_holds
                .iter()
                .map(|(until, _)| *until)
                .filter(|until| *until > now)
                .fold(next_round, Instant::min);
            min_holds.extract_if(.., |(until, _)| *until <= now).map(|(_, lease)| lease).collect()
        };
        for lease in expired_leases {
            let client = Arc::clone(self);
            runtime::spawn(async move {
                let _ = runtime::within(REQUEST_TIMEOUT, client.end_min_hold(lease)).await;
            });
        }
        let next_times = [self.claims().next_due(), self.delete_expired_min_holds(now)];
        next_times.into_iter().flatten().fold(next_round, Instant::min)
    }
}

impl Client {
    /// Deletes the keys of minimum holds whose time is over. Returns the earliest end of the other minimum holds.
    fn delete_expired_min_holds(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let (expired, next) = {
            let mut min_holds = lock_mutex(&self.min_hold_keys);
            (min_holds.take_expired(now), min_holds.next_end())
        };
        for (key, revision) in expired {
            let client = Arc::clone(self);
            runtime::spawn(async move {
                let _ = runtime::within(REQUEST_TIMEOUT, client.delete_expired_min_hold(key, revision)).await;
            });
        }
        next
    }
}
