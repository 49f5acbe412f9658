//! Names to their local state, in shards so that threads seldom meet.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::state::NameState;
use crate::Name;

/// Enough that a handful of threads seldom meet on one lock, few enough to walk through.
const SHARDS: usize = 16;

pub(crate) type Shard = HashMap<Name, NameState>;

#[derive(Default)]
pub(crate) struct Table {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
}

impl Table {
    /// The locked shard of `name`.
    pub(crate) fn shard(&self, name: &Name) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(name) as usize;
        lock(&self.shards[hash % SHARDS])
    }

    /// Every shard, one at a time.
    pub(crate) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(lock)
    }

    /// How many names have a hold, a waiting request or a claim under way.
    pub(crate) fn len(&self) -> usize {
        self.shards().map(|shard| shard.len()).sum()
    }
}

/// No code of users runs under a shard, so a poisoned one only means a bug that was already told by its panic.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
