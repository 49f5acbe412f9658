//! The background upkeep of a client while it has sessions: it keeps the sessions alive, watches holds that have lasted
//! for a while, and ends claims that sent no request in time.

use std::sync::Arc;

use leasehold_core::{
    BoxFuture, ClaimId, EngineError, Instant, LONGEST_SLEEP, Mailbox, Maintain, end_claims,
};

use crate::{
    claims::{has_claims, only_waits},
    client::Client,
    engine::REQUEST_TIMEOUT,
    runtime,
    session::SessionAction,
    wire::Ping,
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
            match session.state.next_action(now) {
                SessionAction::WaitUntil(until) => next_round = next_round.min(until),
                SessionAction::Heartbeat => {
                    // Without a connection the link is already reconnecting.
                    if let Some(conn) = session.link.live() {
                        let client = Arc::clone(self);
                        // Without claims, a session has only the watches of views.
                        let needs_proof = {
                            let claims = self.claims();
                            let only_views = self.views.has(&session) && !has_claims(&claims, &session);
                            !only_views && !only_waits(&claims, &session)
                        };
                        runtime::spawn(async move {
                            let heartbeat = async {
                                if needs_proof {
                                    client.send_heartbeat(&session, &conn).await
                                } else {
                                    conn.send(&Ping).answer().await
                                }
                            };
                            if let Some(Err(failed)) = runtime::within(REQUEST_TIMEOUT, heartbeat).await {
                                tracing::debug!(?failed, "no heartbeat");
                            }
                        });
                    }
                }
                SessionAction::Close => {
                    self.sessions.forget(&session);
                    runtime::spawn(async move {
                        // If the request is lost, the session times out.
                        let _ = runtime::within(REQUEST_TIMEOUT, session.close()).await;
                    });
                }
                SessionAction::Forget => self.session_is_gone(&session),
            }
        }
        let (overdue, holds_to_watch) = {
            let mut claims = self.claims();
            (claims.take_overdue(now), claims.begin_watches(now))
        };
        // A hold that has lasted for a while is watched, so that its holder learns at once that the node was deleted or
        // the hold broken.
        for id in holds_to_watch {
            let client = Arc::clone(self);
            runtime::spawn(async move {
                let _ = runtime::within(REQUEST_TIMEOUT, client.watch_hold(id)).await;
            });
        }
        end_claims(self, overdue);
        self.delete_due_memos(now);
        let due = [self.claims().next_due(), self.memo_ends.next_due()];
        due.into_iter().flatten().fold(next_round, Instant::min)
    }
}
