//! Events that the server pushes, and their effect on the claims of this client.

use std::sync::Arc;

use leasehold_core::{ClaimId, Loss, Name, Notification};

use crate::{
    claims::{Blocker, Entry, State},
    client::Client,
    runtime,
    session::SessionState,
    sessions::Session,
    watches::{WatchHandler, WatchTarget},
    wire::EventKind,
};

impl WatchHandler for Client {
    fn on_event(&self, target: WatchTarget, path: &str, kind: EventKind) {
        match target {
            WatchTarget::Blocker(id) => self.on_blocker_event(id, path, kind),
            WatchTarget::Own(id) => self.on_own_event(id, path, kind),
            WatchTarget::Memo(number) => self.followers.changed(number),
        }
    }

    fn on_change(&self, path: &str) {
        self.views.tell(path);
    }

    fn reconnecting(&self, session: &Arc<SessionState>) {
        let mut claims = self.claims();
        let of_session: Vec<ClaimId> =
            claims.entries().filter(|(_, entry)| is_of(entry, session)).map(|(id, _)| id).collect();
        for id in of_session {
            claims.get(id).into_iter().for_each(|entry| entry.data.node_may_be_gone = true);
        }
    }

    fn reconnected(&self, session: &Arc<SessionState>) {
        let now = self.now();
        let set_unknown = |blocker: &mut Blocker| *blocker = Blocker::Unknown;
        // All watches ended with the old connection.
        self.claims().watch_again(now, |entry| is_of(entry, session), set_unknown);
        self.followers.watch_again();
        self.views.watch_again();
        self.wake_maintenance.notify_one();
        self.mailbox.push(Notification::AskAll);
    }
}

impl Client {
    /// Handles an event of the node that the claim waits for. If the node was deleted and was the only one ahead, the
    /// claim holds from now on, without another request: a deleted node never comes back, whichever server reports the
    /// deletion. Otherwise the client asks for the position of the claim again.
    fn on_blocker_event(&self, id: ClaimId, path: &str, kind: EventKind) {
        let now = self.now();
        let mut claims = self.claims();
        let Some(entry) = claims.get(id) else { return };
        let State::Waiting { own, blocker } = &mut entry.state else { return };
        if blocker.path() != Some(path) {
            return;
        }
        let is_granted = matches!(blocker, Blocker::Node { sole: true, .. }) && kind == EventKind::Deleted;
        let own = own.clone();
        *blocker = Blocker::Unknown;
        let session = Arc::clone(entry.data.session_slot.session());
        let (name, ttl, tokens) = (entry.name.clone(), entry.claim_time, entry.tokens);
        // The grant is valid only as long as the session.
        let valid_for = session.state.remaining(now).filter(|_| is_granted).zip(session.state.lineage());
        let granted = valid_for.and_then(|(valid_for, lineage)| {
            self.config.token_blocks.grant(lineage, own.czxid, tokens, valid_for.min(ttl)).ok()
        });
        let Some(grant) = granted else {
            drop(claims);
            return self.mailbox.push(Notification::Recheck { name, id });
        };
        let until = now.after(grant.ttl.unwrap_or_default());
        claims.hold(id, own, false, (now, until));
        drop(claims);
        self.wake_maintenance.notify_one();
        self.mailbox.push(Notification::Granted { name, id, grant, since: Some(now) });
    }

    /// Handles an event of the claim's own node.
    fn on_own_event(&self, id: ClaimId, path: &str, kind: EventKind) {
        let mut claims = self.claims();
        let Some(entry) = claims.get(id) else { return };
        let name = entry.name.clone();
        if let State::Waiting { own, blocker } = &mut entry.state {
            if own.path == path {
                *blocker = Blocker::Unknown;
                drop(claims);
                self.mailbox.push(Notification::Recheck { name, id });
            }
            return;
        }
        let may_have_ended = entry.data.may_have_ended;
        drop(claims);
        if kind == EventKind::Deleted {
            if !may_have_ended {
                self.report_loss(name, id, Loss::Gone);
            }
        } else if let Some(client) = self.weak_self.upgrade() {
            runtime::spawn(async move { client.watch_hold(id).await });
        }
    }

    /// Reports the loss of a hold.
    pub(crate) fn report_loss(&self, name: Name, id: ClaimId, loss: Loss) {
        self.node_may_be_gone(id);
        self.mailbox.push(Notification::Lost { name, id, loss });
    }

    /// Ends all claims of a session that the server ended, together with all nodes of the session.
    pub(crate) fn session_is_gone(&self, session: &Arc<Session>) {
        self.sessions.forget(session);
        session.link.hang_up();
        self.followers.watch_again();
        self.views.watch_again();
        let notifications = self
            .claims()
            .notifications_of_lost_lease(|entry| Arc::ptr_eq(entry.data.session_slot.session(), session));
        notifications.into_iter().for_each(|notification| self.mailbox.push(notification));
    }
}

/// Whether this session is the one of the claim.
fn is_of(entry: &Entry, session: &Arc<SessionState>) -> bool {
    Arc::ptr_eq(&entry.data.session_slot.session().state, session)
}
