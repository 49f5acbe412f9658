//! A part of the names of a store, under one lock.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    Instant, Mailbox, Name, Notification, Token,
    pure::lock_state::{LockState, StepContext, Tombstones},
};

/// How a queue reaches the client of a claim; dead when the client was dropped.
pub(super) type Client = Weak<Mailbox>;

/// News to be put into mailboxes once the shard's lock is free.
pub(super) type Mail = Vec<(Arc<Mailbox>, Notification)>;

/// Below so many names a shard is not swept.
const SWEEP_MIN: usize = 64;

/// Some of the names, and the dead claims of all of them.
pub(super) struct Shard {
    /// Boxed: a table doubles when it grows, so its empty places should be small.
    pub(super) names: HashMap<Name, Box<LockState<Client>>>,
    pub(super) tombstones: Tombstones,
    /// How many names there may be before those whose holders died silently are looked for.
    sweep_at: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { names: HashMap::new(), tombstones: Tombstones::default(), sweep_at: SWEEP_MIN }
    }
}

/// What a shard needs from its store for one step.
pub(super) struct Means<'a> {
    pub(super) now: Instant,
    pub(super) request_life: Duration,
    pub(super) mint: &'a mut dyn FnMut(u32) -> Token,
    pub(super) mail: &'a mut Mail,
}

impl Shard {
    /// Lets `act` do one step with the queue of `name`, which is made for it and dropped after it as needed.
    pub(super) fn step<R>(
        &mut self,
        name: &Name,
        means: &mut Means<'_>,
        act: impl FnOnce(&mut LockState<Client>, &mut StepContext<'_, Client>) -> R,
    ) -> R {
        let mut step = StepContext::new(means.now, means.request_life, &mut self.tombstones, means.mint);
        let answer = match self.names.entry(name.clone()) {
            Entry::Occupied(mut entry) => {
                let queue = entry.get_mut();
                let answer = act(queue, &mut step);
                address(name, queue, &mut step, means.mail);
                if queue.is_idle(means.now) {
                    entry.remove();
                }
                answer
            }
            Entry::Vacant(entry) => {
                let mut queue = LockState::new();
                let answer = act(&mut queue, &mut step);
                address(name, &mut queue, &mut step, means.mail);
                if !queue.is_idle(means.now) {
                    entry.insert(Box::new(queue));
                }
                answer
            }
        };
        if self.names.len() >= self.sweep_at {
            self.sweep(means);
        }
        answer
    }

    /// Lets time pass for every name and drops those that are idle. A hold whose process died, and for which nobody
    /// asks, would stay for ever otherwise. Run when the table has doubled, it costs each new name a constant.
    pub(super) fn sweep(&mut self, means: &mut Means<'_>) {
        let Self { names, tombstones, .. } = self;
        tombstones.forget(means.now);
        names.retain(|name, queue| {
            let mut step = StepContext::new(means.now, means.request_life, tombstones, means.mint);
            queue.settle(&mut step);
            address(name, queue, &mut step, means.mail);
            !queue.is_idle(means.now)
        });
        self.sweep_at = SWEEP_MIN.max(self.names.len() * 2);
    }
}

/// Addresses the grants of a step to their clients. A grant whose client is gone goes to the next in line.
fn address(name: &Name, queue: &mut LockState<Client>, step: &mut StepContext<'_, Client>, mail: &mut Mail) {
    while !step.pushed.is_empty() {
        for pushed in std::mem::take(&mut step.pushed) {
            if let Some(mailbox) = pushed.client.upgrade() {
                let (name, since) = (name.clone(), Some(step.now));
                mail.push((
                    mailbox,
                    Notification::Granted { name, id: pushed.id, grant: pushed.grant, since },
                ));
            } else {
                queue.undelivered(pushed.id, step);
            }
        }
    }
}
