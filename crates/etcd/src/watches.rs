//! The watches of one connection.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use leasehold_core::ClaimId;
use tokio::sync::mpsc;

use crate::{
    hears::Hears,
    keys::Span,
    lock_of,
    wire::{Cancel, Create, Watch, WatchOrder, Watched},
};

/// The number of a watch that the server refused.
const REFUSED: i64 = -1;

/// Whom a watched key concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// Something that this claim waits for.
    Before(ClaimId),
    /// The claim's own key.
    Own(ClaimId),
    /// The bell of this lease.
    Bell(i64),
}

/// What is watched over one connection.
pub(crate) struct Watches {
    orders: mpsc::UnboundedSender<Watch>,
    last: AtomicI64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    targets: HashMap<i64, Target>,
    numbers: HashMap<Target, i64>,
}

impl Watches {
    pub(crate) fn new(orders: mpsc::UnboundedSender<Watch>) -> Self {
        Self { orders, last: AtomicI64::new(0), known: Mutex::default() }
    }

    /// Watches from `revision` on, in place of what was watched for this target.
    pub(crate) fn watch(&self, target: Target, (key, range_end): Span, revision: i64, deletions_only: bool) {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut known = lock_of(&self.known);
        known.targets.insert(number, target);
        let before = known.numbers.insert(target, number);
        if let Some(before) = before {
            known.targets.remove(&before);
            self.order(WatchOrder::Cancel(Cancel { watch_id: before }));
        }
        let filters = if deletions_only { vec![Create::NO_PUTS] } else { Vec::new() };
        let create = Create { key, range_end, start_revision: revision, filters, watch_id: number };
        self.order(WatchOrder::Create(create));
    }

    /// Whether something is watched for this target.
    pub(crate) fn has(&self, target: Target) -> bool {
        lock_of(&self.known).numbers.contains_key(&target)
    }

    /// Watches for it no longer.
    pub(crate) fn leave(&self, target: Target) {
        let mut known = lock_of(&self.known);
        if let Some(number) = known.numbers.remove(&target) {
            known.targets.remove(&number);
            self.order(WatchOrder::Cancel(Cancel { watch_id: number }));
        }
    }

    /// What the server says. False if it refused a watch without saying which: the user may not look there, or has to log in
    /// anew.
    pub(crate) fn hear(&self, watched: Watched, hears: &dyn Hears) -> bool {
        let target = lock_of(&self.known).targets.get(&watched.watch_id).copied();
        let Some(target) = target else {
            return !(watched.canceled && watched.watch_id == REFUSED);
        };
        for event in &watched.events {
            hears.happened(target, event);
        }
        if watched.canceled {
            // The revision it was to begin with is compacted, or the user may not look there.
            tracing::debug!(
                reason = watched.cancel_reason,
                compacted = watched.compact_revision,
                "a watch was cancelled by the server"
            );
            let mut known = lock_of(&self.known);
            known.targets.remove(&watched.watch_id);
            if known.numbers.get(&target) == Some(&watched.watch_id) {
                known.numbers.remove(&target);
            }
            drop(known);
            hears.unwatched(target);
        }
        true
    }

    fn order(&self, order: WatchOrder) {
        // Without a receiver the connection is gone, and a new one begins with nothing.
        let _ = self.orders.send(Watch { order: Some(order) });
    }
}
