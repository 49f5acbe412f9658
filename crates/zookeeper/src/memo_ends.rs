//! Which memos this client deletes after their end.

use std::{collections::HashMap, sync::Mutex};

use leasehold_core::{ClaimId, Instant, Name};

use crate::lock_mutex;

/// The most memos that a client deletes by itself after their end. Ended memos of other clients, and those beyond this
/// number, are deleted by clients that write new memos.
const MAX_MEMOS: usize = 4096;

/// The memos that this client wrote: the claim of each, and when the client looks whether it has ended.
#[derive(Default)]
pub(crate) struct MemoEnds(Mutex<HashMap<Name, (ClaimId, Instant)>>);

impl MemoEnds {
    /// Remembers that the memo of this claim is to be looked at.
    pub(crate) fn add(&self, name: &Name, id: ClaimId, due: Instant) {
        let mut memos = lock_mutex(&self.0);
        if memos.len() < MAX_MEMOS || memos.contains_key(name) {
            memos.insert(name.clone(), (id, due));
        }
    }

    /// Takes the memos that are due.
    pub(crate) fn take_due(&self, now: Instant) -> Vec<(Name, ClaimId)> {
        let mut memos = lock_mutex(&self.0);
        memos.extract_if(|_, (_, due)| *due <= now).map(|(name, (id, _))| (name, id)).collect()
    }

    /// When the next memo is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        lock_mutex(&self.0).values().map(|(_, due)| *due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn each_memo_is_due_one_time_and_only_so_many_are_remembered() {
        let (ends, id) = (MemoEnds::default(), ClaimId([1; 16]));
        let name = |number: usize| Name::new(&format!("n{number}")).unwrap();
        (0..MAX_MEMOS).for_each(|number| ends.add(&name(number), id, at(7)));
        ends.add(&name(MAX_MEMOS), id, at(5));
        ends.add(&name(0), id, at(6));
        assert_eq!(ends.next_due(), Some(at(6)), "the last one was one too many");
        assert_eq!(ends.take_due(at(6)), [(name(0), id)]);
        assert_eq!(ends.take_due(at(6)), []);
        assert_eq!(ends.take_due(at(7)).len(), MAX_MEMOS - 1);
        assert_eq!(ends.next_due(), None);
    }
}
