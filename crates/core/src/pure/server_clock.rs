//! The server's clock, as far as the times in its answers reveal it: a pure state machine.

use std::time::Duration;

use crate::Instant;

/// How far the server's clock may get ahead, beyond running 1 % faster than ours, before this counts as a step: the
/// least margin that leases keep.
const MARGIN: Duration = Duration::from_millis(2);

/// No notification is in flight for longer: a connection without traffic is given up much earlier.
const LONGEST_IN_FLIGHT: Duration = Duration::from_secs(60);

/// One answer of the server: its clock read `server` after the local clock read `ours` (when the request was sent) and
/// before the local clock read `received`.
#[derive(Clone, Copy, Debug)]
struct Evidence {
    ours: Instant,
    received: Instant,
    server: Duration,
}

/// The server's clock was set back: it reads all times below `below` twice. Until `until`, notifications from the
/// first pass may still arrive.
#[derive(Clone, Copy, Debug)]
struct RepeatedTimes {
    below: Duration,
    until: Instant,
}

/// What is known about a server's clock. Its times may count from any point, as long as that point stays the same.
#[derive(Debug, Default)]
pub struct ServerClock {
    /// The newest answer, by which grants are dated. An older one would date them too early to be useful, and would not
    /// include later steps of the clock.
    newest: Option<Evidence>,
    /// Used to detect steps: the evidence with the lowest upper bound for the server's clock. All bounds grow at the
    /// same rate, so the lowest one stays the lowest: evidence that was dropped cannot detect a step that this one
    /// misses. Slow answers give higher bounds, and change nothing.
    tightest: Option<Evidence>,
    /// The times that the server's clock reads twice, if it was set back.
    repeated: Option<RepeatedTimes>,
}

impl ServerClock {
    /// Adds an answer: the server's clock read `server`, the request was sent at `sent` and the answer arrived at
    /// `now`. R3: if more time passed there than can have passed here, leases may have ended early; returns by how much
    /// at least.
    ///
    /// The evidence then restarts from this answer, because no hold is valid by an older answer any more. A clock that
    /// was set back gives a lower bound, so the evidence restarts without further code.
    pub fn learn(&mut self, sent: Instant, now: Instant, server: Duration) -> Option<Duration> {
        let new = Evidence { ours: sent, received: now, server };
        self.repeated.take_if(|repeated| now >= repeated.until);
        if let Some(old) = self.newest.replace(new) {
            let least = old.server + sent.since(old.received) * 99 / 100;
            if server + MARGIN < least {
                let repeated_below = old.upper_bound(now) + MARGIN;
                let repeated_below =
                    self.repeated.map_or(repeated_below, |repeated| repeated.below.max(repeated_below));
                self.repeated =
                    Some(RepeatedTimes { below: repeated_below, until: now.after(LONGEST_IN_FLIGHT) });
            }
        }
        let tightest = self.tightest.get_or_insert(new);
        // Answers may arrive out of order.
        let now = now.max(tightest.ours);
        let upper_bound = tightest.upper_bound(now);
        let ahead = server.saturating_sub(upper_bound);
        let stepped = ahead > MARGIN;
        if stepped || new.upper_bound(now) < upper_bound {
            *tightest = new;
        }
        stepped.then_some(ahead)
    }

    /// A local time certainly not after the moment at which the server's clock read `server`; `None` before the first
    /// answer, and where the server's clock may have read that time twice.
    ///
    /// Our clock read `ours` before the server's clock read `server`. If the server's clock reads a later time at a
    /// grant, then the grant is later than `ours`; if it reads an earlier time, then the grant is earlier by no more
    /// than the difference. If the server's clock was set forward in between, the result is no later.
    #[must_use]
    pub fn not_after(&self, server: Duration) -> Option<Instant> {
        let evidence = self.newest?;
        if self.repeated.is_some_and(|repeated| server < repeated.below) {
            return None;
        }
        Some(evidence.ours.before(evidence.server.saturating_sub(server)))
    }
}

impl Evidence {
    /// The latest time that the server's clock can read at `now`, unless it was set forward.
    fn upper_bound(self, now: Instant) -> Duration {
        let elapsed = now.since(self.ours);
        self.server + elapsed + elapsed / 100
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Learns a time in milliseconds; returns whether the clock was found to be set forward.
    fn stepped(clock: &mut ServerClock, sent: u64, now: u64, server: u64) -> bool {
        clock.learn(at(sent), at(now), Duration::from_millis(server)).is_some()
    }

    #[test]
    fn only_a_clock_set_forward_is_detected() {
        let mut clock = ServerClock::default();
        let mut stepped = |sent, now, server| stepped(&mut clock, sent, now, server);
        assert!(!stepped(1000, 1001, 50_000), "the first says nothing");
        assert!(!stepped(2000, 2001, 51_000));
        assert!(!stepped(3000, 3900, 52_900), "a slow answer");
        assert!(!stepped(4000, 4001, 53_010), "within the margin of what passed here");
        assert!(stepped(5000, 5001, 54_100));
        assert!(!stepped(6000, 6001, 20_000), "set back");
        assert!(!stepped(7000, 7001, 21_000));
        assert!(stepped(8000, 8001, 23_000), "found from where it was set back to");
        assert!(!stepped(9000, 9001, 24_000), "found once");
    }

    #[test]
    fn a_step_hidden_by_slow_answers_is_detected_by_the_first_quick_one() {
        let mut clock = ServerClock::default();
        assert!(!stepped(&mut clock, 1000, 1001, 50_000));
        // The clock is set forward by half a second; the next answers reveal it, but take longer than that.
        for slow in [2000, 3000, 4000] {
            assert!(!stepped(&mut clock, slow, slow + 600, slow + 49_500));
        }
        assert_eq!(
            clock.learn(at(5000), at(5001), Duration::from_micros(54_500_000)),
            Some(Duration::from_micros(458_990))
        );
    }

    #[test]
    fn an_answer_out_of_order_changes_nothing() {
        let mut clock = ServerClock::default();
        assert!(!stepped(&mut clock, 1000, 1001, 50_000));
        assert!(!stepped(&mut clock, 800, 810, 49_805));
        assert!(stepped(&mut clock, 1100, 1101, 50_110), "by 10 ms, which that would have hidden");
    }

    #[test]
    fn grants_are_dated_by_the_newest_evidence() {
        let mut clock = ServerClock::default();
        assert_eq!(clock.not_after(Duration::from_micros(1)), None);
        clock.learn(at(100), at(101), Duration::from_micros(50_000_000));
        clock.learn(at(5000), at(5600), Duration::from_micros(55_500_000));
        assert_eq!(clock.not_after(Duration::from_micros(55_500_001)), Some(at(5000)));
        assert_eq!(clock.not_after(Duration::from_micros(55_000_000)), Some(at(4500)));
    }

    const fn server_time(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_time_that_a_clock_reads_twice_dates_nothing() {
        let mut clock = ServerClock::default();
        clock.learn(at(1000), at(1001), server_time(100_000));
        // A grant is pushed at 101 s and arrives late. The clock is set back by 3 s.
        clock.learn(at(3000), at(3001), server_time(99_000));
        assert_eq!(clock.not_after(server_time(101_000)), None, "two seconds ago, or not yet");
        assert_eq!(clock.not_after(server_time(102_100)), Some(at(3000)), "it never was so late before");
        clock.learn(at(7000), at(7001), server_time(103_000));
        assert_eq!(clock.not_after(server_time(101_000)), None, "which of both times?");
        assert_eq!(clock.not_after(server_time(102_900)), Some(at(6900)));
    }

    #[test]
    fn after_a_large_step_back_dating_resumes_after_the_latest_notification() {
        let mut clock = ServerClock::default();
        clock.learn(at(1000), at(1001), server_time(900_000));
        clock.learn(at(2000), at(2001), server_time(100_000));
        clock.learn(at(30_000), at(30_001), server_time(128_000));
        assert_eq!(clock.not_after(server_time(128_100)), None);
        clock.learn(at(62_002), at(62_003), server_time(160_002));
        assert_eq!(clock.not_after(server_time(160_100)), Some(at(62_002)));
    }

    #[test]
    fn concurrent_answers_are_not_a_step_back() {
        let mut clock = ServerClock::default();
        // Two requests leave together; the second is answered after the first.
        clock.learn(at(1000), at(1050), server_time(50_000));
        clock.learn(at(1000), at(1051), server_time(50_001));
        clock.learn(at(9000), at(9100), server_time(57_930));
        assert_eq!(clock.not_after(server_time(50_500)), Some(at(9000 - 7430)));
    }

    /// The events before the next answer, in milliseconds: a pause, a step of the server's clock, the way there, the
    /// way back.
    fn answers(step: impl Strategy<Value = i64>) -> impl Strategy<Value = Vec<(u64, i64, u64, u64)>> {
        let way = || prop_oneof![Just(0), 0..5u64, 0..2000u64];
        prop::collection::vec((0..3000u64, step, way(), way()), 1..40)
    }

    /// The answers of a server clock that is faster by 1 %, equally fast, or slower: when sent, when received, and the
    /// server's microseconds.
    fn answer_times(answers: &[(u64, i64, u64, u64)], percent: u64) -> Vec<(u64, u64, u64)> {
        let (mut ours, mut server) = (1_000, 1_000_000_000);
        let answer_times = answers.iter().map(|&(pause, step, there, back)| {
            let sent = ours + pause;
            server = (server + (pause + there) * percent * 10).saturating_add_signed(step * 1000);
            let server_time = (sent, sent + there + back, server);
            (ours, server) = (server_time.1, server + back * percent * 10);
            server_time
        });
        answer_times.collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn delays_and_steps_back_are_not_steps_forward(
            answers in answers(prop_oneof![3 => Just(0), 1 => -5000..0i64]), percent in 95..=101u64,
        ) {
            let mut clock = ServerClock::default();
            for (sent, now, server) in answer_times(&answers, percent) {
                prop_assert_eq!(clock.learn(at(sent), at(now), Duration::from_micros(server)), None);
            }
        }

        #[test]
        fn a_step_is_detected_as_soon_as_two_answers_prove_it(
            answers in answers(prop_oneof![3 => Just(0), 1 => -3000..3000i64]), percent in 99..=103u64,
        ) {
            let mut clock = ServerClock::default();
            let mut since_found: Vec<(u64, u64)> = Vec::new();
            for (sent, now, server) in answer_times(&answers, percent) {
                let proves = |&(before, server_time): &(u64, u64)| server > server_time + (now - before) * 1010 + 2000;
                let proven = since_found.iter().any(proves);
                prop_assert_eq!(clock.learn(at(sent), at(now), Duration::from_micros(server)).is_some(), proven);
                if proven {
                    since_found.clear();
                }
                since_found.push((sent, server));
            }
        }
    }
}
