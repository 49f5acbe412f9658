//! Ends minimum holds whose client has exited.
//!
//! The key of a minimum hold is on a lease of whole seconds that its exited client cannot revoke. So every client that
//! reads or is notified of such a key counts the time by its own clock, and deletes the key when the time is over. The
//! client counts from when it learned of the key, which is after the key was written, so the deletion can be late and
//! not early. If no client deletes the key, the key ends with its lease.

use std::{collections::HashMap, time::Duration};

use leasehold_core::{EngineError, Instant, Mode};

use crate::{
    client::Client,
    engine::REQUEST_TIMEOUT,
    keys::Dir,
    lock_mutex,
    record::{BEFORE_MIN_HOLD, Record, RecordState},
    runtime,
    wire::{DeleteRange, KeyValue, Order, Range, RangeResponse, Txn, compare},
};

/// The largest difference between the rates of two clocks.
const DRIFT_PERCENT: u32 = 1;
/// The number of keys that are read to find minimum holds. The key of a minimum hold was the key of a hold before, so
/// it is among the oldest keys of the name. This many of the largest values that servers accept by default still fit
/// the bound of a reply.
const MAX_READ: i64 = 32;
/// The most minimum holds whose time a client counts. Further minimum holds end with their leases.
const MAX_COUNTED: usize = 1024;
/// The delay before a failed deletion is repeated.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The minimum holds that this client knows.
#[derive(Default)]
pub(crate) struct MinHoldKeys(HashMap<Vec<u8>, KnownMinHold>);

/// One minimum hold, as this client knows it. Its key blocks the name until `end`.
struct KnownMinHold {
    /// The revision at which the key was last written.
    revision: i64,
    end: Instant,
}

impl MinHoldKeys {
    /// Records that this key, written at `revision`, blocks its name until `end` at the latest.
    fn note(&mut self, key: &[u8], revision: i64, end: Instant) {
        if let Some(entry) = self.0.get_mut(key) {
            if entry.revision < revision {
                *entry = KnownMinHold { revision, end };
            }
        } else if self.0.len() < MAX_COUNTED {
            self.0.insert(key.to_vec(), KnownMinHold { revision, end });
        }
    }

    /// Whether this client already counts the time of the minimum hold that this write of the key began.
    fn knows(&self, kv: &KeyValue) -> bool {
        self.0.get(&kv.key).is_some_and(|entry| entry.revision == kv.mod_revision)
    }

    /// Forgets the minimum hold of this key, if there is one.
    pub(crate) fn forget(&mut self, key: &[u8]) {
        self.0.remove(key);
    }

    /// Forgets all: the server was restored from other data.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The earliest end.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.0.values().map(|entry| entry.end).min()
    }

    /// Takes out the keys whose time is over, with their revisions. The caller deletes them.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Vec<(Vec<u8>, i64)> {
        let expired = self.0.extract_if(|_, entry| entry.end <= now);
        expired.map(|(key, entry)| (key, entry.revision)).collect()
    }
}

impl Client {
    /// Notes a key that was written or read: it may be a minimum hold.
    pub(crate) fn note_min_hold(&self, kv: &KeyValue) {
        let record = Some(kv).filter(|kv| is_rewritten(kv)).and_then(|kv| Record::read(&kv.value));
        let mut min_holds = lock_mutex(&self.min_hold_keys);
        match record {
            Some(Record { state: RecordState::MinHold, hold_time, .. }) => {
                min_holds.note(&kv.key, kv.mod_revision, end_of(self.now(), hold_time));
                drop(min_holds);
                self.wake_maintenance.notify_one();
            }
            _ => min_holds.forget(&kv.key),
        }
    }

    /// Reads the minimum holds ahead of a claim if one of these keys, read without their values, may be a new one. With
    /// `layout=key` only the lock key can be one.
    pub(crate) fn read_new_min_holds(&self, ahead: &RangeResponse, dir: &Dir, (mode, revision): (Mode, i64)) {
        let may_be_new = |kv: &KeyValue| is_rewritten(kv) && !lock_mutex(&self.min_hold_keys).knows(kv);
        if ahead.kvs.iter().any(may_be_new) {
            self.read_min_holds(dir, mode, revision);
        }
    }

    /// Reads the oldest keys ahead of a claim, whose own key was created at `revision`, and notes the minimum holds.
    /// Minimum holds that this read does not find end with their leases.
    pub(crate) fn read_min_holds(&self, dir: &Dir, mode: Mode, revision: i64) {
        let first_keys = match dir.lock_key() {
            Some(lock_key) => Range::key(&lock_key),
            None => {
                Range::between(&dir.blockers(mode)).before(revision).by_age(Order::Ascend).limit(MAX_READ)
            }
        };
        let client = self.weak();
        runtime::spawn(async move {
            let Some(client) = client.upgrade() else { return };
            match runtime::within(REQUEST_TIMEOUT, client.ask(first_keys)).await {
                Some(Ok((_, ahead))) => ahead.kvs.iter().for_each(|kv| client.note_min_hold(kv)),
                _ => tracing::debug!("minimum holds that were not read end with their leases"),
            }
        });
    }

    /// Deletes the key of a minimum hold whose time is over, whichever client released it.
    pub(crate) async fn delete_expired_min_hold(&self, key: Vec<u8>, revision: i64) {
        let deleted: Result<_, EngineError> = self.ask(deletion(&key, revision)).await;
        if let Err(error) = deleted {
            tracing::debug!(%error, "a minimum hold ends later");
            lock_mutex(&self.min_hold_keys).note(&key, revision, self.now().after(RETRY_AFTER));
        }
    }
}

/// When a minimum hold time that began no later than `noticed` is over by every clock.
fn end_of(noticed: Instant, hold_time: Duration) -> Instant {
    noticed.after(hold_time).after(hold_time / 100 * DRIFT_PERCENT)
}

/// Whether a key was written again. That happens to broken holds and minimum holds only.
fn is_rewritten(kv: &KeyValue) -> bool {
    kv.mod_revision != kv.create_revision
}

/// The transaction that deletes the key if it is still a minimum hold and was not written after `revision`. Keys are
/// reused, so the key can belong to a hold by now.
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

    /// The time so many milliseconds after the start of the test.
    fn at_millis(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_minimum_hold_is_counted_once_per_write() {
        let mut min_holds = MinHoldKeys::default();
        min_holds.note(b"a", 7, at_millis(500));
        min_holds.note(b"a", 7, at_millis(900));
        min_holds.note(b"b", 8, at_millis(600));
        assert_eq!(min_holds.next_end(), Some(at_millis(500)), "a second read does not restart the time");
        assert_eq!(min_holds.take_expired(at_millis(499)), []);
        assert_eq!(min_holds.take_expired(at_millis(500)), [(b"a".to_vec(), 7)]);
        min_holds.note(b"b", 9, at_millis(1000));
        min_holds.note(b"b", 8, at_millis(600));
        assert_eq!(min_holds.take_expired(at_millis(999)), [], "a later write starts a new minimum hold");
        let kv = |revision| KeyValue { key: b"b".to_vec(), mod_revision: revision, ..KeyValue::default() };
        assert!(min_holds.knows(&kv(9)) && !min_holds.knows(&kv(8)));
        min_holds.forget(b"b");
        assert_eq!(min_holds.next_end(), None);
    }

    #[test]
    fn the_number_of_counted_keys_is_bounded() {
        let mut min_holds = MinHoldKeys::default();
        (0..2 * MAX_COUNTED).for_each(|number| min_holds.note(&number.to_be_bytes(), 1, Instant::NEVER));
        assert_eq!(min_holds.0.len(), MAX_COUNTED);
    }

    /// A clock that runs too fast does not shorten the time.
    #[test]
    fn the_end_allows_for_clock_drift() {
        let (noticed, hold_time) = (at_millis(1000), Duration::from_secs(100));
        assert_eq!(end_of(noticed, hold_time), at_millis(102_000));
        assert_eq!(end_of(noticed, Duration::from_millis(u64::MAX)), Instant::from_nanos(u64::MAX));
    }

    /// A deletion that was given up may arrive when a hold uses the key.
    #[test]
    fn a_deletion_requires_an_unchanged_minimum_hold() {
        let txn = deletion(b"k", 7);
        assert!(txn.compare.contains(&compare::changed(b"k", 7)));
        assert!(txn.compare.contains(&compare::value_after(b"k", BEFORE_MIN_HOLD)));
    }
}
