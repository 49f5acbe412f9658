//! The background upkeep of a client: keeps its leases alive, watches the keys of lasting holds, ends claims without a
//! sign of life in time, and ends expired minimum holds.

use std::sync::Arc;

use leasehold_core::{
    BoxFuture, ClaimId, EngineError, Instant, LONGEST_SLEEP, Mailbox, Maintain, end_claims,
};

use crate::{
    client::Client,
    engine::REQUEST_TIMEOUT,
    lock_mutex,
    push_handler::PushHandler,
    runtime,
    session::Action,
    watches::{Begin, Target},
    wire::Revoke,
};

impl Maintain for Client {
    fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    fn end_overdue(&self, id: ClaimId) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(self.end_overdue_claim(id))
    }

    fn round(self: &Arc<Self>, now: Instant) -> Instant {
        let mut next = now.after(LONGEST_SLEEP);
        for session in self.sessions.all() {
            match session.next_action(now) {
                Action::WaitUntil(at) => next = next.min(at),
                Action::KeepAlive => match self.link.live() {
                    Some(conn) => conn.keep_alive(session.id),
                    None => {
                        let link = self.link.clone();
                        runtime::spawn(async move { drop(link.conn().await) });
                    }
                },
                Action::Revoke => {
                    self.forget_lease(session.id);
                    let (client, id) = (Arc::clone(self), session.id);
                    runtime::spawn(async move {
                        // If the request is lost, the lease ends by itself.
                        let _ = runtime::within(REQUEST_TIMEOUT, client.ask(Revoke { id })).await;
                    });
                }
                Action::Forget => self.lease_is_gone(session.id),
            }
        }
        let (overdue, lasting) = {
            let mut claims = self.claims();
            (claims.overdue(now), claims.lasting(now))
        };
        if let Some(conn) = self.link.live() {
            next = conn.watches.cancel_idle(now).map_or(next, |at| next.min(at));
            for id in lasting {
                let entry =
                    self.claims().get(id).map(|entry| (entry.data.key.clone(), entry.state.own().copied()));
                let Some((key, Some(revision))) = entry else { continue };
                let target = Target::Own(id);
                if conn.watches.watch(target, (key, Vec::new()), Begin::Now { seen: revision }, now) {
                    self.on_missed(target);
                }
            }
        }
        end_claims(self, overdue);
        let expired: Vec<i64> = {
            let mut min_holds = lock_mutex(&self.min_hold_leases);
            next = min_holds
                .iter()
                .map(|(until, _)| *until)
                .filter(|until| *until > now)
                .fold(next, Instant::min);
            min_holds.extract_if(.., |(until, _)| *until <= now).map(|(_, lease)| lease).collect()
        };
        for lease in expired {
            let client = Arc::clone(self);
            runtime::spawn(async move {
                let _ = runtime::within(REQUEST_TIMEOUT, client.end_min_hold(lease)).await;
            });
        }
        let due = [self.claims().next_due(), self.delete_expired_min_holds(now)];
        due.into_iter().flatten().fold(next, Instant::min)
    }
}

impl Client {
    /// Deletes the keys of minimum holds whose time is over. Returns the end of the next one.
    fn delete_expired_min_holds(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let (expired, next) = {
            let mut min_holds = lock_mutex(&self.min_hold_keys);
            (min_holds.take_expired(now), min_holds.next_end())
        };
        for (key, revision) in expired {
            let client = Arc::clone(self);
            runtime::spawn(async move {
                let _ = runtime::within(REQUEST_TIMEOUT, client.delete_expired(key, revision)).await;
            });
        }
        next
    }
}
