//! The memos that this client deletes after their end. One background task deletes those that are due, a few of one
//! directory at a time, so that thousands of memos that end together are no burst of requests.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use leasehold_core::{ClaimId, EngineError, HoldAfter, Instant, MemoWrite, Name};

use crate::{
    client::Client, engine::REQUEST_TIMEOUT, lock_mutex, memo_place::MemoPlace, memo_sweep::Candidate,
    runtime,
};

/// The most memos that a client deletes by itself after their end. Ended memos of other clients, and those beyond this
/// number, are deleted by clients that write new memos.
const MAX_MEMOS: usize = 4096;
/// The most memos that are read together: their answers have at most a MiB.
const MEMOS_PER_GROUP: usize = 16;
/// A memo that ends so soon after the release of its name is deleted also if its client was dropped.
const SOON: Duration = Duration::from_secs(1);
/// When a client looks again at a memo that has ended and whose hold lasts, or after an error.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// A memo is deleted a little after its end: the client's clock is not that of the server.
const AFTER_END: Duration = Duration::from_millis(5);

/// A memo: its name, and the claim that wrote it.
type WrittenMemo = (Name, ClaimId);

/// The memos that this client wrote.
#[derive(Default)]
pub(crate) struct MemoEnds(Mutex<Ends>);

#[derive(Default)]
struct Ends {
    /// The claim that wrote each memo, and when the client looks whether the memo has ended.
    memos: HashMap<Name, (ClaimId, Instant)>,
    /// A task deletes memos. Until it has ended, no others are due.
    is_deleting: bool,
}

/// What a look at a memo found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// There is no such memo any more.
    Gone,
    /// It is to be looked at again after this time.
    Later(Duration),
}

impl MemoEnds {
    /// Remembers that the memo of this claim is to be looked at, in place of an earlier memo of the name.
    fn add(&self, name: &Name, id: ClaimId, due: Instant) {
        let memos = &mut lock_mutex(&self.0).memos;
        if memos.len() < MAX_MEMOS || memos.contains_key(name) {
            memos.insert(name.clone(), (id, due));
        }
    }

    /// Remembers that a memo is to be looked at again, unless a later memo of the name was written meanwhile.
    fn add_again(&self, (name, id): WrittenMemo, due: Instant) {
        let memos = &mut lock_mutex(&self.0).memos;
        if memos.len() < MAX_MEMOS {
            memos.entry(name).or_insert((id, due));
        }
    }

    /// Takes the memos that are due. If there are any, no others are due until
    /// [`deletion_ended`](Self::deletion_ended).
    fn take_due(&self, now: Instant) -> Vec<WrittenMemo> {
        let ends = &mut *lock_mutex(&self.0);
        if ends.is_deleting {
            return Vec::new();
        }
        let due = ends.memos.extract_if(|_, (_, due)| *due <= now).map(|(name, (id, _))| (name, id));
        let due: Vec<_> = due.collect();
        ends.is_deleting = !due.is_empty();
        due
    }

    fn deletion_ended(&self) {
        lock_mutex(&self.0).is_deleting = false;
    }

    /// When the next memo is due; `None` also while memos are deleted.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let ends = lock_mutex(&self.0);
        if ends.is_deleting { None } else { ends.memos.values().map(|(_, due)| *due).min() }
    }
}

/// The task that deletes memos. Its drop makes others due.
struct Deletion(Weak<Client>);

impl Drop for Deletion {
    fn drop(&mut self) {
        if let Some(client) = self.0.upgrade() {
            client.memo_ends.deletion_ended();
            client.wake_maintenance.notify_one();
        }
    }
}

impl Client {
    /// Sees to the end of a memo that was written.
    pub(crate) fn after_memo(&self, write: &MemoWrite) {
        let (name, id, keep) = (&write.name, write.version.id, write.memo.keep());
        self.memo_ends.add(name, id, self.now().after(keep + AFTER_END));
        if keep > SOON || write.after == HoldAfter::Keep {
            return self.wake_maintenance.notify_one();
        }
        if let Some(client) = self.weak_self.upgrade() {
            let name = name.clone();
            runtime::spawn(async move {
                runtime::sleep(keep + AFTER_END).await;
                client.delete_ended_memos(vec![(name, id)]).await;
            });
        }
    }

    /// Deletes the memos that are due at `now`, in the background.
    pub(crate) fn delete_due_memos(&self, now: Instant) {
        let due = self.memo_ends.take_due(now);
        if due.is_empty() {
            return;
        }
        let deletion = Deletion(Weak::clone(&self.weak_self));
        let groups = groups(due, |name| self.memo_place(name).directory);
        runtime::spawn(async move {
            for group in groups {
                let Some(client) = deletion.0.upgrade() else { return };
                client.delete_ended_memos(group).await;
            }
        });
    }

    /// Deletes those of these memos of one directory that have ended. The client will look again at the others.
    async fn delete_ended_memos(self: Arc<Self>, memos: Vec<WrittenMemo>) {
        let looked = runtime::within(REQUEST_TIMEOUT, self.look_at_memos(&memos)).await;
        let looks = match looked {
            Some(Ok(looks)) => looks,
            Some(Err(_)) | None => vec![Look::Later(LOOK_AGAIN); memos.len()],
        };
        for (memo, look) in memos.into_iter().zip(looks) {
            if let Look::Later(later) = look {
                self.memo_ends.add_again(memo, self.now().after(later));
            }
        }
    }

    /// Looks at memos of one directory, and deletes those that have ended.
    async fn look_at_memos(&self, memos: &[WrittenMemo]) -> Result<Vec<Look>, EngineError> {
        let (slot, conn) = self.memo_conn().await?;
        let places: Vec<MemoPlace> = memos.iter().map(|(name, _)| self.memo_place(name)).collect();
        let Some(first) = places.first() else { return Ok(Vec::new()) };
        let paths = places.iter().map(|place| place.node.clone()).collect();
        let (now, version, candidates) = self.candidates(&conn, first, paths).await?;
        let mut by_path: HashMap<String, Candidate> =
            candidates.into_iter().map(|candidate| (candidate.path.clone(), candidate)).collect();
        let mut looks = Vec::new();
        for (place, (_, id)) in places.iter().zip(memos) {
            let candidate = by_path.remove(&place.node).filter(|candidate| candidate.record.claim() == *id);
            looks.push(match candidate.map(|candidate| (candidate.left(now), candidate)) {
                None => Look::Gone,
                Some((Some(left), _)) => Look::Later(left + AFTER_END),
                Some((None, ended)) => {
                    let is_deleted = self.delete_memo(&conn, slot.session(), place, version, ended).await?;
                    if is_deleted { Look::Gone } else { Look::Later(LOOK_AGAIN) }
                }
            });
        }
        Ok(looks)
    }
}

/// Groups of memos of one directory each.
fn groups(memos: Vec<WrittenMemo>, directory: impl Fn(&Name) -> String) -> Vec<Vec<WrittenMemo>> {
    let mut by_directory = BTreeMap::<String, Vec<WrittenMemo>>::new();
    for memo in memos {
        by_directory.entry(directory(&memo.0)).or_default().push(memo);
    }
    by_directory.values().flat_map(|memos| memos.chunks(MEMOS_PER_GROUP)).map(<[_]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ClaimId = ClaimId([1; 16]);

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn name(number: usize) -> Name {
        Name::new(&format!("n{number}")).unwrap()
    }

    #[test]
    fn each_memo_is_due_one_time_and_only_so_many_are_remembered() {
        let ends = MemoEnds::default();
        (0..MAX_MEMOS).for_each(|number| ends.add(&name(number), ID, at(7)));
        ends.add(&name(MAX_MEMOS), ID, at(5));
        ends.add(&name(0), ID, at(6));
        assert_eq!(ends.next_due(), Some(at(6)), "the last one was one too many");
        assert_eq!(ends.take_due(at(6)), [(name(0), ID)]);
        ends.deletion_ended();
        assert_eq!(ends.take_due(at(6)), []);
        assert_eq!(ends.take_due(at(7)).len(), MAX_MEMOS - 1);
        ends.deletion_ended();
        assert_eq!(ends.next_due(), None);
    }

    #[test]
    fn no_memo_is_due_while_others_are_deleted() {
        let ends = MemoEnds::default();
        ends.add(&name(1), ID, at(5));
        ends.add(&name(2), ID, at(6));
        assert_eq!(ends.take_due(at(5)), [(name(1), ID)]);
        assert_eq!((ends.next_due(), ends.take_due(at(9))), (None, Vec::new()));
        ends.deletion_ended();
        assert_eq!(ends.next_due(), Some(at(6)));
        assert_eq!(ends.take_due(at(9)), [(name(2), ID)]);
    }

    #[test]
    fn a_memo_that_is_looked_at_again_replaces_no_later_one() {
        let (ends, later) = (MemoEnds::default(), ClaimId([2; 16]));
        ends.add(&name(1), ID, at(5));
        let [memo] = <[_; 1]>::try_from(ends.take_due(at(5))).unwrap();
        ends.add(&name(1), later, at(7));
        ends.add_again(memo, at(6));
        ends.add_again((name(2), ID), at(6));
        ends.deletion_ended();
        assert_eq!(ends.take_due(at(6)), [(name(2), ID)]);
        ends.deletion_ended();
        assert_eq!(ends.take_due(at(7)), [(name(1), later)]);
    }

    #[test]
    fn a_group_has_a_few_memos_of_one_directory() {
        let memos = (0..2 * MEMOS_PER_GROUP + 4).map(|number| (name(number), ID)).collect();
        let is_even = |name: &Name| (name.as_str()[1..].parse::<usize>().unwrap() % 2 == 0).to_string();
        let groups = groups(memos, is_even);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [MEMOS_PER_GROUP, 2, MEMOS_PER_GROUP, 2]);
        for group in groups {
            assert!(group.iter().all(|(name, _)| is_even(name) == is_even(&group[0].0)), "{group:?}");
        }
    }
}
