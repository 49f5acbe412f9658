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
    record::{BEFORE_KEPT, Record, RecordState},
    runtime,
    wire::{DeleteRange, KeyValue, Order, Range, RangeResponse, Txn, compare},
};

/// Clocks differ by at most as much in their rates.
const DRIFT_PERCENT: u32 = 1;
/// Those that are kept held before, so they are among the first. With the largest values that servers take by default so many
/// are still a whole answer.
const FIRST: i64 = 32;
/// The most that are counted at once. Of more, the leases are waited for.
const MOST: usize = 1024;
/// A key that could not be taken away is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// The keys that keep names, as far as this client has heard of them.
#[derive(Default)]
pub(crate) struct KeptKeys(HashMap<Vec<u8>, Since>);

/// Since when a key keeps its name.
struct Since {
    /// At which it was written.
    revision: i64,
    over: Instant,
}

impl KeptKeys {
    /// This key, written at `revision`, keeps its name until `over` at the latest.
    fn note(&mut self, key: &[u8], revision: i64, over: Instant) {
        if let Some(known) = self.0.get_mut(key) {
            if known.revision < revision {
                *known = Since { revision, over };
            }
        } else if self.0.len() < MOST {
            self.0.insert(key.to_vec(), Since { revision, over });
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
    pub(crate) fn next_over(&self) -> Option<Instant> {
        self.0.values().map(|known| known.over).min()
    }

    /// Those whose time is over, with their revisions. That they are taken away is taken for granted.
    pub(crate) fn over(&mut self, now: Instant) -> Vec<(Vec<u8>, i64)> {
        let over = self.0.extract_if(|_, known| known.over <= now);
        over.map(|(key, known)| (key, known.revision)).collect()
    }
}

impl Client {
    /// A key was written, or read as it is now.
    pub(crate) fn hear_of(&self, kv: &KeyValue) {
        let record = Some(kv).filter(|kv| is_rewritten(kv)).and_then(|kv| Record::read(&kv.value));
        let mut kept = lock_of(&self.kept_keys);
        match record {
            Some(Record { state: RecordState::Kept, time, .. }) => {
                kept.note(&kv.key, kv.mod_revision, over(self.now(), time));
                drop(kept);
                self.sooner.notify_one();
            }
            _ => kept.forget(&kv.key),
        }
    }

    /// Looks which of the keys in the way of a claim keep the name, if one of those that were read without their values may.
    pub(crate) fn look_for_kept(&self, there: &RangeResponse, dir: &Dir, (mode, revision): (Mode, i64)) {
        let is_notifications = |kv: &KeyValue| is_rewritten(kv) && !lock_of(&self.kept_keys).knows(kv);
        if there.kvs.iter().any(is_notifications) {
            self.look_for_all_kept(dir, mode, revision);
        }
    }

    /// The same of all keys in the way of a claim whose own was created at `revision`. What is not found, leases end.
    pub(crate) fn look_for_all_kept(&self, dir: &Dir, mode: Mode, revision: i64) {
        let first = Range::between(&dir.blockers(mode)).before(revision).by_age(Order::Ascend).limit(FIRST);
        let client = self.weak();
        runtime::spawn(async move {
            let Some(client) = client.upgrade() else { return };
            match runtime::within(REQUEST_TIMEOUT, client.ask(first)).await {
                Some(Ok((_, there))) => there.kvs.iter().for_each(|kv| client.hear_of(kv)),
                _ => tracing::debug!("names that may be kept end with their leases"),
            }
        });
    }

    /// The time of this key is over, whoever kept the name by it.
    pub(crate) async fn take_away(&self, key: Vec<u8>, revision: i64) {
        let taken: Result<_, EngineError> = self.ask(taking_away(&key, revision)).await;
        if let Err(error) = taken {
            tracing::debug!(%error, "a kept name ends later");
            lock_of(&self.kept_keys).note(&key, revision, self.now().after(AGAIN));
        }
    }
}

/// When a time that had begun by `heard` is over, whichever clock it is counted by.
fn over(heard: Instant, time: Duration) -> Instant {
    heard.after(time).after(time / 100 * DRIFT_PERCENT)
}

/// Keys in the line are written once, but for those that are broken or kept.
fn is_rewritten(kv: &KeyValue) -> bool {
    kv.mod_revision != kv.create_revision
}

/// Deletes the key if it still keeps the name, and was not written since. A key is used again, also for a hold.
fn taking_away(key: &[u8], revision: i64) -> Txn {
    Txn {
        compare: vec![compare::changed(key, revision), compare::value_after(key, BEFORE_KEPT)],
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
    fn a_time_is_counted_once_for_each_time_that_a_key_is_written() {
        let mut kept = KeptKeys::default();
        kept.note(b"a", 7, at(500));
        kept.note(b"a", 7, at(900));
        kept.note(b"b", 8, at(600));
        assert_eq!(kept.next_over(), Some(at(500)), "who asks again does not begin anew");
        assert_eq!(kept.over(at(499)), []);
        assert_eq!(kept.over(at(500)), [(b"a".to_vec(), 7)]);
        kept.note(b"b", 9, at(1000));
        kept.note(b"b", 8, at(600));
        assert_eq!(kept.over(at(999)), [], "it is kept anew");
        let kv = |revision| KeyValue { key: b"b".to_vec(), mod_revision: revision, ..KeyValue::default() };
        assert!(kept.knows(&kv(9)) && !kept.knows(&kv(8)));
        kept.forget(b"b");
        assert_eq!(kept.next_over(), None);
    }

    #[test]
    fn no_more_are_counted_than_there_is_room_for() {
        let mut kept = KeptKeys::default();
        (0..2 * MOST).for_each(|at| kept.note(&at.to_be_bytes(), 1, Instant::NEVER));
        assert_eq!(kept.0.len(), MOST);
    }

    /// A clock that runs too fast counts no shorter.
    #[test]
    fn a_time_is_over_by_every_clock() {
        let (heard, time) = (at(1000), Duration::from_secs(100));
        assert_eq!(over(heard, time), at(102_000));
        assert_eq!(over(heard, Duration::from_millis(u64::MAX)), Instant::from_nanos(u64::MAX));
    }

    /// Requests that were given up may arrive when the key is that of a hold.
    #[test]
    fn only_what_keeps_the_name_is_taken_away() {
        let taking = taking_away(b"k", 7);
        assert!(taking.compare.contains(&compare::changed(b"k", 7)));
        assert!(taking.compare.contains(&compare::value_after(b"k", BEFORE_KEPT)));
    }
}
