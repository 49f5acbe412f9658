//! The leases of memos. A memo is on a lease that nobody keeps alive, so the server deletes it at the end of that
//! lease.
//!
//! Memos that end at about the same time share a lease: a lease lasts longer than the first of its memos is kept, and
//! takes further memos until it could end before one of them. So most writes of a process need no lease of their own.
//!
//! A lease that lasts longer than [`LONGEST_SHARED_LEASE`] has only the memo of one hold. Every reader of the memo
//! knows this from its record, and nobody can write on the lease after the hold has ended. So the client that replaces
//! the memo, of whatever process it is, revokes the lease, and no empty lease stays for months.

use std::{sync::Mutex, time::Duration};

use leasehold_core::{ClaimId, Instant};

use crate::{engine::REQUEST_LIFE, lock_mutex, session::MAX_KEYS};

/// The server counts the remaining time of a lease in whole seconds.
const TICK: Duration = Duration::from_secs(1);
/// How long after its end the server may delete a lease: it looks for ended leases twice a second.
pub(crate) const LATENESS: Duration = Duration::from_secs(5);
/// An engine may keep a memo this much longer than asked for, or a tenth of the time asked for.
pub(crate) const ALLOWED: Duration = Duration::from_secs(60);
/// For how long a lease takes memos that are kept as long as its first one: a twentieth of that time, within these
/// bounds.
const SHARED_FRACTION: u32 = 20;
const SHORTEST_SHARED: Duration = Duration::from_secs(5);
const LONGEST_SHARED: Duration = Duration::from_secs(600);
/// The rates of the server's clock and of this machine's differ by at most a hundredth.
const DRIFT: u32 = 100;
/// The longest lease for memos of several holds. A lease whose memos have all been replaced stays for this long at
/// most. The result of work that is done one time is rarely kept longer, and never replaced before its end.
pub(crate) const LONGEST_SHARED_LEASE: Duration = Duration::from_secs(8 * 24 * 3600);
/// The most shared leases that are remembered. The oldest of more are forgotten, and end by themselves.
const MAX_SHARED: usize = 64;
/// The most leases of single holds that are remembered. The next memo of a hold whose lease was forgotten is on a new
/// lease, and its client revokes the forgotten one.
const MAX_OF_HOLDS: usize = 1024;

/// The leases that this client has made for memos.
#[derive(Default)]
pub(crate) struct MemoLeases {
    leases: Mutex<Vec<MemoLease>>,
    /// Locked while a task makes a lease, so that other tasks wait and use it.
    pub(crate) creation: tokio::sync::Mutex<()>,
}

pub(crate) struct MemoLease {
    pub(crate) id: i64,
    /// When it was asked for: it was made no earlier.
    pub(crate) asked_at: Instant,
    /// When the answer came: it was made no later.
    pub(crate) answered_at: Instant,
    pub(crate) ttl: Duration,
    /// The hold whose memo may be on it; `None`: it is shared.
    pub(crate) hold: Option<ClaimId>,
    /// How many memos were written on it, or may have been.
    pub(crate) memos: usize,
}

/// The lease for one memo.
#[derive(Debug)]
pub(crate) struct LeaseOfMemo {
    pub(crate) id: i64,
    /// How long the memo lasts at most, from now on, unless the leader of the cluster changes.
    pub(crate) life: Duration,
}

impl LeaseOfMemo {
    /// The id of the lease if only the memo of one hold is on it.
    pub(crate) fn of_one_hold(&self) -> Option<i64> {
        of_one_hold(self.id, self.life)
    }
}

/// The id of a lease if only the memo of one hold is on it, by the life that the record of that memo states.
pub(crate) fn of_one_hold(id: i64, life: Duration) -> Option<i64> {
    (life > LONGEST_SHARED_LEASE + LATENESS).then_some(id)
}

impl MemoLease {
    /// Whether a memo of this claim that is sent now, and is to be kept for `keep`, may be on this lease. The lease
    /// must not end too early, also if the server applies the request late, and not too late.
    fn fits(&self, now: Instant, keep: Duration, id: ClaimId) -> bool {
        let age = now.since(self.asked_at);
        let remaining = self.ttl.saturating_sub(age + age / DRIFT);
        self.hold.is_none_or(|hold| hold == id)
            && self.memos < MAX_KEYS
            && remaining >= needed(keep)
            && self.life(now) <= longest(keep)
    }

    /// The longest remaining time of the lease.
    fn life(&self, now: Instant) -> Duration {
        self.ttl.saturating_sub(now.since(self.answered_at)) + LATENESS
    }

    fn has_ended(&self, now: Instant) -> bool {
        now.since(self.asked_at) > self.ttl
    }
}

/// The shortest remaining time of a lease on which a memo may be written: the server may apply the request late, and
/// the last second of a lease does not count.
fn needed(keep: Duration) -> Duration {
    keep + REQUEST_LIFE + TICK
}

/// The longest time for which a memo may last that is kept for `keep`.
pub(crate) fn longest(keep: Duration) -> Duration {
    keep + ALLOWED.max(keep / 10)
}

/// The time of a new lease for a memo that is kept for `keep`, and for later ones.
pub(crate) fn new_lease(keep: Duration) -> Duration {
    needed(keep) + (keep / SHARED_FRACTION).clamp(SHORTEST_SHARED, LONGEST_SHARED)
}

impl MemoLeases {
    /// Takes the place for one memo of this claim on a lease that fits.
    pub(crate) fn take(&self, now: Instant, keep: Duration, id: ClaimId) -> Option<LeaseOfMemo> {
        let mut leases = lock_mutex(&self.leases);
        leases.retain(|lease| !lease.has_ended(now));
        let lease = leases.iter_mut().find(|lease| lease.fits(now, keep, id))?;
        lease.memos += 1;
        Some(LeaseOfMemo { id: lease.id, life: lease.life(now) })
    }

    pub(crate) fn add(&self, lease: MemoLease) {
        let mut leases = lock_mutex(&self.leases);
        let limit = if lease.hold.is_some() { MAX_OF_HOLDS } else { MAX_SHARED };
        let is_of_kind = |other: &&MemoLease| other.hold.is_some() == lease.hold.is_some();
        if leases.iter().filter(is_of_kind).count() >= limit
            && let Some(oldest) = leases.iter().position(|other| is_of_kind(&other))
        {
            leases.remove(oldest);
        }
        leases.push(lease);
    }

    /// Gives a place back: its memo was certainly not written.
    pub(crate) fn give_back(&self, id: i64) {
        if let Some(lease) = lock_mutex(&self.leases).iter_mut().find(|lease| lease.id == id) {
            lease.memos = lease.memos.saturating_sub(1);
        }
    }

    /// Forgets the leases of this hold on which no memo can be, and returns them.
    pub(crate) fn take_unused(&self, hold: ClaimId) -> Vec<i64> {
        let is_unused = |lease: &mut MemoLease| lease.hold == Some(hold) && lease.memos == 0;
        lock_mutex(&self.leases).extract_if(.., is_unused).map(|lease| lease.id).collect()
    }

    /// Forgets a lease that the server does not have, or that is revoked.
    pub(crate) fn forget(&self, id: i64) {
        lock_mutex(&self.leases).retain(|lease| lease.id != id);
    }

    /// Forgets all: the server was restored from other data.
    pub(crate) fn clear(&self) {
        lock_mutex(&self.leases).clear();
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{MAX_MEMO_KEEP, MIN_MEMO_KEEP};

    use super::*;
    use crate::session::whole_seconds;

    const SECOND: Duration = Duration::from_secs(1);
    const START: Instant = Instant::from_nanos(0);
    const HOLD: ClaimId = ClaimId([1; 16]);
    const OTHER: ClaimId = ClaimId([2; 16]);

    /// A new lease for memos of this time, whose answer came a second after the request.
    fn lease(keep: Duration) -> MemoLease {
        let ttl = Duration::from_secs(whole_seconds(new_lease(keep)));
        let hold = (ttl > LONGEST_SHARED_LEASE).then_some(HOLD);
        MemoLease { id: 7, asked_at: START, answered_at: START.after(SECOND), ttl, hold, memos: 0 }
    }

    const TIMES: [Duration; 7] = [
        MIN_MEMO_KEEP,
        SECOND,
        Duration::from_secs(60),
        Duration::from_secs(601),
        Duration::from_secs(3600),
        Duration::from_secs(24 * 3600),
        MAX_MEMO_KEEP,
    ];

    #[test]
    fn a_memo_never_ends_early_and_not_much_too_late() {
        for keep in TIMES {
            let lease = lease(keep);
            assert!(lease.fits(START.after(SECOND), keep, HOLD), "{keep:?}: a new lease is used");
            let last_fit = (1..100_000)
                .map(|second| SECOND * second)
                .take_while(|age| lease.fits(START.after(*age), keep, HOLD));
            let last_fit = last_fit.last().unwrap();
            // The request is applied as late as possible, and the server's clock is fast.
            let applied_at = last_fit + REQUEST_LIFE;
            assert!(lease.ttl >= applied_at + last_fit / DRIFT + keep + TICK, "{keep:?}: {last_fit:?}");
            let longest = keep + ALLOWED.max(keep / 10);
            let life = lease.life(START.after(SECOND));
            assert!(life <= longest, "{keep:?} became {life:?}");
            assert!(last_fit >= Duration::from_secs(4), "{keep:?}: it is shared until {last_fit:?}");
        }
    }

    #[test]
    fn memos_share_a_lease_until_it_is_full_and_only_if_they_end_at_about_the_same_time() {
        let leases = MemoLeases::default();
        let hour = Duration::from_secs(3600);
        leases.add(lease(hour));
        let at = |seconds| START.after(SECOND * seconds);
        let take = |seconds, keep| leases.take(at(seconds), keep, HOLD).map(|lease| lease.id);
        assert_eq!(take(1, hour), Some(7));
        assert_eq!(take(1, hour + SECOND * 10), Some(7), "about the same time");
        assert_eq!((take(1, hour / 2), take(1, hour * 2)), (None, None));
        assert_eq!((take(170, hour), take(190, hour)), (Some(7), None));
        while take(1, hour).is_some() {}
        assert_eq!(lock_mutex(&leases.leases)[0].memos, MAX_KEYS);
        leases.add(MemoLease { id: 8, ..lease(hour) });
        assert_eq!(take(1, hour), Some(8));
        leases.forget(8);
        assert_eq!(take(1, hour), None);
        assert_eq!(take(4000, hour), None);
        assert!(lock_mutex(&leases.leases).is_empty(), "it has ended");
    }

    /// A reader must never take a shared lease for one of a single hold: it would revoke the memos of others.
    #[test]
    fn a_lease_is_shared_exactly_if_readers_take_it_for_shared() {
        let day = Duration::from_secs(24 * 3600);
        let (mut shared, mut of_one_hold) = (0, 0);
        for keep in TIMES.into_iter().chain((0..2000).map(|minutes| day * 7 + SECOND * 60 * minutes)) {
            let leases = MemoLeases::default();
            leases.add(lease(keep));
            let mine = leases.take(START.after(SECOND), keep, HOLD).unwrap();
            let is_shared = leases.take(START.after(SECOND), keep, OTHER).is_some();
            if is_shared {
                assert_eq!(mine.of_one_hold(), None, "{keep:?}");
                shared += 1;
            } else {
                of_one_hold += usize::from(mine.of_one_hold() == Some(7));
            }
        }
        assert!(shared > 1000 && of_one_hold > 500, "{shared} and {of_one_hold}");
    }

    #[test]
    fn a_lease_of_one_hold_is_unused_only_if_each_of_its_writes_certainly_failed() {
        let leases = MemoLeases::default();
        leases.add(lease(MAX_MEMO_KEEP));
        let take = || leases.take(START.after(SECOND), MAX_MEMO_KEEP, HOLD).unwrap().id;
        let places = [take(), take()];
        leases.give_back(places[0]);
        assert_eq!(leases.take_unused(HOLD), [0; 0], "the other write may have been applied");
        leases.give_back(places[1]);
        assert_eq!(leases.take_unused(OTHER), [0; 0]);
        assert_eq!(leases.take_unused(HOLD), [7]);
        assert!(leases.take(START.after(SECOND), MAX_MEMO_KEEP, HOLD).is_none());
        leases.add(lease(SECOND));
        assert_eq!(leases.take_unused(HOLD), [0; 0], "other holds use it too");
    }

    #[test]
    fn each_kind_of_lease_has_a_limit_of_its_own() {
        let leases = MemoLeases::default();
        for number in 0..=MAX_OF_HOLDS as i64 {
            leases.add(MemoLease { id: number, ..lease(MAX_MEMO_KEEP) });
        }
        for id in 0..=MAX_SHARED as i64 {
            leases.add(MemoLease { id: -1 - id, ..lease(SECOND) });
        }
        let leases = lock_mutex(&leases.leases);
        assert_eq!(leases.iter().filter(|lease| lease.hold.is_some()).count(), MAX_OF_HOLDS);
        assert_eq!(leases.iter().filter(|lease| lease.hold.is_none()).count(), MAX_SHARED);
        assert!(leases.iter().all(|lease| lease.id != 0 && lease.id != -1), "the oldest were forgotten");
    }
}
