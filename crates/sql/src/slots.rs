//! The connection slots that a server has left, and whether a waiting client may keep one of them. Pure.
//!
//! An idle waiter needs no connection. While the server has plenty of slots it keeps one, on which it is notified of
//! its grant at once. When slots become few, it closes the connection and polls from time to time: slots must stay
//! free for others at any time, above all for clients that hold a lock and renew it, and for the programs that the
//! database belongs to.

use std::time::Duration;

use leasehold_core::lock_state::WATCHERS;

/// A client far back in the queue closes its connection when less than 1/4 of all slots is free.
const FAR_SHARE: u32 = 4;
/// A client near the head of the queue, of which there are few per name, closes it when less than 1/8 is free.
const NEAR_SHARE: u32 = 8;
/// A further 1/8 of all slots must be free before a client keeps a connection again. Otherwise polling clients would
/// take and free the last slot in turns.
const MARGIN_SHARE: u32 = 8;

/// The poll interval of a sleeping client, per claim ahead of it: a grant that comes sooner waits for the poll.
const PAUSE_PER_CLAIM: Duration = Duration::from_millis(500);
/// The shortest interval: each poll is a new connection, which costs the server milliseconds.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The longest interval, and so the longest wait of an early grant.
const MAX_PAUSE: Duration = Duration::from_secs(20);
/// How long a poll may take, including the confirmation of a grant that it found.
const POLL_TIME: Duration = Duration::from_secs(2);

/// How many connections a user may have and how many of them are in use, for each limit of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots([Limit; 3]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// One limit of the server on its connections.
struct Limit {
    /// How many connections are in use.
    used: u32,
    /// How many are allowed.
    most: u32,
}

impl Slots {
    /// For each limit: its use, and its size. A negative size means that there is no limit.
    #[cfg(any(test, feature = "postgres", feature = "mysql"))]
    pub(crate) fn new(limits: [(i64, i64); 3]) -> Self {
        let whole = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
        Self(limits.map(|(used, most)| match most {
            ..0 => Limit { used: 0, most: u32::MAX },
            most => Limit { used: whole(used), most: whole(most) },
        }))
    }

    /// Whether a waiting client with `ahead` claims ahead of it may keep its connection, which counts as used; for a
    /// client that is `asleep`: whether it may connect again.
    pub(crate) fn lets_stay(self, ahead: u32, asleep: bool) -> bool {
        let part = if is_near(ahead) { NEAR_SHARE } else { FAR_SHARE };
        self.0.iter().all(|limit| limit.leaves(part) && (!asleep || limit.leaves_margin(part)))
    }
}

impl Limit {
    /// Whether one `part`-th of all slots is free.
    fn leaves(self, part: u32) -> bool {
        self.most.saturating_sub(self.used) >= self.part(part)
    }

    /// Whether one `part`-th of all slots is free, and the margin.
    fn leaves_margin(self, part: u32) -> bool {
        self.most.saturating_sub(self.used) >= self.part(part).saturating_add(self.part(MARGIN_SHARE))
    }

    /// One `part`-th of all slots: at least one slot, however few there are.
    fn part(self, part: u32) -> u32 {
        (self.most / part).max(1)
    }
}

const fn is_near(ahead: u32) -> bool {
    (ahead as usize) < WATCHERS
}

/// The longest sleep without a connection for a client with `ahead` claims ahead of it.
pub(crate) fn pause(ahead: u32) -> Duration {
    PAUSE_PER_CLAIM.saturating_mul(ahead.saturating_add(1)).clamp(MIN_PAUSE, MAX_PAUSE)
}

/// How long a grant to such a sleeping client lasts until it is confirmed. The number of claims ahead of a claim only
/// decreases, so the next pause is no longer than one computed now.
pub(crate) fn sleeper_claim_time(ahead: u32) -> Duration {
    pause(ahead) + POLL_TIME
}

/// A time between half of the pause and all of it: clients that went to sleep together do not wake up together.
pub(crate) fn jittered(pause: Duration, jitter: u32) -> Duration {
    pause / 2 + (pause / 2).mul_f64(f64::from(jitter) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u32 = 0;
    const LATER: u32 = WATCHERS as u32;

    fn most(limit: i64, ahead: u32, asleep: bool) -> i64 {
        let lets = |used: &i64| Slots::new([(*used, limit), (0, -1), (7, -1)]).lets_stay(ahead, asleep);
        (0..=limit).rev().find(lets).unwrap_or(-1)
    }

    #[test]
    fn waiters_leave_slots_free_and_near_waiters_fewer() {
        for (limit, far, near) in
            [(97, 73, 85), (200, 150, 175), (9, 7, 8), (4, 3, 3), (2, 1, 1), (1, 0, 0), (0, -1, -1)]
        {
            assert_eq!(most(limit, LATER, false), far, "{limit}");
            assert_eq!(most(limit, FIRST, false), near, "{limit}");
        }
    }

    #[test]
    fn a_sleeping_client_reconnects_only_with_a_margin() {
        for (limit, far, near) in [(97, 61, 73), (200, 125, 150), (9, 6, 7), (4, 2, 2)] {
            assert_eq!(most(limit, LATER, true), far, "{limit}");
            assert_eq!(most(limit, FIRST, true), near, "{limit}");
        }
    }

    #[test]
    fn each_limit_counts() {
        let stays = |limits| Slots::new(limits).lets_stay(LATER, false);
        assert!(stays([(73, 97), (7, 9), (3, -1)]));
        assert!(!stays([(74, 97), (7, 9), (3, -1)]));
        assert!(!stays([(73, 97), (8, 9), (3, -1)]));
        assert!(!stays([(73, 97), (7, 9), (10, 4)]));
        assert!(stays([(-1, i64::MAX), (0, -1), (0, i64::MIN)]));
    }

    #[test]
    fn the_pause_grows_with_the_claims_ahead_and_grants_outlive_it() {
        let seconds = [0, 1, 2, 9, 39, 40, u32::MAX].map(|ahead| pause(ahead).as_millis());
        assert_eq!(seconds, [1000, 1000, 1500, 5000, 20_000, 20_000, 20_000]);
        for ahead in 0..100 {
            assert!(sleeper_claim_time(ahead) >= pause(ahead) + POLL_TIME);
            assert!(jittered(pause(ahead), u32::MAX) <= pause(ahead));
            assert!(jittered(pause(ahead), 0) * 2 >= pause(ahead));
        }
    }
}
