//! Where a claim stands in its line, as the server told it, and what this client writes down of it.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Hint, Mode, WATCHED_AFTER};

use crate::{
    claims::{Blocker, State, fits},
    client::Client,
    conn::Conn,
    keys::Dir,
    watches::{Begin, Target},
    wire::{KeyValue, Order, Range, RangeResponse},
};

/// What comes before a claim.
pub(crate) struct QueuePosition {
    /// `None`: nothing that it has to wait for.
    pub(crate) before: Option<Blocker>,
    /// How many stand in line before it, those that hold left out, as far as is known.
    pub(crate) ahead: Option<u32>,
}

impl QueuePosition {
    /// By what [`what_blocks`] found; with its own key, created at `own`, if the claim was just made.
    pub(crate) fn read(dir: &Dir, mode: Mode, found: &RangeResponse, own: Option<i64>) -> Self {
        let others = found.kvs.iter().filter(|kv| own != Some(kv.create_revision));
        match mode {
            Mode::Permits { count: wanted, limit } => {
                let before: Vec<(Vec<u8>, u32)> = others
                    .map(|kv| match dir.mode(&kv.key) {
                        Mode::Permits { count, .. } => (kv.key.clone(), count),
                        _ => (kv.key.clone(), limit),
                    })
                    .collect();
                let most = limit - wanted;
                if fits(&before, most) {
                    return Self { before: None, ahead: None };
                }
                let mut taken = 0_u64;
                let holds = |(_, count): &&(Vec<u8>, u32)| {
                    taken += u64::from(*count);
                    taken <= u64::from(limit)
                };
                let holders = before.iter().take_while(holds).count();
                let ahead = u32::try_from(before.len() - holders).ok();
                Self { before: Some(Blocker::Permits { before, most }), ahead }
            }
            _ => {
                let keys: Vec<&[u8]> = others.map(|kv| &*kv.key).collect();
                let Some(last) = keys.first() else { return Self { before: None, ahead: None } };
                // The server counts without regard to the age of keys, so its count is of use only to who is the newest.
                let bare_key = i64::from(mode == Mode::Exclusive);
                let ahead = own.and_then(|_| u32::try_from(found.count.saturating_sub(bare_key + 1)).ok());
                let sole = keys.len() == 1 && !found.more;
                Self { before: Some(Blocker::Last { key: last.to_vec(), sole }), ahead }
            }
        }
    }
}

impl QueuePosition {
    /// The same beside a client without a line that holds by this key: whoever is next in line has to ask whether it is still there.
    pub(crate) fn with_foreign(self, foreign: Option<KeyValue>) -> Self {
        let Some(foreign) = foreign else { return self };
        let before = match self.before {
            None => Blocker::Last { key: foreign.key, sole: false },
            Some(Blocker::Last { key, .. }) => Blocker::Last { key, sole: false },
            Some(Blocker::Permits { .. } | Blocker::Unknown) => Blocker::Unknown,
        };
        Self { before: Some(before), ahead: self.ahead }
    }
}

/// Reads what a claim has to wait for: the newest of it, and whether there is more; for permits all of it.
pub(crate) fn blockers_range(dir: &Dir, mode: Mode) -> Range {
    let range = Range::between(&dir.blockers(mode)).keys_only();
    match mode {
        Mode::Permits { .. } => range.by_age(Order::Ascend),
        // Of a claim that was just made, its own and the one before it.
        Mode::Exclusive => range.by_age(Order::Descend).limit(2),
        Mode::Shared => range.by_age(Order::Descend).limit(1),
    }
}

/// What an answer of the server says of a claim.
pub(crate) struct ClaimReply {
    /// At which its key was created.
    pub(crate) revision: i64,
    /// At which the line was seen.
    pub(crate) seen: i64,
    /// For how long it may be believed to hold, counted from before the request left.
    pub(crate) ttl: Duration,
    pub(crate) position: QueuePosition,
}

impl Client {
    /// Writes down where the claim stands, and answers it. What was heard or done while the answer was under way counts more.
    pub(crate) fn record_position(&self, claim: &Claim, dir: &Dir, conn: &Conn, reply: ClaimReply) -> Answer {
        let ClaimReply { revision, seen, ttl, position: QueuePosition { before, ahead } } = reply;
        let now = self.now();
        let mut claims = self.claims();
        if let Some(closed) = claims.closed(claim.id) {
            return closed;
        }
        let Some(entry) = claims.get(claim.id) else { return Answer::Gone };
        let holds = matches!(entry.state, State::Held { .. });
        if let Some(before) = before.filter(|_| !holds) {
            let key = entry.data.key.clone();
            entry.waits(revision, before.clone(), now);
            drop(claims);
            watch(claim, dir, conn, seen, (key, &before));
            return Answer::Waiting(Hint { ahead, ..Hint::default() });
        }
        claims.hold(claim.id, revision, true, (now, now.after(ttl)));
        // The server may have ended the watch of a hold that is asked for.
        claims.watch_at(claim.id, now.after(WATCHED_AFTER));
        drop(claims);
        // Its own key is watched as long as it holds.
        conn.watches.leave(Target::Blocker(claim.id));
        self.sooner.notify_one();
        Self::held(conn, revision, ttl)
    }
}

/// Watches the claim's own key and what it waits for, from where they were seen.
fn watch(claim: &Claim, dir: &Dir, conn: &Conn, seen: i64, (own, before): (Vec<u8>, &Blocker)) {
    let (span, begin, own_begin) = match before {
        // Who looks because the second of both watches missed something sees what the first one missed.
        Blocker::Last { key, .. } => {
            ((key.clone(), Vec::new()), Begin::Now { seen }, Begin::Now { seen: i64::MAX })
        }
        // All that happens to it has to be counted.
        Blocker::Permits { .. } | Blocker::Unknown => (dir.all(), Begin::After(seen), Begin::After(seen)),
    };
    conn.watches.watch(Target::Own(claim.id), (own, Vec::new()), own_begin);
    conn.watches.watch(Target::Blocker(claim.id), span, begin);
}

#[cfg(test)]
mod tests {
    use leasehold_core::Name;

    use super::*;
    use crate::wire::KeyValue;

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
        assert!(read(Mode::Exclusive, &["own"]).before.is_none());
        let sole =
            |key: &str, sole| Some(Blocker::Last { key: format!("/locks/a/{key}").into_bytes(), sole });
        assert_eq!(read(Mode::Exclusive, &["own", "x"]).before, sole("x", true));
        assert_eq!(read(Mode::Shared, &["x"]).before, sole("x", true));
        let more = RangeResponse { more: true, ..range(&["own", "x"]) };
        let read_more = QueuePosition::read(&dir, Mode::Exclusive, &more, Some(1));
        assert_eq!(read_more.before, sole("x", false));
        let asked = QueuePosition::read(&dir, Mode::Exclusive, &range(&["x", "y"]), None);
        assert_eq!((asked.before, asked.ahead), (sole("x", false), None));
        let foreign = || Some(KeyValue { key: b"/locks/a".to_vec(), ..KeyValue::default() });
        let waits = |key: &str| Some(Blocker::Last { key: key.as_bytes().to_vec(), sole: false });
        let with_foreign = |keys: &[&str]| read(Mode::Exclusive, keys).with_foreign(foreign()).before;
        assert_eq!(with_foreign(&["own"]), waits("/locks/a"));
        assert_eq!(with_foreign(&["own", "x"]), waits("/locks/a/x"), "and then it asks");
        assert!(read(Mode::Exclusive, &["own"]).with_foreign(None).before.is_none());
        let two_of_three = Mode::Permits { count: 2, limit: 3 };
        let id = "ab".repeat(16);
        let permit = |count: u32| format!("~p00000003.{count:08x}.{id}");
        assert!(read(two_of_three, &[&permit(1), "own"]).before.is_none());
        let waits = read(two_of_three, &[&permit(1), &permit(1), &permit(1), "own"]);
        assert!(waits.before.is_some());
        assert_eq!(waits.ahead, Some(0), "all three hold");
        assert_eq!(waits.with_foreign(foreign()).before, Some(Blocker::Unknown));
    }
}
