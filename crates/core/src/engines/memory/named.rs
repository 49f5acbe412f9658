//! The stores of this process, by name.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::MemoryStore;
use crate::{Env, Lineage};

/// The stores live as long as the process, because a minimum hold time, or a hold that was never released, outlives the
/// `Locks` that made it. There are as many stores as the program has URLs; each store takes a few hundred bytes when
/// nothing is held.
static STORES: Mutex<BTreeMap<String, Arc<MemoryStore>>> = Mutex::new(BTreeMap::new());

impl MemoryStore {
    /// The store with this name in this process. Engines that get the same name share the store and compete for the
    /// same locks. The clock of the first caller is the clock of the store.
    #[must_use]
    pub fn named(name: &str, env: &Env) -> Arc<Self> {
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get(name) {
            return Arc::clone(store);
        }
        let lineage = Lineage::new(u128::from_be_bytes(env.random()));
        let store = Self::new(lineage, Arc::clone(&env.clock));
        stores.insert(name.to_owned(), Arc::clone(&store));
        store
    }
}
