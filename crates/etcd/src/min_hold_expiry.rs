//! Names that are kept by programs that have ended.
//!
//! Their keys stand on leases that nobody ends, and a lease is of whole seconds. So whoever hears of such a key counts its time by
//! its own clock, and takes it away when that is over. It counts from when it heard: the key was written before, so it is late
//! at worst. The lease of the key remains the net.

use std::{collections::HashMap, time::Duration};

use leasehold_core::{EngineError, Instant, Mode};

use crate::{
    client::Client,
    engine::REQUEST_TIMEOUT,
    keys::Dir,
    lock_of,
    record::{BEFORE_MIN_HOLD, Record, RecordState},
    runtime,
    wire::{DeleteRange, KeyValue, Order, Range, RangeResponse, Txn, compare},
};

/// Clocks differ by at most as much in their rates.
const DRIFT_PERCENT: u32 = 1;
/// Those that are kept held before, so they are among the first. With the largest values that servers take by default so many
/// are still a whole answer.
const MAX_READ: i64 = 32;
/// The most that are counted at once. Of more, the leases are waited for.
const MAX_COUNTED: usize = 1024;
/// A key that could not be taken away is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The keys that keep names, as far as this client has heard of them.
#[derive(Default)]
pub(crate) struct MinHoldKeys(HashMap<Vec<u8>, BlockedUntil>);

/// Since when a key keeps its name.
struct BlockedUntil {
    /// At which it was written.
    revision: i64,
    end: Instant,
}

impl MinHoldKeys {
    /// This key, written at `revision`, keeps its name until `over` at the latest.
    fn note(&mut self, key: &[u8], revision: i64, end: Instant) {
        if let Some(known) = self.0.get_mut(key) {
            if known.revision < revision {
                *known = BlockedUntil { revision, end };
            }
        } else if self.0.len() < MAX_COUNTED {
            self.0.insert(key.to_vec(), BlockedUntil { revision, end });
        }
    }

    fn knows(&self, kv: &KeyValue) -> bool {
        self.0.get(&kv.key).is_some_and(|known| known.revision == kv.mod_revision)
    }

    pub(crate) fn forget(&mut self, key: &[u8]) {
        self.0.remove(key);
    }

    /// What is known is of data that the server has no more.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// When the next one is over.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.0.values().map(|known| known.end).min()
    }

    /// Those whose time is over, with their revisions. That they are taken away is taken for granted.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Vec<(Vec<u8>, i64)> {
        let end = self.0.extract_if(|_, known| known.end <= now);
        end.map(|(key, known)| (key, known.revision)).collect()
    }
}

impl Client {
    /// A key was written, or read as it is now.
    pub(crate) fn note_min_hold(&self, kv: &KeyValue) {
        let record = Some(kv).filter(|kv| is_rewritten(kv)).and_then(|kv| Record::read(&kv.value));
        let mut min_holds = lock_of(&self.min_hold_keys);
        match record {
            Some(Record { state: RecordState::MinHold, time, .. }) => {
                min_holds.note(&kv.key, kv.mod_revision, end_of(self.now(), time));
                drop(min_holds);
                self.sooner.notify_one();
            }
            _ => min_holds.forget(&kv.key),
        }
    }

    /// Looks which of the keys in the way of a claim keep the name, if one of those that were read without their values may.
    pub(crate) fn check_min_holds(&self, found: &RangeResponse, dir: &Dir, (mode, revision): (Mode, i64)) {
        let is_new = |kv: &KeyValue| is_rewritten(kv) && !lock_of(&self.min_hold_keys).knows(kv);
        if found.kvs.iter().any(is_new) {
            self.read_min_holds(dir, mode, revision);
        }
    }

    /// The same of all keys in the way of a claim whose own was created at `revision`. What is not found, leases end.
    pub(crate) fn read_min_holds(&self, dir: &Dir, mode: Mode, revision: i64) {
        let first =
            Range::between(&dir.blockers(mode)).before(revision).by_age(Order::Ascend).limit(MAX_READ);
        let client = self.weak();
        runtime::spawn(async move {
            let Some(client) = client.upgrade() else { return };
            match runtime::within(REQUEST_TIMEOUT, client.ask(first)).await {
                Some(Ok((_, found))) => found.kvs.iter().for_each(|kv| client.note_min_hold(kv)),
                _ => tracing::debug!("names that may be kept end with their leases"),
            }
        });
    }

    /// The time of this key is over, whoever kept the name by it.
    pub(crate) async fn delete_expired(&self, key: Vec<u8>, revision: i64) {
        let taken: Result<_, EngineError> = self.ask(deletion(&key, revision)).await;
        if let Err(error) = taken {
            tracing::debug!(%error, "a kept name ends later");
            lock_of(&self.min_hold_keys).note(&key, revision, self.now().after(RETRY_AFTER));
        }
    }
}

/// When a time that had begun by `heard` is over, whichever clock it is counted by.
fn end_of(noticed: Instant, time: Duration) -> Instant {
    noticed.after(time).after(time / 100 * DRIFT_PERCENT)
}

/// Keys in the line are written once, but for those that are broken or kept.
fn is_rewritten(kv: &KeyValue) -> bool {
    kv.mod_revision != kv.create_revision
}

/// Deletes the key if it still keeps the name, and was not written since. A key is used again, also for a hold.
fn deletion(key: &[u8], revision: i64) -> Txn {
    Txn {
        compare: vec![compare::changed(key, revision), compare::value_after(key, BEFORE_MIN_HOLD)],
        success: vec![DeleteRange { key: key.to_vec(), ..DeleteRange::default() }.into()],
        failure: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_minimum_hold_is_counted_once_per_write() {
        let mut min_holds = MinHoldKeys::default();
        min_holds.note(b"a", 7, at(500));
        min_holds.note(b"a", 7, at(900));
        min_holds.note(b"b", 8, at(600));
        assert_eq!(min_holds.next_end(), Some(at(500)), "who asks again does not begin anew");
        assert_eq!(min_holds.take_expired(at(499)), []);
        assert_eq!(min_holds.take_expired(at(500)), [(b"a".to_vec(), 7)]);
        min_holds.note(b"b", 9, at(1000));
        min_holds.note(b"b", 8, at(600));
        assert_eq!(min_holds.take_expired(at(999)), [], "it is kept anew");
        let kv = |revision| KeyValue { key: b"b".to_vec(), mod_revision: revision, ..KeyValue::default() };
        assert!(min_holds.knows(&kv(9)) && !min_holds.knows(&kv(8)));
        min_holds.forget(b"b");
        assert_eq!(min_holds.next_end(), None);
    }

    #[test]
    fn the_number_of_counted_keys_is_bounded() {
        let mut min_holds = MinHoldKeys::default();
        (0..2 * MAX_COUNTED).for_each(|at| min_holds.note(&at.to_be_bytes(), 1, Instant::NEVER));
        assert_eq!(min_holds.0.len(), MAX_COUNTED);
    }

    /// A clock that runs too fast counts no shorter.
    #[test]
    fn the_end_allows_for_clock_drift() {
        let (noticed, time) = (at(1000), Duration::from_secs(100));
        assert_eq!(end_of(noticed, time), at(102_000));
        assert_eq!(end_of(noticed, Duration::from_millis(u64::MAX)), Instant::from_nanos(u64::MAX));
    }

    /// Requests that were given up may arrive when the key is that of a hold.
    #[test]
    fn a_deletion_requires_an_unchanged_minimum_hold() {
        let taking = deletion(b"k", 7);
        assert!(taking.compare.contains(&compare::changed(b"k", 7)));
        assert!(taking.compare.contains(&compare::value_after(b"k", BEFORE_MIN_HOLD)));
    }
}
