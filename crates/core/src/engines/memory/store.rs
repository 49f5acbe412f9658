//! The store, shared as a server would be: all names and tokens.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::shard::{Client, Mail, Resources, Shard};
use crate::{
    Clock, Lineage, Name, Notification, Token,
    pure::lock_state::{LockState, StepContext},
};

/// How long a request to a store may be in flight. The engine itself answers at the first poll; a decorator that
/// delays, loses or doubles requests may do so for this long.
pub const REQUEST_LIFE: Duration = Duration::from_secs(1);

/// The range of ttls that a claim may ask for.
pub const TTL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);

/// The number of shards, each under its own mutex: more than the threads that usually contend at one time.
const SHARDS: usize = 16;

/// A set of locks in memory. Several [`MemoryEngine`](super::MemoryEngine)s may be clients of one.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    lineage: Lineage,
    /// The last token minted. One counter for all names. Tokens are minted under the lock of their name, so they grow
    /// in the order of its grants.
    last_token: AtomicU64,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

impl MemoryStore {
    /// An empty store. `lineage` must be new: tokens start at 1.
    #[must_use]
    pub fn new(lineage: Lineage, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            lineage,
            last_token: AtomicU64::new(0),
            hasher: RandomState::new(),
            shards: Default::default(),
        })
    }

    /// Loses every lock, like a server that restarts without its data; tokens keep growing. Clients with claims are
    /// notified to ask for all of them, as after a reconnect.
    pub fn forget_all(&self) {
        let mut clients: Vec<_> = Vec::new();
        for shard in &self.shards {
            let lost_shard = std::mem::take(&mut *lock(shard));
            clients.extend(
                lost_shard
                    .names
                    .values()
                    .flat_map(|lock_state| lock_state.clients().filter_map(Client::upgrade)),
            );
        }
        clients.sort_unstable_by_key(Arc::as_ptr);
        clients.dedup_by_key(|client| Arc::as_ptr(client));
        for client in clients {
            client.push(Notification::AskAll);
        }
    }

    /// The remains in the store, one line each: names in use, and tombstones that are still remembered. Empty at rest,
    /// [`REQUEST_LIFE`] after the last release.
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        let mut leftovers = Vec::new();
        for shard_number in 0..SHARDS {
            self.sweep(shard_number, |shard| {
                leftovers.extend(
                    shard
                        .names
                        .iter()
                        .filter(|(_, lock_state)| lock_state.is_used())
                        .map(|(name, lock_state)| format!("{name}: {lock_state:?}")),
                );
                leftovers.extend(
                    (!shard.tombstones.is_empty()).then(|| format!("{} dead claims", shard.tombstones.len())),
                );
            });
        }
        leftovers
    }

    /// The number of lock states in memory, used or not.
    #[cfg(test)]
    pub(super) fn names(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).names.len()).sum()
    }

    /// Runs one step on the lock state of `name`, at the current time.
    pub(super) fn step<R>(
        &self,
        name: &Name,
        act: impl FnOnce(&mut LockState<Client>, &mut StepContext<'_, Client>) -> R,
    ) -> R {
        let shard = &self.shards[self.hasher.hash_one(name) as usize % SHARDS];
        self.with_resources(|resources| lock(shard).step(name, resources, act))
    }

    /// Sweeps every shard and passes it to `visit`.
    pub(super) fn sweep_all(&self, mut visit: impl FnMut(&Shard, crate::Instant)) {
        let now = self.clock.now();
        for shard_number in 0..SHARDS {
            self.sweep(shard_number, |shard| visit(shard, now));
        }
    }

    /// Sweeps one shard and passes it to `visit`.
    fn sweep(&self, shard_number: usize, visit: impl FnOnce(&Shard)) {
        self.with_resources(|resources| {
            let mut shard = lock(&self.shards[shard_number]);
            shard.sweep(resources);
            visit(&shard);
        });
    }

    /// Calls `work` with the resources of a step, and delivers the mail after it.
    ///
    /// The clock is read before the lock is taken, so a step may run with a time slightly in the past. That is safe: a
    /// lapsed hold is noticed late at worst, and new grants end early at worst.
    fn with_resources<R>(&self, work: impl FnOnce(&mut Resources<'_>) -> R) -> R {
        let mut mail = Mail::new();
        let mut mint = |tokens: u32| self.mint(tokens);
        let answer = work(&mut Resources {
            now: self.clock.now(),
            request_life: REQUEST_LIFE,
            mint: &mut mint,
            mail: &mut mail,
        });
        for (mailbox, notification) in mail {
            mailbox.push(notification);
        }
        answer
    }

    /// Mints this number of tokens; returns the first.
    fn mint(&self, tokens: u32) -> Token {
        // Relaxed is enough: the lock of a name orders its grants; across names, tokens only have to be unique.
        let tokens_before = self.last_token.fetch_add(u64::from(tokens), Ordering::Relaxed);
        Token { lineage: self.lineage, number: tokens_before + 1 }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("lineage", &self.lineage).finish_non_exhaustive()
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A panic under this lock is a bug in the lock state; other names need not suffer for it.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
