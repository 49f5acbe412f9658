//! Pushed notifications, and what they mean for the claims of this client.

use leasehold_core::{ClaimId, Instant, Loss, Notification};

use crate::{
    claims::{Blocker, Entry, State},
    client::Client,
    config::Layout,
    engine::REQUEST_TIMEOUT,
    lock_mutex,
    push_handler::PushHandler,
    recheck::is_claim_record,
    record::Record,
    runtime,
    watches::WatchTarget,
    wire::{Event, KeyValue, Range, Txn},
};

impl PushHandler for Client {
    fn on_event(&self, target: WatchTarget, event: &Event) {
        let Some(kv) = &event.kv else { return };
        match target {
            WatchTarget::Blocker(id) if event.is_deletion() => {
                lock_mutex(&self.min_hold_keys).forget(&kv.key);
                self.blocker_deleted(id, &kv.key);
            }
            WatchTarget::Blocker(id) => self.blocker_written(id, kv),
            WatchTarget::Own(id) => self.own_key_changed(id, event),
            WatchTarget::Epoch(lease) => {
                if let Some(session) = self.sessions.get(lease) {
                    if event.is_deletion() {
                        session.set_epoch(0);
                    } else {
                        session.raise_epoch_to(kv.mod_revision);
                    }
                }
                // An operator who breaks a hold writes a text; a release that raises the epoch writes none.
                if !kv.value.is_empty() {
                    self.mailbox.push(Notification::AskAll);
                }
            }
            WatchTarget::Memo(number) | WatchTarget::MemoHold(number) => self.notify_memo_followers(number),
            WatchTarget::View(number) => self.tell_view(number),
        }
    }

    fn on_missed(&self, target: WatchTarget) {
        if let WatchTarget::Memo(number) | WatchTarget::MemoHold(number) = target {
            return self.notify_memo_followers(number);
        }
        if let WatchTarget::View(number) = target {
            return self.view_watch_began(number);
        }
        let client = self.weak();
        runtime::spawn(async move {
            let Some(client) = client.upgrade() else { return };
            let check = async {
                match target {
                    WatchTarget::Blocker(id) => client.check_blocker(id).await,
                    WatchTarget::Own(id) => client.check_hold(id).await,
                    // The watch of an epoch key reports no missed changes.
                    WatchTarget::Epoch(_)
                    | WatchTarget::Memo(_)
                    | WatchTarget::MemoHold(_)
                    | WatchTarget::View(_) => {}
                }
            };
            let checked = runtime::within(REQUEST_TIMEOUT, check).await;
            if let (None, WatchTarget::Blocker(id)) = (checked, target) {
                client.push_recheck(id);
            }
        });
    }

    fn on_watch_ended(&self, target: WatchTarget) {
        match target {
            WatchTarget::Blocker(id) | WatchTarget::Own(id) => self.push_recheck(id),
            // Nothing is lost: a claim with an outdated epoch creates no key, and reads the present epoch.
            WatchTarget::Epoch(_) => {}
            WatchTarget::Memo(number) => {
                self.watch_memo_again(number);
                self.notify_memo_followers(number);
            }
            // The next read of the memo watches the hold again.
            WatchTarget::MemoHold(number) => self.notify_memo_followers(number),
            WatchTarget::View(number) => self.view_watch_ended(Some(number)),
        }
    }

    fn on_watch_refused(&self) {
        self.view_watch_ended(None);
        self.mailbox.push(Notification::AskAll);
    }

    fn on_kept_alive(&self, lease: i64, sent: Instant, seconds: u64) {
        let Some(session) = self.sessions.get(lease) else { return };
        if seconds == 0 {
            session.end();
            self.lease_is_gone(lease);
        } else {
            session.record_keep_alive(sent);
        }
    }

    fn on_reconnected(&self) {
        let Some(conn) = self.link.live() else { return };
        // All watches ended with the old connection.
        self.claims().watch_again(self.now(), |_| true, |_| {});
        self.watch_followed_memos(&conn);
        self.watch_for_views(&conn);
        for session in self.sessions.all() {
            self.watch_epoch_key(&conn, session.id);
            session.forget_unanswered();
            // Tasks that wait for a keep-alive send it again, on this connection.
            session.changed.notify_waiters();
        }
        self.wake_maintenance.notify_one();
        self.mailbox.push(Notification::AskAll);
    }

    fn needs_server(&self) -> bool {
        self.sessions.has_keys() || !self.memo_followers.is_empty()
    }
}

impl Client {
    /// Handles the deletion of a key that the claim waits for. If no other key is ahead, the claim holds from now on,
    /// without another request: a deletion cannot be undone, so every report of a deletion stays true. Otherwise the
    /// client asks for the position of the claim again, unless it knows that the claim still waits.
    fn blocker_deleted(&self, id: ClaimId, key: &[u8]) {
        let Some(conn) = self.link.live() else { return self.push_recheck(id) };
        let now = self.now();
        let granted = {
            let mut claims = self.claims();
            let Some(entry) = claims.get(id) else { return };
            let State::Waiting { own: revision, blocker } = &mut entry.state else { return };
            let revision = *revision;
            match blocker.deleted(key) {
                None => return,
                Some(false) => None,
                // The hold depends on its lease, so the lease must have been confirmed recently.
                Some(true) => {
                    let remaining = entry.data.lease_slot.session().remaining(now);
                    let ttl = remaining.map(|remaining| remaining.min(entry.claim_time));
                    let (name, tokens) = (entry.name.clone(), entry.tokens);
                    let granted = ttl.map(|ttl| (self.held(&conn, revision, tokens, ttl), ttl));
                    granted.and_then(|(grant, ttl)| {
                        let grant = grant.ok()?;
                        claims.hold(id, revision, false, (now, now.after(ttl)));
                        Some((name, grant))
                    })
                }
            }
        };
        let Some((name, grant)) = granted else {
            return match self.layout() {
                Layout::Directory | Layout::Election => self.push_recheck(id),
                Layout::Key => self.take_in_background(id),
            };
        };
        self.wake_maintenance.notify_one();
        conn.watches.unwatch(WatchTarget::Blocker(id), now);
        self.mailbox.push(Notification::Granted { name, id, grant, since: Some(now) });
    }

    /// Handles a write to an existing key that the claim waits for: the key is now possibly a minimum hold. Other keys
    /// ahead, which the claim does not watch, are possibly minimum holds as well.
    fn blocker_written(&self, id: ClaimId, kv: &KeyValue) {
        self.note_min_hold(kv);
        if self.layout() == Layout::Key {
            // Only the lock key is a minimum hold.
            return;
        }
        let if_waiting = |entry: &Entry| match entry.state {
            State::Waiting { own: revision, blocker: Blocker::Key { sole: false, .. } } => {
                Some((entry.name.clone(), entry.mode, revision))
            }
            _ => None,
        };
        if let Some((name, mode, revision)) = self.claims().get(id).and_then(|entry| if_waiting(entry)) {
            self.read_min_holds(&self.dir(&name), mode, revision);
        }
    }

    /// Handles a change of the claim's own key: the key was deleted, or its hold was broken.
    fn own_key_changed(&self, id: ClaimId, event: &Event) {
        let held = {
            let mut claims = self.claims();
            let Some(entry) = claims.get(id) else { return };
            let is_hold_key = event.kv.as_ref().is_some_and(|kv| kv.key == entry.data.hold_key());
            let is_held = matches!(entry.state, State::Held { .. });
            if is_held && !is_hold_key {
                // The queue key changed, and the claim holds by the lock key.
                return;
            }
            is_held.then(|| entry.name.clone())
        };
        match held {
            Some(name) if event.is_deletion() => {
                self.mailbox.push(Notification::Lost { name, id, loss: Loss::Gone })
            }
            // This client has published a value.
            Some(_) if self.is_published_value(event.kv.as_ref()) => {}
            // The next renewal of the hold finds out what happened.
            Some(_) => self.mailbox.push(Notification::AskAll),
            None => self.push_recheck(id),
        }
    }

    /// Checks whether a waiting claim's own key and the key that it waits for still exist. Keys are reused: if the
    /// other key was created after the claim's own key, it belongs to another claim, which is not ahead. The lock key
    /// is ahead of every claim.
    async fn check_blocker(&self, id: ClaimId) {
        let if_waiting = |entry: &Entry| match &entry.state {
            State::Waiting { own: revision, blocker: Blocker::Key { key, .. } } => {
                Some((self.dir(&entry.name), entry.mode, *revision, (entry.data.key.clone(), key.clone())))
            }
            _ => None,
        };
        let Some((dir, mode, revision, (own_key, key))) =
            self.claims().get(id).and_then(|entry| if_waiting(entry))
        else {
            return;
        };
        let is_lock_key = dir.lock_key().is_some_and(|lock_key| lock_key == key);
        let read_blocker = if is_lock_key { Range::key(&key) } else { Range::key(&key).keys_only() };
        let reads = vec![Range::key(&own_key).keys_only().into(), read_blocker.into()];
        let Ok((_, mut reply)) = self.ask(Txn { success: reads, ..Txn::default() }).await else {
            return self.push_recheck(id);
        };
        let (Some(own), Some(blocker)) = (reply.range(0), reply.range(1)) else {
            return self.push_recheck(id);
        };
        if own.kvs.iter().all(|kv| kv.create_revision != revision) {
            self.push_recheck(id);
        } else if is_lock_key && !blocker.kvs.is_empty() {
            // The lock key is often newer than the queue keys of the claims that wait for its end.
            blocker.kvs.iter().for_each(|kv| self.note_min_hold(kv));
        } else if blocker.kvs.iter().any(|kv| kv.create_revision < revision) {
            self.read_new_min_holds(&blocker, &dir, (mode, revision));
        } else {
            self.blocker_deleted(id, &key);
        }
    }

    /// Checks whether the key of a hold still exists. If the read fails, the next renewal finds out.
    async fn check_hold(&self, id: ClaimId) {
        let if_held = |entry: &Entry| match entry.state {
            State::Held { own: revision, .. } => {
                Some((entry.name.clone(), entry.data.hold_key().to_vec(), revision))
            }
            _ => None,
        };
        let Some((name, key, revision)) = self.claims().get(id).and_then(|entry| if_held(entry)) else {
            return;
        };
        let Ok((_, reply)) = self.ask(Range::key(&key)).await else { return };
        match reply.kvs.iter().find(|kv| kv.create_revision == revision) {
            None => self.mailbox.push(Notification::Lost { name, id, loss: Loss::Gone }),
            // Broken, turned into a minimum hold, or written by another program: the next renewal finds out which.
            Some(kv) if !is_claim_record(&kv.value, id) && !self.is_published_value(Some(kv)) => {
                self.mailbox.push(Notification::AskAll)
            }
            Some(_) => {}
        }
    }

    /// Whether a key whose creator holds has a value that a leader published, or none yet, and no record.
    fn is_published_value(&self, kv: Option<&KeyValue>) -> bool {
        self.layout() == Layout::Election && kv.is_some_and(|kv| Record::read(&kv.value).is_none())
    }

    /// Lets the keeper ask for the position of the claim again.
    pub(crate) fn push_recheck(&self, id: ClaimId) {
        let name = {
            let mut claims = self.claims();
            let Some(entry) = claims.get(id) else { return };
            if let State::Waiting { blocker, .. } = &mut entry.state {
                *blocker = Blocker::Unknown;
            }
            entry.name.clone()
        };
        self.mailbox.push(Notification::Recheck { name, id });
    }

    /// Forgets a lease that is not used any more.
    pub(crate) fn forget_lease(&self, lease: i64) {
        self.sessions.forget(lease);
        self.keys_in_use.forget_lease(lease);
        if let Some(conn) = self.link.live() {
            conn.watches.unwatch(WatchTarget::Epoch(lease), self.now());
        }
    }

    /// Ends all claims of a lease that the server ended, together with all keys of the lease.
    pub(crate) fn lease_is_gone(&self, lease: i64) {
        self.forget_lease(lease);
        let lost =
            self.claims().notifications_of_lost_lease(|entry| entry.data.lease_slot.session().id == lease);
        lost.into_iter().for_each(|notification| self.mailbox.push(notification));
    }
}
