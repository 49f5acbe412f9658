//! The memos of a store.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    engine::MemoryEngine,
    shard::{Client, Resources, Shard},
    store::MemoryStore,
};
use crate::{
    BoxFuture, ClaimId, EngineError, Followed, HoldAfter, Instant, Mailbox, Memo, MemoHead, MemoVerdict,
    MemoVersion, MemoWrite, Memos, Name, NewMemo, Notification, Token, Written, judge_memo,
};

/// A shard with fewer memos, and fewer bytes in them, than these is not swept for them. So a store keeps at most 4 MiB
/// of ended memos, and as much again as its other memos have.
const MIN_MEMOS_TO_SWEEP: usize = 64;
const MIN_BYTES_TO_SWEEP: usize = 256 * 1024;

/// The memos of a shard.
pub(super) struct MemoTable {
    memos: HashMap<Name, StoredMemo>,
    /// The bytes of their contents.
    bytes: usize,
    /// The number of memos at which ended ones are removed next. It doubles with the memos that stay, so the cost for
    /// each new memo is constant.
    sweep_at: usize,
    /// The same for the bytes.
    sweep_at_bytes: usize,
}

impl Default for MemoTable {
    fn default() -> Self {
        let memos = HashMap::new();
        Self { memos, bytes: 0, sweep_at: MIN_MEMOS_TO_SWEEP, sweep_at_bytes: MIN_BYTES_TO_SWEEP }
    }
}

/// A memo and its end.
struct StoredMemo {
    memo: NewMemo,
    version: MemoVersion,
    token: Token,
    ends: Instant,
}

impl MemoTable {
    /// Removes the memos that have ended and whose claim does not hold the name any more: under the hold, the number of
    /// the memo tells late writes.
    pub(super) fn sweep(&mut self, now: Instant, mut is_held_by: impl FnMut(&Name, ClaimId) -> bool) {
        self.memos.retain(|name, stored| now < stored.ends || is_held_by(name, stored.version.id));
        self.bytes = self.memos.values().map(|stored| stored.memo.bytes().len()).sum();
        self.sweep_at = MIN_MEMOS_TO_SWEEP.max(self.memos.len() * 2);
        self.sweep_at_bytes = MIN_BYTES_TO_SWEEP.max(self.bytes * 2);
    }

    /// The bytes of all memos, also of ended ones.
    #[cfg(test)]
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The names that have memos.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.memos.keys()
    }

    fn insert(&mut self, write: &MemoWrite, now: Instant) {
        let memo = write.memo.clone();
        let ends = now.after(memo.keep());
        let stored = StoredMemo { memo, version: write.version, token: write.token, ends };
        self.bytes += write.memo.bytes().len();
        if let Some(replaced) = self.memos.insert(write.name.clone(), stored) {
            self.bytes -= replaced.memo.bytes().len();
        }
    }

    /// Whether there are so many memos, or so many bytes in them, that ended ones should be removed.
    fn is_sweep_due(&self) -> bool {
        self.memos.len() >= self.sweep_at || self.bytes >= self.sweep_at_bytes
    }

    /// The memo of a name, unless it has ended.
    fn get(&self, name: &Name, now: Instant) -> Option<&StoredMemo> {
        self.memos.get(name).filter(|stored| now < stored.ends)
    }
}

impl Shard {
    /// The memo of a name.
    fn read_memo(&mut self, name: &Name, resources: &mut Resources<'_>) -> Option<Memo> {
        let id = self.memos.get(name, resources.now)?.version.id;
        let is_held = self.step(name, resources, |lock_state, step| {
            lock_state.settle(step);
            lock_state.is_held_by(id, None)
        });
        let stored = self.memos.get(name, resources.now)?;
        Some(Memo {
            kind: stored.memo.kind().clone(),
            bytes: stored.memo.bytes().to_vec(),
            print: stored.memo.digest().copied(),
            version: stored.version,
            token: stored.token,
            left: stored.ends.since(resources.now),
            is_held,
        })
    }

    /// Writes a memo, and ends the hold if the write says so, under the lock of the shard.
    fn write_memo(
        &mut self,
        write: &MemoWrite,
        resources: &mut Resources<'_>,
    ) -> Result<Written, EngineError> {
        let is_held = self.step(&write.name, resources, |lock_state, step| {
            lock_state.settle(step);
            lock_state.is_held_by(write.version.id, Some(write.hold_token))
        });
        let stored = self.memos.memos.get(&write.name).map(|stored| MemoHead {
            kind: stored.memo.kind(),
            version: stored.version,
            has_ended: stored.ends <= resources.now,
        });
        match judge_memo(write, is_held, stored) {
            MemoVerdict::Store => {
                self.memos.insert(write, resources.now);
                if self.memos.is_sweep_due() {
                    self.sweep_memos(resources);
                }
            }
            MemoVerdict::LeaveLater => {}
            MemoVerdict::Overtaken => return Ok(Written::Overtaken),
            MemoVerdict::Refuse(error) => return Err(error),
        }
        if write.after == HoldAfter::Release {
            let release = write.release();
            self.step(&write.name, resources, |lock_state, step| lock_state.release(&release, step));
        }
        Ok(Written::Done)
    }
}

impl Memos for MemoryEngine {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        Box::pin(
            async move { Ok(self.store.in_shard(name, |shard, resources| shard.read_memo(name, resources))) },
        )
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        Box::pin(async move {
            let written =
                self.store.in_shard(&write.name, |shard, resources| shard.write_memo(write, resources))?;
            self.store.followers.notify(&write.name);
            if write.after == HoldAfter::Release {
                self.store.views.tell(&write.name);
            }
            Ok(written)
        })
    }

    fn follow(&self, name: &Name) -> Option<Followed> {
        let client = Arc::downgrade(&self.mailbox);
        Some(Followed::until_dropped(Subscription::new(&self.store, name, client)))
    }
}

/// The clients that follow memos, by name; a client is listed once for each of its subscriptions.
#[derive(Default)]
pub(super) struct Followers {
    by_name: Mutex<HashMap<Name, Vec<Client>>>,
    /// The number of subscriptions. Without any, a release takes no lock that all threads share.
    ///
    /// Relaxed is enough: a subscriber is counted before it reads the memo, under the lock of the shard. Either it
    /// reads the change, or it had the lock before the writer, which then sees the count.
    subscriptions: AtomicUsize,
}

impl Followers {
    /// Notifies every follower of the name.
    pub(super) fn notify(&self, name: &Name) {
        if self.subscriptions.load(Ordering::Relaxed) == 0 {
            return;
        }
        let clients = self.lock().get(name).cloned().unwrap_or_default();
        for mailbox in clients.iter().filter_map(Weak::upgrade) {
            mailbox.push(Notification::Memo { name: name.clone() });
        }
    }

    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Name, Vec<Client>>> {
        // No code under this lock can panic in the middle of a change.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One subscription, which ends with the drop of this value.
struct Subscription {
    store: Arc<MemoryStore>,
    name: Name,
    client: Weak<Mailbox>,
}

impl Subscription {
    fn new(store: &Arc<MemoryStore>, name: &Name, client: Client) -> Self {
        store.followers.subscriptions.fetch_add(1, Ordering::Relaxed);
        store.followers.lock().entry(name.clone()).or_default().push(client.clone());
        if let Some(mailbox) = client.upgrade() {
            mailbox.push(Notification::Memo { name: name.clone() });
        }
        Self { store: Arc::clone(store), name: name.clone(), client }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.store.followers.subscriptions.fetch_sub(1, Ordering::Relaxed);
        let mut followers = self.store.followers.lock();
        let Some(clients) = followers.get_mut(&self.name) else { return };
        if let Some(index) = clients.iter().position(|client| client.ptr_eq(&self.client)) {
            clients.swap_remove(index);
        }
        if clients.is_empty() {
            followers.remove(&self.name);
        }
    }
}
