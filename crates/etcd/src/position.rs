//! The position of a claim in the queue, by a reply of the server, and its record in the claim table.

use std::time::Duration;

use leasehold_core::{Answer, Claim, EngineError, Hint, KnownMode, Mode, WATCHED_AFTER};

use crate::{
    claims::{Blocker, State, fits},
    client::Client,
    conn::Conn,
    keys::Dir,
    watches::{WatchStart, WatchTarget},
    wire::{KeyValue, Order, Range, RangeResponse},
};

/// The poll interval of a waiting claim after the server refused a watch.
const REFUSED_POLL: Duration = Duration::from_secs(2);

/// What is ahead of a claim.
#[derive(Default)]
pub(crate) struct QueuePosition {
    /// What the claim waits for; `None`: nothing blocks the claim.
    pub(crate) blocker: Option<Blocker>,
    /// The number of waiters ahead, as far as known.
    pub(crate) ahead: Option<u32>,
    /// Why the name may stay taken for ever.
    pub(crate) obstacle: Option<&'static str>,
}

impl QueuePosition {
    /// Computes the position of a claim from the result of [`blockers_range`]. `own` is the create revision of the
    /// claim's own key, given if this key was just created and so is possibly in the result.
    pub(crate) fn read(dir: &Dir, mode: Mode, blockers: &RangeResponse, own: Option<i64>) -> Self {
        let others = blockers.kvs.iter().filter(|kv| own != Some(kv.create_revision));
        match mode {
            Mode::Permits { count: wanted, limit } => {
                let ahead: Vec<(Vec<u8>, u32)> = others
                    .map(|kv| match dir.mode(&kv.key) {
                        Mode::Permits { count, .. } => (kv.key.clone(), count),
                        _ => (kv.key.clone(), limit),
                    })
                    .collect();
                let max_permits = limit - wanted;
                if fits(&ahead, max_permits) {
                    return Self::default();
                }
                let mut permits_so_far = 0_u64;
                let is_holder = |(_, count): &&(Vec<u8>, u32)| {
                    permits_so_far += u64::from(*count);
                    permits_so_far <= u64::from(limit)
                };
                let holders = ahead.iter().take_while(is_holder).count();
                let waiters = u32::try_from(ahead.len() - holders).ok();
                let blocker = Some(Blocker::Permits { ahead, max_permits });
                Self { blocker, ahead: waiters, obstacle: None }
            }
            _ => {
                let keys: Vec<&[u8]> = others.map(|kv| &*kv.key).collect();
                let Some(newest) = keys.first() else { return Self::default() };
                // The server's count ignores the age of keys, so it is right only for the newest key.
                let own_counted = i64::from(mode == Mode::Exclusive);
                let ahead =
                    own.and_then(|_| u32::try_from(blockers.count.saturating_sub(own_counted + 1)).ok());
                let sole = keys.len() == 1 && !blockers.more;
                Self { blocker: Some(Blocker::Key { key: newest.to_vec(), sole }), ahead, obstacle: None }
            }
        }
    }
}

impl QueuePosition {
    /// This position, changed if a client without a queue holds by the key `foreign`: then the head of the queue has to
    /// ask whether `foreign` still exists. Unchanged if there is no such key.
    pub(crate) fn with_foreign(self, foreign: Option<KeyValue>) -> Self {
        let Some(foreign) = foreign else { return self };
        let blocker = match self.blocker {
            None => Blocker::Key { key: foreign.key, sole: false },
            Some(Blocker::Key { key, .. }) => Blocker::Key { key, sole: false },
            Some(Blocker::Permits { .. } | Blocker::Unknown) => Blocker::Unknown,
        };
        Self { blocker: Some(blocker), ..self }
    }

    /// With `layout=key`: this position, changed by the lock key, if that exists. The claim never holds by the end of
    /// what it waits for alone, because it then still has to create the lock key. The number of waiters ahead is not
    /// known, because the queue can include the holder. If the lock key is an obstacle, every claim waits for the
    /// deletion of the lock key, also a claim behind others, so that no claim reports the obstacle after that deletion.
    pub(crate) fn with_lock_key(self, lock_key: Option<&KeyValue>) -> Self {
        let obstacle = lock_key.and_then(obstacle_of);
        let key_ahead = match self.blocker {
            Some(Blocker::Key { key, .. }) if obstacle.is_none() => Some(key),
            _ => lock_key.map(|kv| kv.key.clone()),
        };
        Self { blocker: key_ahead.map(|key| Blocker::Key { key, sole: false }), ahead: None, obstacle }
    }
}

/// The obstacle of a lock key that no lease ends.
pub(crate) fn obstacle_of(lock_key: &KeyValue) -> Option<&'static str> {
    (lock_key.lease == 0).then_some(
        "its key has no lease, so the key stays until somebody deletes it: find out who created it, then end it by \
         leasehold break --force",
    )
}

/// The read of the keys ahead of a claim: the newest of them, and whether there are more; for permits all.
pub(crate) fn blockers_range(dir: &Dir, mode: Mode) -> Range {
    let range = Range::between(&dir.blockers(mode)).keys_only();
    match mode.known() {
        KnownMode::Permits { .. } => range.by_age(Order::Ascend),
        // For a claim that was just created: its own key and the key ahead.
        KnownMode::Exclusive => range.by_age(Order::Descend).limit(2),
        KnownMode::Shared => range.by_age(Order::Descend).limit(1),
    }
}

/// What a reply of the server reports about a claim.
pub(crate) struct ClaimReply {
    /// The revision at which the key of the claim was created.
    pub(crate) revision: i64,
    /// The revision of the read.
    pub(crate) read_revision: i64,
    /// How long a hold is valid, counted from before the request left.
    pub(crate) ttl: Duration,
    pub(crate) position: QueuePosition,
}

impl Client {
    /// Stores the position of the claim and returns the answer. An event received while the reply was in flight takes
    /// precedence.
    pub(crate) fn record_position(
        &self,
        claim: &Claim,
        dir: &Dir,
        conn: &Conn,
        reply: ClaimReply,
    ) -> Result<Answer, EngineError> {
        let ClaimReply { revision, read_revision, ttl, position } = reply;
        let QueuePosition { blocker, ahead, obstacle } = position;
        let now = self.now();
        let mut claims = self.claims();
        if let Some(answer) = claims.answer_without_request(claim.id) {
            return Ok(answer);
        }
        let Some(entry) = claims.get(claim.id) else { return Ok(Answer::Gone) };
        // The claim was perhaps granted while the reply was in flight: the tokens come from the key by which it holds.
        let held = if let State::Held { own, .. } = entry.state { Some(own) } else { None };
        let revision = held.unwrap_or(revision);
        if let Some(blocker) = blocker.filter(|_| held.is_none()) {
            let key = entry.data.key.clone();
            entry.waits(revision, blocker.clone(), now);
            drop(claims);
            self.watch(claim, dir, conn, read_revision, (key, &blocker));
            let ask_in = conn.watches.are_refused().then_some(REFUSED_POLL);
            return Ok(Answer::Waiting(Hint { ask_in, ahead, obstacle }));
        }
        let grant = self.held(conn, revision, entry.tokens, ttl)?;
        claims.hold(claim.id, revision, true, (now, now.after(ttl)));
        // A watch of the own key becomes due even if the key is watched already: the server may have ended that watch.
        claims.watch_from(claim.id, now.after(WATCHED_AFTER));
        drop(claims);
        // Only the watch of what the claim waited for ends here. The watch of the own key lasts as long as the hold.
        conn.watches.unwatch(WatchTarget::Blocker(claim.id), now);
        self.wake_maintenance.notify_one();
        Ok(Answer::Held(grant))
    }

    /// Watches the claim's own key and what the claim waits for, from the revision of the read, `read_revision`.
    fn watch(
        &self,
        claim: &Claim,
        dir: &Dir,
        conn: &Conn,
        read_revision: i64,
        (own_key, blocker): (Vec<u8>, &Blocker),
    ) {
        let (span, begin, own_begin) = match blocker {
            // Only the watch of the blocker reports missed changes. The read that follows such a report also covers
            // changes that the watch of the own key missed.
            Blocker::Key { key, .. } => (
                (key.clone(), Vec::new()),
                WatchStart::Now { read_revision },
                WatchStart::NowOnly { read_revision },
            ),
            // Every change counts, so the watches start after the read.
            Blocker::Permits { .. } | Blocker::Unknown => {
                (dir.all_keys(), WatchStart::After(read_revision), WatchStart::After(read_revision))
            }
        };
        self.watch_target(conn, WatchTarget::Own(claim.id), (own_key, Vec::new()), own_begin);
        self.watch_target(conn, WatchTarget::Blocker(claim.id), span, begin);
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Name;

    use super::*;
    use crate::wire::KeyValue;

    /// A reply with these keys. The own key of the claim has the create revision 1.
    fn range(keys: &[&str]) -> RangeResponse {
        let kvs = keys.iter().map(|&key| KeyValue {
            key: format!("/locks/a/{key}").into_bytes(),
            create_revision: i64::from(key == "own"),
            ..KeyValue::default()
        });
        RangeResponse { kvs: kvs.collect(), count: keys.len() as i64, ..RangeResponse::default() }
    }

    #[test]
    fn the_blocker_of_a_claim_is_read() {
        let dir = Dir::of("/locks", &Name::new("a").unwrap());
        let read = |mode, keys: &[&str]| QueuePosition::read(&dir, mode, &range(keys), Some(1));
        assert!(read(Mode::Exclusive, &["own"]).blocker.is_none());
        let waits_for =
            |key: &str, sole| Some(Blocker::Key { key: format!("/locks/a/{key}").into_bytes(), sole });
        assert_eq!(read(Mode::Exclusive, &["own", "x"]).blocker, waits_for("x", true));
        assert_eq!(read(Mode::Shared, &["x"]).blocker, waits_for("x", true));
        let one_of_several = RangeResponse { more: true, ..range(&["own", "x"]) };
        let position = QueuePosition::read(&dir, Mode::Exclusive, &one_of_several, Some(1));
        assert_eq!(position.blocker, waits_for("x", false));
        let without_own = QueuePosition::read(&dir, Mode::Exclusive, &range(&["x", "y"]), None);
        assert_eq!((without_own.blocker, without_own.ahead), (waits_for("x", false), None));
        let foreign = || Some(KeyValue { key: b"/locks/a".to_vec(), ..KeyValue::default() });
        let not_sole = |key: &str| Some(Blocker::Key { key: key.as_bytes().to_vec(), sole: false });
        let with_foreign = |keys: &[&str]| read(Mode::Exclusive, keys).with_foreign(foreign()).blocker;
        assert_eq!(with_foreign(&["own"]), not_sole("/locks/a"));
        assert_eq!(with_foreign(&["own", "x"]), not_sole("/locks/a/x"), "not sole: it asks afterwards");
        assert!(read(Mode::Exclusive, &["own"]).with_foreign(None).blocker.is_none());
        let lock_key = |lease| KeyValue { key: b"/a".to_vec(), lease, ..KeyValue::default() };
        let with_lock_key = |keys: &[&str], kv: Option<&KeyValue>| {
            let position = read(Mode::Exclusive, keys).with_lock_key(kv);
            (position.blocker, position.obstacle.is_some())
        };
        assert_eq!(with_lock_key(&["own"], None), (None, false));
        assert_eq!(with_lock_key(&["own"], Some(&lock_key(7))), (not_sole("/a"), false));
        assert_eq!(with_lock_key(&["own"], Some(&lock_key(0))), (not_sole("/a"), true));
        let behind = |lease| with_lock_key(&["own", "x"], Some(&lock_key(lease)));
        assert_eq!(behind(7), (not_sole("/locks/a/x"), false));
        assert_eq!(
            behind(0),
            (not_sole("/a"), true),
            "waiters behind are told too, and when the key is deleted"
        );
        assert_eq!(with_lock_key(&["own", "x"], None).0, not_sole("/locks/a/x"), "the lock key is no grant");
        let two_of_three = Mode::Permits { count: 2, limit: 3 };
        let id = "ab".repeat(16);
        let permit = |count: u32| format!("~p00000003.{count:08x}.{id}");
        assert!(read(two_of_three, &[&permit(1), "own"]).blocker.is_none());
        let position = read(two_of_three, &[&permit(1), &permit(1), &permit(1), "own"]);
        assert!(position.blocker.is_some());
        assert_eq!(position.ahead, Some(0), "all three hold");
        assert_eq!(position.with_foreign(foreign()).blocker, Some(Blocker::Unknown));
    }
}
