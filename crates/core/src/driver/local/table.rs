//! The table from names to their local state, in shards so that threads seldom contend.

use std::{
    collections::HashMap,
    hash::{BuildHasher, DefaultHasher, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::state::NameState;
use crate::Name;

/// The number of shards, each under its own mutex: enough that a handful of threads seldom contend for one, few enough
/// to iterate over.
const SHARDS: usize = 16;

/// The names of one shard, with their local state.
pub(crate) type Shard = HashMap<Name, NameState, KeyedHasher>;

pub(crate) struct NameTable {
    shards: [Mutex<Shard>; SHARDS],
    hasher: KeyedHasher,
}

/// Hashes with a random key: no client can choose names that collide, and with the same key the iteration order of the
/// names is repeatable.
#[derive(Clone)]
pub(crate) struct KeyedHasher(DefaultHasher);

impl KeyedHasher {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(&key);
        Self(hasher)
    }
}

impl BuildHasher for KeyedHasher {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        self.0.clone()
    }
}

impl NameTable {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        let hasher = KeyedHasher::new(key);
        let shards = std::array::from_fn(|_| Mutex::new(Shard::with_hasher(hasher.clone())));
        Self { shards, hasher }
    }

    /// The locked shard of `name`.
    pub(crate) fn shard(&self, name: &Name) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(name) as usize;
        lock(&self.shards[hash % SHARDS])
    }

    /// Every shard, one at a time.
    pub(crate) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(lock)
    }

    /// How many names have a hold, a waiting request or a claim in flight.
    pub(crate) fn len(&self) -> usize {
        self.shards().map(|shard| shard.len()).sum()
    }
}

/// Locks a shard. No user code runs while a shard is locked, so a poisoned lock only means a bug that its panic has
/// already reported.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
