//! A part of the names of a store, under one lock.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Weak},
    time::Duration,
};

use super::memos::MemoTable;
use crate::{
    Instant, Mailbox, Name, Notification, Token,
    driver::local::KeyedHasher,
    pure::lock_state::{LockState, StepContext, Tombstones},
};

/// The mailbox of a claim's client; it cannot be upgraded any more when the client was dropped.
pub(super) type Client = Weak<Mailbox>;

/// Notifications to be put into mailboxes after the shard is unlocked.
pub(super) type Mail = Vec<(Arc<Mailbox>, Notification)>;

/// A shard with fewer names than this is not swept.
const MIN_NAMES_TO_SWEEP: usize = 64;

/// Some of the names of a store, the tombstones of all their claims, and their memos.
pub(super) struct Shard {
    /// Boxed: a hash table doubles when it grows, so its empty slots should be small.
    pub(super) names: HashMap<Name, Box<LockState<Client>>, KeyedHasher>,
    pub(super) tombstones: Tombstones,
    pub(super) memos: MemoTable,
    /// The number of names at which the shard is swept next: see [`sweep`](Self::sweep).
    sweep_at_names: usize,
}

/// The inputs and outputs that a shard needs from its store for one step.
pub(super) struct Resources<'a> {
    pub(super) now: Instant,
    pub(super) request_life: Duration,
    pub(super) mint: &'a mut dyn FnMut(u32) -> Token,
    pub(super) mail: &'a mut Mail,
}

impl Shard {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        let names = HashMap::with_hasher(hasher);
        Self {
            names,
            tombstones: Tombstones::default(),
            memos: MemoTable::default(),
            sweep_at_names: MIN_NAMES_TO_SWEEP,
        }
    }

    /// Runs one step on the lock state of `name`: calls `act` with it. The lock state is created before the step and
    /// dropped after it as needed.
    pub(super) fn step<R>(
        &mut self,
        name: &Name,
        resources: &mut Resources<'_>,
        act: impl FnOnce(&mut LockState<Client>, &mut StepContext<'_, Client>) -> R,
    ) -> R {
        let mut step =
            StepContext::new(resources.now, resources.request_life, &mut self.tombstones, resources.mint);
        let answer = match self.names.entry(name.clone()) {
            Entry::Occupied(mut entry) => {
                let lock_state = entry.get_mut();
                let answer = act(lock_state, &mut step);
                mail_grants(name, lock_state, &mut step, resources.mail);
                if lock_state.is_idle(resources.now) {
                    entry.remove();
                }
                answer
            }
            Entry::Vacant(entry) => {
                let mut lock_state = LockState::new();
                let answer = act(&mut lock_state, &mut step);
                mail_grants(name, &mut lock_state, &mut step, resources.mail);
                if !lock_state.is_idle(resources.now) {
                    entry.insert(Box::new(lock_state));
                }
                answer
            }
        };
        if self.names.len() >= self.sweep_at_names {
            self.sweep(resources);
        }
        answer
    }

    /// Lets time pass for every name and drops idle names. Without this, a hold whose process died would stay forever
    /// if no other claim asks for its name. The sweep runs when the number of names has doubled, so its cost for each
    /// new name is constant.
    pub(super) fn sweep(&mut self, resources: &mut Resources<'_>) {
        let Self { names, tombstones, .. } = self;
        tombstones.forget_expired(resources.now);
        names.retain(|name, lock_state| {
            let mut step =
                StepContext::new(resources.now, resources.request_life, tombstones, resources.mint);
            lock_state.settle(&mut step);
            mail_grants(name, lock_state, &mut step, resources.mail);
            !lock_state.is_idle(resources.now)
        });
        self.sweep_at_names = MIN_NAMES_TO_SWEEP.max(self.names.len() * 2);
        self.sweep_memos(resources);
    }

    /// Removes the memos that have ended, as does each [`sweep`](Self::sweep).
    pub(super) fn sweep_memos(&mut self, resources: &mut Resources<'_>) {
        let Self { names, tombstones, memos, .. } = self;
        memos.sweep(resources.now, |name, id| {
            let Some(lock_state) = names.get_mut(name) else { return false };
            let mut step =
                StepContext::new(resources.now, resources.request_life, tombstones, resources.mint);
            lock_state.settle(&mut step);
            mail_grants(name, lock_state, &mut step, resources.mail);
            lock_state.is_held_by(id, None)
        });
    }
}

/// Adds the grants of a step to the mail for their clients. A grant whose client is gone goes to the next claim in the
/// queue.
fn mail_grants(
    name: &Name,
    lock_state: &mut LockState<Client>,
    step: &mut StepContext<'_, Client>,
    mail: &mut Mail,
) {
    while !step.pushed.is_empty() {
        for pushed in std::mem::take(&mut step.pushed) {
            if let Some(mailbox) = pushed.client.upgrade() {
                let (name, since) = (name.clone(), Some(step.now));
                mail.push((
                    mailbox,
                    Notification::Granted { name, id: pushed.id, grant: pushed.grant, since },
                ));
            } else {
                lock_state.take_back_undelivered(pushed.id, step);
            }
        }
    }
}
