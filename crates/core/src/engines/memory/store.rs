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

use super::{
    claim_all::LockedShards,
    memos::Followers,
    shard::{Client, Mail, Resources, Shard},
    views::Views,
};
use crate::{
    Clock, Lineage, Name, Notification, Token,
    driver::local::KeyedHasher,
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
    hasher: KeyedHasher,
    shards: [Mutex<Shard>; SHARDS],
    pub(super) followers: Followers,
    pub(super) views: Views,
}

impl MemoryStore {
    /// An empty store. `lineage` must be new: tokens start at 1.
    #[must_use]
    pub fn new(lineage: Lineage, clock: Arc<dyn Clock>) -> Arc<Self> {
        // A key that nobody outside can know: see `KeyedHasher`.
        let random = RandomState::new();
        let [high, low] = [random.hash_one(0_u8), random.hash_one(1_u8)].map(u128::from);
        Self::with_hash_key(lineage, clock, ((high << 64) | low).to_be_bytes())
    }

    /// As [`new`](Self::new), with the key of its hash tables. With the same key, the same requests always have the
    /// same effects in the same order.
    #[must_use]
    pub fn with_hash_key(lineage: Lineage, clock: Arc<dyn Clock>, key: [u8; 16]) -> Arc<Self> {
        let hasher = KeyedHasher::new(key);
        let shards = std::array::from_fn(|_| Mutex::new(Shard::new(hasher.clone())));
        let (last_token, followers, views) = Default::default();
        Arc::new(Self { clock, lineage, last_token, hasher, shards, followers, views })
    }

    /// Loses every lock, like a server that restarts without its data; tokens keep growing. Clients with claims are
    /// notified to ask for all of them, as after a reconnect.
    pub fn forget_all(&self) {
        let mut clients: Vec<_> = Vec::new();
        for shard in &self.shards {
            let lost_shard = std::mem::replace(&mut *lock(shard), Shard::new(self.hasher.clone()));
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

    /// The remains in the store, one line each: names in use, memos, and tombstones that are still remembered. Empty
    /// at rest, [`REQUEST_LIFE`] after the last release.
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
                leftovers.extend(shard.memos.names().map(|name| format!("{name}: a memo")));
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

    /// The bytes of all memos in memory, also of ended ones.
    #[cfg(test)]
    pub(super) fn memo_bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).memos.bytes()).sum()
    }

    /// Runs one step on the lock state of `name`, at the current time.
    pub(super) fn step<R>(
        &self,
        name: &Name,
        act: impl FnOnce(&mut LockState<Client>, &mut StepContext<'_, Client>) -> R,
    ) -> R {
        self.in_shard(name, |shard, resources| shard.step(name, resources, act))
    }

    /// Runs one or more steps on the shard of `name`, as one atomic step at the current time.
    pub(super) fn in_shard<R>(
        &self,
        name: &Name,
        act: impl FnOnce(&mut Shard, &mut Resources<'_>) -> R,
    ) -> R {
        let shard = &self.shards[self.shard_number(name)];
        self.with_resources(|resources| act(&mut lock(shard), resources))
    }

    /// Calls `act` with the locked shards of all these names. Shards are always locked in the order of their numbers.
    pub(super) fn steps<'a, R>(
        &self,
        names: impl Iterator<Item = &'a Name>,
        act: impl FnOnce(&mut LockedShards<'_>, &mut Resources<'_>) -> R,
    ) -> R {
        let mut numbers: Vec<usize> = names.map(|name| self.shard_number(name)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        self.with_resources(|resources| {
            let shards = numbers.iter().map(|&number| (number, lock(&self.shards[number]))).collect();
            act(&mut LockedShards { store: self, shards }, resources)
        })
    }

    pub(super) fn shard_number(&self, name: &Name) -> usize {
        self.hasher.hash_one(name) as usize % SHARDS
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
            if let Notification::Granted { name, .. } = &notification {
                self.views.tell(name);
            }
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
