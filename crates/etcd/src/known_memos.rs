//! The memos that a client has read or written, as far as its next writes depend on them.

use std::{collections::HashMap, sync::Mutex};

use leasehold_core::{MemoKind, Name};

use crate::{lock_mutex, memo_leases::of_one_hold, memo_record::MemoRecord, wire::KeyValue};

/// The most remembered states of memos. All are forgotten when there are more: then a write may need a second request.
const MAX_KNOWN: usize = 1024;

/// The memos that this client has read or written, as far as a write depends on them: the state of the key, and the
/// kind. Every write has the revision of the state as a condition, so an outdated one costs a request and does no harm.
#[derive(Default)]
pub(crate) struct KnownMemos(Mutex<HashMap<Name, (Stored, MemoKind)>>);

/// The state of the key of a memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The revision of its last change; 0: there is no memo.
    pub(crate) revision: i64,
    /// The lease of the memo if nothing but this memo, of one hold, is on it.
    pub(crate) own_lease: Option<i64>,
}

impl Stored {
    pub(crate) const NOTHING: Self = Self { revision: 0, own_lease: None };

    /// The state of a key with this memo.
    pub(crate) fn of(kv: &KeyValue, record: &MemoRecord) -> Self {
        Self { revision: kv.mod_revision, own_lease: of_one_hold(kv.lease, record.life) }
    }
}

impl KnownMemos {
    /// What a memo of this kind replaces, as far as known.
    pub(crate) fn stored(&self, name: &Name, kind: &MemoKind) -> Stored {
        let known = lock_mutex(&self.0);
        known.get(name).filter(|(_, known)| known == kind).map_or(Stored::NOTHING, |(stored, _)| *stored)
    }

    /// Remembers the state of a memo; `None`: there is none.
    pub(crate) fn note(&self, name: &Name, state: Option<(Stored, MemoKind)>) {
        let mut known = lock_mutex(&self.0);
        match state {
            Some(state) => {
                if known.len() >= MAX_KNOWN && !known.contains_key(name) {
                    known.clear();
                }
                known.insert(name.clone(), state);
            }
            None => drop(known.remove(name)),
        }
    }

    /// Forgets all: the server was restored from other data.
    pub(crate) fn clear(&self) {
        lock_mutex(&self.0).clear();
    }
}
