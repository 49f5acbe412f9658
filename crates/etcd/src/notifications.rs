//! What comes without a request, and what it means for the claims of this client.

use leasehold_core::{ClaimId, Instant, Loss, Notification};

use crate::{
    ask::is_no_claim,
    claims::{Blocker, Entry, State},
    client::{Client, grant},
    engine::REQUEST_TIMEOUT,
    lock_of,
    push_handler::PushHandler,
    runtime,
    watches::Target,
    wire::{Event, KeyValue, Range},
};

impl PushHandler for Client {
    fn happened(&self, target: Target, event: &Event) {
        let Some(kv) = &event.kv else { return };
        match target {
            Target::Blocker(id) if event.is_deletion() => {
                lock_of(&self.kept_keys).forget(&kv.key);
                self.deleted_before(id, &kv.key);
            }
            Target::Blocker(id) => self.written_before(id, kv),
            Target::Own(id) => self.happened_to(id, event),
            Target::Notify(lease) => {
                if let Some(session) = self.sessions.get(lease) {
                    if event.is_deletion() {
                        session.set_epoch(0);
                    } else {
                        session.raised(kv.mod_revision);
                    }
                }
                if !kv.value.is_empty() {
                    self.mailbox.push(Notification::AskAll);
                }
            }
        }
    }

    fn missed(&self, target: Target) {
        let client = self.weak();
        runtime::spawn(async move {
            let Some(client) = client.upgrade() else { return };
            let look = async {
                match target {
                    Target::Blocker(id) => client.look_before(id).await,
                    Target::Own(id) => client.look_at_hold(id).await,
                    Target::Notify(_) => {}
                }
            };
            let _ = runtime::within(REQUEST_TIMEOUT, look).await;
        });
    }

    fn unwatched(&self, target: Target) {
        match target {
            Target::Blocker(id) | Target::Own(id) => self.ring(id),
            Target::Notify(_) => {}
        }
    }

    fn kept(&self, lease: i64, sent: Instant, seconds: u64) {
        let Some(session) = self.sessions.get(lease) else { return };
        if seconds == 0 {
            session.end();
            self.lease_is_gone(lease);
        } else {
            session.kept(sent);
        }
    }

    fn connected_again(&self) {
        let Some(conn) = self.link.live() else { return };
        self.claims().watch_anew(self.now(), |_| true, |_| {});
        for session in self.sessions.all() {
            self.listen_to_bell(&conn, session.id);
            session.ask_again();
            // Who waits for it to be kept alive asks again, on this connection.
            session.changed.notify_waiters();
        }
        self.sooner.notify_one();
        self.mailbox.push(Notification::AskAll);
    }

    fn needs_server(&self) -> bool {
        self.sessions.has_keys()
    }
}

impl Client {
    /// Something that the claim waits for was deleted. If nothing else came before it, it holds from now on: that what came before
    /// is gone is true for ever, whoever tells it, so it needs no other answer.
    fn deleted_before(&self, id: ClaimId, key: &[u8]) {
        let Some(conn) = self.link.live() else { return self.ring(id) };
        let now = self.now();
        let granted = {
            let mut claims = self.claims();
            let Some(entry) = claims.get(id) else { return };
            let State::Waiting { own: revision, before } = &mut entry.state else { return };
            let revision = *revision;
            match before.deleted(key) {
                None => return,
                Some(false) => None,
                // Its lease has to stand for it.
                Some(true) => {
                    let left = entry.data.slot.session().left(now);
                    let granted = left.map(|left| (entry.name.clone(), left.min(entry.claim_time)));
                    granted.map(|(name, ttl)| {
                        claims.hold(id, revision, false, (now, now.after(ttl)));
                        (name, grant(conn.cluster, revision, ttl))
                    })
                }
            }
        };
        let Some((name, grant)) = granted else { return self.ring(id) };
        self.sooner.notify_one();
        conn.watches.leave(Target::Blocker(id));
        self.mailbox.push(Notification::Granted { name, id, grant, since: Some(now) });
    }

    /// A key that the claim waits for was written again: it may keep the name from now on. Then others that the claim does not listen
    /// to may do so, too.
    fn written_before(&self, id: ClaimId, kv: &KeyValue) {
        self.hear_of(kv);
        let waits = |entry: &Entry| match entry.state {
            State::Waiting { own: revision, before: Blocker::Last { sole: false, .. } } => {
                Some((entry.name.clone(), entry.mode, revision))
            }
            _ => None,
        };
        if let Some((name, mode, revision)) = self.claims().get(id).and_then(|entry| waits(entry)) {
            self.look_for_all_kept(&self.dir(&name), mode, revision);
        }
    }

    /// The claim's own key was deleted, or broken.
    fn happened_to(&self, id: ClaimId, event: &Event) {
        let held = {
            let mut claims = self.claims();
            let Some(entry) = claims.get(id) else { return };
            matches!(entry.state, State::Held { .. }).then(|| entry.name.clone())
        };
        match held {
            Some(name) if event.is_deletion() => {
                self.mailbox.push(Notification::Lost { name, id, loss: Loss::Gone })
            }
            // What became of it its renewal finds out.
            Some(_) => self.mailbox.push(Notification::AskAll),
            None => self.ring(id),
        }
    }

    /// Whether what a claim waits for is still there. A key is used again: one that was created after the claim's own is another.
    async fn look_before(&self, id: ClaimId) {
        let waits = |entry: &Entry| match &entry.state {
            State::Waiting { own: revision, before: Blocker::Last { key, .. } } => {
                Some((self.dir(&entry.name), entry.mode, *revision, key.clone()))
            }
            _ => None,
        };
        let Some((dir, mode, revision, key)) = self.claims().get(id).and_then(|entry| waits(entry)) else {
            return;
        };
        match self.ask(Range::key(&key).keys_only()).await {
            Ok((_, there)) if there.kvs.iter().any(|kv| kv.create_revision < revision) => {
                self.look_for_kept(&there, &dir, (mode, revision));
            }
            Ok(_) => self.deleted_before(id, &key),
            Err(_) => self.ring(id),
        }
    }

    /// Whether the key of a hold is still there. If that is not to be learnt, its next renewal tells.
    async fn look_at_hold(&self, id: ClaimId) {
        let held = |entry: &Entry| match entry.state {
            State::Held { own: revision, .. } => Some((entry.name.clone(), entry.data.key.clone(), revision)),
            _ => None,
        };
        let Some((name, key, revision)) = self.claims().get(id).and_then(|entry| held(entry)) else { return };
        let Ok((_, there)) = self.ask(Range::key(&key)).await else { return };
        match there.kvs.iter().find(|kv| kv.create_revision == revision) {
            None => self.mailbox.push(Notification::Lost { name, id, loss: Loss::Gone }),
            Some(kv) if is_no_claim(&kv.value) => self.mailbox.push(Notification::AskAll),
            Some(_) => {}
        }
    }

    fn ring(&self, id: ClaimId) {
        let name = {
            let mut claims = self.claims();
            let Some(entry) = claims.get(id) else { return };
            if let State::Waiting { before, .. } = &mut entry.state {
                *before = Blocker::Unknown;
            }
            entry.name.clone()
        };
        self.mailbox.push(Notification::Recheck { name, id });
    }

    /// A lease is not used any more.
    pub(crate) fn forget_lease(&self, lease: i64) {
        self.sessions.forget(lease);
        if let Some(conn) = self.link.live() {
            conn.watches.leave(Target::Notify(lease));
        }
    }

    /// The server ended a lease, and with it all keys on it.
    pub(crate) fn lease_is_gone(&self, lease: i64) {
        self.forget_lease(lease);
        let lost = self.claims().lost(|entry| entry.data.slot.session().id == lease);
        lost.into_iter().for_each(|notification| self.mailbox.push(notification));
    }
}
