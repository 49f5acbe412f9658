//! The shared "server": all names, all tokens.

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

use super::shard::{Client, Mail, Means, Shard};
use crate::{
    Clock, Lineage, Name, Notification, Token,
    pure::lock_state::{LockState, StepContext},
};

/// How long a request to a store may be under way. On its own the engine answers at the first poll; a decorator that
/// delays, loses or doubles requests may do so for this long.
pub const REQUEST_LIFE: Duration = Duration::from_secs(1);

/// The ttl that a claim may ask for.
pub const TTL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);

/// How many locks the names are spread over: more than the threads that meet here at one time.
const SHARDS: usize = 16;

/// A set of locks in memory. Several [`MemoryEngine`](super::MemoryEngine)s may be clients of one.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    lineage: Lineage,
    /// The last token minted. One counter for all names: minted under the lock of the name, so growing in its order
    /// of grants.
    last: AtomicU64,
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
            last: AtomicU64::new(0),
            hasher: RandomState::new(),
            shards: Default::default(),
        })
    }

    /// Loses every lock, as a server does that restarts without its data; tokens keep growing. Clients with claims
    /// are told to ask for all of them, as after a reconnect.
    pub fn forget_all(&self) {
        let mut clients: Vec<_> = Vec::new();
        for shard in &self.shards {
            let lost = std::mem::take(&mut *lock(shard));
            clients.extend(lost.names.values().flat_map(|queue| queue.clients().filter_map(Client::upgrade)));
        }
        clients.sort_unstable_by_key(Arc::as_ptr);
        clients.dedup_by_key(|client| Arc::as_ptr(client));
        for client in clients {
            client.push(Notification::AskAll);
        }
    }

    /// What is left in the store now, one line each: names in use and dead claims that are still remembered.
    /// Empty at rest, [`REQUEST_LIFE`] after the last release.
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        for number in 0..SHARDS {
            self.sweep(number, |shard| {
                left.extend(
                    shard
                        .names
                        .iter()
                        .filter(|(_, queue)| queue.is_used())
                        .map(|(n, q)| format!("{n}: {q:?}")),
                );
                left.extend(
                    (!shard.tombstones.is_empty()).then(|| format!("{} dead claims", shard.tombstones.len())),
                );
            });
        }
        left
    }

    /// How many queues stand in memory, used or not.
    #[cfg(test)]
    pub(super) fn names(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).names.len()).sum()
    }

    /// One step with the queue of `name`, at the time now.
    pub(super) fn step<R>(
        &self,
        name: &Name,
        act: impl FnOnce(&mut LockState<Client>, &mut StepContext<'_, Client>) -> R,
    ) -> R {
        let shard = &self.shards[self.hasher.hash_one(name) as usize % SHARDS];
        self.with_means(|means| lock(shard).step(name, means, act))
    }

    /// Sweeps every shard and shows it to `see`.
    pub(super) fn sweep_all(&self, mut see: impl FnMut(&Shard, crate::Instant)) {
        let now = self.clock.now();
        for number in 0..SHARDS {
            self.sweep(number, |shard| see(shard, now));
        }
    }

    fn sweep(&self, number: usize, see: impl FnOnce(&Shard)) {
        self.with_means(|means| {
            let mut shard = lock(&self.shards[number]);
            shard.sweep(means);
            see(&shard);
        });
    }

    /// Lends clock, mint and a bag for mail to `work`, and delivers the mail after it.
    ///
    /// The clock is read before the lock is taken, so a step may run with a time slightly past. That is safe: a hold
    /// is only found lapsed too late, and grants end too early.
    fn with_means<R>(&self, work: impl FnOnce(&mut Means<'_>) -> R) -> R {
        let mut mail = Mail::new();
        let mut mint = |tokens: u32| self.mint(tokens);
        let answer = work(&mut Means {
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

    fn mint(&self, tokens: u32) -> Token {
        // Relaxed: the lock of the name orders the grants of that name; across names only uniqueness counts.
        let last = self.last.fetch_add(u64::from(tokens), Ordering::Relaxed);
        Token { lineage: self.lineage, number: last + 1 }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("lineage", &self.lineage).finish_non_exhaustive()
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A panic under this lock is a bug of the queue; other names need not suffer for it.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
