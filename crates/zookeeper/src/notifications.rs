//! Events that the server pushes, and their effect on the claims of this client.

use std::sync::Arc;

use leasehold_core::{ClaimId, Loss, Name, Notification};

use crate::{
    claims::{Blocker, State},
    client::{Client, grant},
    runtime,
    session::Facts,
    sessions::Session,
    watches::{Target, WatchHandler},
    wire::EventKind,
};

impl WatchHandler for Client {
    fn on_event(&self, target: Target, path: &str, kind: EventKind) {
        match target {
            Target::Blocker(id) => self.on_blocker_event(id, path, kind),
            Target::Own(id) => self.on_own_event(id, kind),
        }
    }

    fn reconnected(&self, session: &Arc<Facts>) {
        let now = self.now();
        let lost = |before: &mut Blocker| *before = Blocker::Unknown;
        self.claims().watch_again(now, |entry| Arc::ptr_eq(&entry.data.slot.session().facts, session), lost);
        self.sooner.notify_one();
        self.mailbox.push(Notification::AskAll);
    }
}

impl Client {
    /// The node that the claim waits for was deleted or changed. If a deleted node was the only one ahead, the claim
    /// holds from now on. A deleted node never comes back, so no other answer is needed, whichever server reports it.
    fn on_blocker_event(&self, id: ClaimId, path: &str, kind: EventKind) {
        let now = self.now();
        let mut claims = self.claims();
        let Some(entry) = claims.get(id) else { return };
        let State::Waiting { own, before } = &mut entry.state else { return };
        if before.path() != Some(path) {
            return;
        }
        let sole = matches!(before, Blocker::Node { sole: true, .. }) && kind == EventKind::Deleted;
        let own = own.clone();
        *before = Blocker::Unknown;
        let session = Arc::clone(entry.data.slot.session());
        let (name, ttl) = (entry.name.clone(), entry.claim_time);
        // The grant is valid only as long as the session.
        let left = session.facts.remaining(now).filter(|_| sole).zip(session.facts.lineage());
        let granted = left.and_then(|(left, lineage)| grant(lineage, own.czxid, left.min(ttl)).ok());
        let Some(grant) = granted else {
            drop(claims);
            return self.mailbox.push(Notification::Recheck { name, id });
        };
        let until = now.after(grant.ttl.unwrap_or_default());
        claims.hold(id, own, false, (now, until));
        drop(claims);
        self.sooner.notify_one();
        self.mailbox.push(Notification::Granted { name, id, grant, since: Some(now) });
    }

    /// The claim's own node was deleted or changed.
    fn on_own_event(&self, id: ClaimId, kind: EventKind) {
        let name = self.claims().get(id).map(|entry| entry.name.clone());
        let Some(name) = name else { return };
        if kind == EventKind::Deleted {
            self.lost(name, id, Loss::Gone);
        } else if let Some(client) = self.me.upgrade() {
            runtime::spawn(async move { client.watch_hold(id).await });
        }
    }

    pub(crate) fn lost(&self, name: Name, id: ClaimId, loss: Loss) {
        self.mailbox.push(Notification::Lost { name, id, loss });
    }

    /// The server ended a session, and with it all its nodes.
    pub(crate) fn session_is_gone(&self, session: &Arc<Session>) {
        self.sessions.forget(session);
        session.link.hang_up();
        let notification = self.claims().lost(|entry| Arc::ptr_eq(entry.data.slot.session(), session));
        notification.into_iter().for_each(|notification| self.mailbox.push(notification));
    }
}
