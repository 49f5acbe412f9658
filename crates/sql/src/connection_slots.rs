//! The connection slots of a database server: how many are free, and whether a waiting client may keep one. Pure.
//!
//! An idle waiter needs no connection. While the server has plenty of slots, the waiter keeps a connection, on which it
//! is notified of its grant without delay. When slots become few, the waiter closes its connection and polls from time
//! to time: slots must stay free for others at any time, above all for clients that hold a lock and renew it, and for
//! the application programs that use the same server.

use std::time::Duration;

use leasehold_core::lock_state::WATCHERS;

/// A client far back in the queue closes its connection when less than 1/4 of all slots is free.
const FAR_SHARE: u32 = 4;
/// A client near the head of the queue closes its connection when less than 1/8 of all slots is free. Clients far back
/// close their connections earlier, when less than 1/4 is free, because there are many more of them per name.
const NEAR_SHARE: u32 = 8;
/// A client that has closed its connection keeps one again only if, beyond its share (1/4 or 1/8), a further 1/8 of all
/// slots is free. Without this margin polling clients would take and free the last slot in turns.
const MARGIN_SHARE: u32 = 8;

/// By how much each claim ahead of a sleeping client lengthens its poll interval. A sleeping client has no connection,
/// and finds a grant only by its next poll.
const SLEEP_PER_CLAIM: Duration = Duration::from_millis(500);
/// The shortest interval: each poll is a new connection, which costs the server milliseconds.
const MIN_SLEEP: Duration = Duration::from_secs(1);
/// The longest interval, and so the longest time for which a grant waits for the next poll.
const MAX_SLEEP: Duration = Duration::from_secs(20);
/// How long a poll may take, including the confirmation of a grant that it found.
const POLL_TIME: Duration = Duration::from_secs(2);

/// For each limit of the server: how many connections it allows to the database user, and how many of them are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionSlots([Limit; 3]);

/// One limit of the server on its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    /// How many connections are in use.
    used: u32,
    /// How many are allowed.
    allowed: u32,
}

impl ConnectionSlots {
    /// For each limit: its use, and its size. A negative size means that there is no limit.
    #[cfg(any(test, feature = "postgres", feature = "mysql"))]
    pub(crate) fn new(limits: [(i64, i64); 3]) -> Self {
        let count = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
        Self(limits.map(|(used, allowed)| match allowed {
            ..0 => Limit { used: 0, allowed: u32::MAX },
            allowed => Limit { used: count(used), allowed: count(allowed) },
        }))
    }

    /// Of the limit with the smallest share of free slots: how many are free, and how many there are. `None` if there
    /// is no limit.
    #[cfg(any(test, feature = "postgres", feature = "mysql"))]
    pub(crate) fn scarcest(self) -> Option<(u32, u32)> {
        let limits = self.0.iter().filter(|limit| limit.allowed < u32::MAX);
        let per_mille = |limit: &&Limit| u64::from(limit.free()) * 1000 / u64::from(limit.allowed.max(1));
        limits.min_by_key(per_mille).map(|limit| (limit.free(), limit.allowed))
    }

    /// Whether a waiting client with `ahead` claims ahead of it is allowed to keep its connection, which counts as a
    /// used one. For a client that is `asleep`, which polls on short connections: whether it is allowed to keep a
    /// connection again.
    pub(crate) fn may_keep_connection(self, ahead: u32, asleep: bool) -> bool {
        let share = if is_near(ahead) { NEAR_SHARE } else { FAR_SHARE };
        self.0.iter().all(|limit| limit.has_free(share) && (!asleep || limit.has_free_with_margin(share)))
    }
}

impl Limit {
    /// Whether this share (1/`share`) of all slots is free.
    fn has_free(self, share: u32) -> bool {
        self.free() >= self.slots_in(share)
    }

    /// Whether this share of all slots and the margin are free.
    fn has_free_with_margin(self, share: u32) -> bool {
        self.free() >= self.slots_in(share).saturating_add(self.slots_in(MARGIN_SHARE))
    }

    /// How many slots are free.
    fn free(self) -> u32 {
        self.allowed.saturating_sub(self.used)
    }

    /// How many slots this share (1/`share`) of all is: at least one, however few there are.
    fn slots_in(self, share: u32) -> u32 {
        (self.allowed / share).max(1)
    }
}

/// Whether a claim with `ahead` claims ahead of it is near the head of the queue.
const fn is_near(ahead: u32) -> bool {
    (ahead as usize) < WATCHERS
}

/// The longest sleep without a connection for a client with `ahead` claims ahead of it.
pub(crate) fn sleep_interval(ahead: u32) -> Duration {
    SLEEP_PER_CLAIM.saturating_mul(ahead.saturating_add(1)).clamp(MIN_SLEEP, MAX_SLEEP)
}

/// How long a grant to a sleeping client with `ahead` claims ahead of it lasts without a confirmation: its longest
/// sleep and the time of a poll. The number of claims ahead of a claim only decreases, so the next sleep of the client
/// is no longer than the one computed now.
pub(crate) fn sleeper_claim_time(ahead: u32) -> Duration {
    sleep_interval(ahead) + POLL_TIME
}

/// A random time between half of `interval` and `interval`, so that clients that went to sleep together do not wake up
/// together.
pub(crate) fn jittered(interval: Duration, random_number: u32) -> Duration {
    interval / 2 + (interval / 2).mul_f64(f64::from(random_number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u32 = 0;
    const LATER: u32 = WATCHERS as u32;

    /// The largest number of used connections with which a waiting client keeps its connection; -1 if it never keeps
    /// its connection.
    fn max_used(limit: i64, ahead: u32, asleep: bool) -> i64 {
        let keeps = |used: &i64| {
            ConnectionSlots::new([(*used, limit), (0, -1), (7, -1)]).may_keep_connection(ahead, asleep)
        };
        (0..=limit).rev().find(keeps).unwrap_or(-1)
    }

    #[test]
    fn waiters_leave_slots_free_and_near_waiters_fewer() {
        for (limit, far, near) in
            [(97, 73, 85), (200, 150, 175), (9, 7, 8), (4, 3, 3), (2, 1, 1), (1, 0, 0), (0, -1, -1)]
        {
            assert_eq!(max_used(limit, LATER, false), far, "{limit}");
            assert_eq!(max_used(limit, FIRST, false), near, "{limit}");
        }
    }

    #[test]
    fn a_sleeping_client_reconnects_only_with_a_margin() {
        for (limit, far, near) in [(97, 61, 73), (200, 125, 150), (9, 6, 7), (4, 2, 2)] {
            assert_eq!(max_used(limit, LATER, true), far, "{limit}");
            assert_eq!(max_used(limit, FIRST, true), near, "{limit}");
        }
    }

    #[test]
    fn each_limit_counts() {
        let stays = |limits| ConnectionSlots::new(limits).may_keep_connection(LATER, false);
        assert!(stays([(73, 97), (7, 9), (3, -1)]));
        assert!(!stays([(74, 97), (7, 9), (3, -1)]));
        assert!(!stays([(73, 97), (8, 9), (3, -1)]));
        assert!(!stays([(73, 97), (7, 9), (10, 4)]));
        assert!(stays([(-1, i64::MAX), (0, -1), (0, i64::MIN)]));
    }

    #[test]
    fn the_pause_grows_with_the_claims_ahead_and_grants_outlive_it() {
        let seconds = [0, 1, 2, 9, 39, 40, u32::MAX].map(|ahead| sleep_interval(ahead).as_millis());
        assert_eq!(seconds, [1000, 1000, 1500, 5000, 20_000, 20_000, 20_000]);
        for ahead in 0..100 {
            assert!(sleeper_claim_time(ahead) >= sleep_interval(ahead) + POLL_TIME);
            assert!(jittered(sleep_interval(ahead), u32::MAX) <= sleep_interval(ahead));
            assert!(jittered(sleep_interval(ahead), 0) * 2 >= sleep_interval(ahead));
        }
    }
}
