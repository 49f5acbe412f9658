//! The server's clock, as far as the times in its answers reveal it: a pure state machine.

use std::time::Duration;

use crate::Instant;

/// How far the server's clock may get ahead, beyond running 1 % faster than the local clock, before this counts as a
/// step: the least margin that leases keep.
const STEP_MARGIN: Duration = Duration::from_millis(2);

/// No notification is in flight for longer: a connection without traffic is given up much earlier.
const LONGEST_IN_FLIGHT: Duration = Duration::from_secs(60);

/// One answer of the server. Between the sending of the request, when the local clock read `sent_at`, and the arrival
/// of the answer, when the local clock read `received_at`, the server's clock read `server_time`.
#[derive(Clone, Copy, Debug)]
struct Reading {
    sent_at: Instant,
    received_at: Instant,
    server_time: Duration,
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
    /// The newest answer, by which grants are dated. An older answer would date them too early to be useful, and would
    /// not include steps that the clock made after it.
    newest: Option<Reading>,
    /// Used to detect steps: the answer that gives the lowest upper bound for the server's clock. All bounds grow at
    /// the same rate, so the lowest one stays the lowest: an answer that was dropped cannot detect a step that this one
    /// misses. Slow answers give higher bounds, and change nothing.
    tightest: Option<Reading>,
    /// The times that the server's clock reads twice, if it was set back.
    repeated: Option<RepeatedTimes>,
}

impl ServerClock {
    /// Adds an answer: the server's clock read `server_time`, the request was sent at `sent_at` and the answer arrived
    /// at `now`. R3: if more time passed on the server than can have passed here, the server's clock was set forward,
    /// and leases may have ended early. Then this returns a lower bound of that step, and the caller must put all holds
    /// in doubt that rely on older answers. The detection of steps restarts from this answer.
    ///
    /// Each answer gives an upper bound of the server's time for every later moment of the local clock. After the
    /// server's clock was set back, the newest bound is the smallest one, so the detection restarts from it without
    /// further code.
    pub fn learn(&mut self, sent_at: Instant, now: Instant, server_time: Duration) -> Option<Duration> {
        let new = Reading { sent_at, received_at: now, server_time };
        self.repeated.take_if(|repeated| now >= repeated.until);
        if let Some(old) = self.newest.replace(new) {
            let lower_bound = old.server_time + sent_at.since(old.received_at) * 99 / 100;
            if server_time + STEP_MARGIN < lower_bound {
                let repeated_below = old.upper_bound(now) + STEP_MARGIN;
                let repeated_below =
                    self.repeated.map_or(repeated_below, |repeated| repeated.below.max(repeated_below));
                self.repeated =
                    Some(RepeatedTimes { below: repeated_below, until: now.after(LONGEST_IN_FLIGHT) });
            }
        }
        let tightest = self.tightest.get_or_insert(new);
        // Answers may arrive out of order.
        let now = now.max(tightest.sent_at);
        let upper_bound = tightest.upper_bound(now);
        let ahead = server_time.saturating_sub(upper_bound);
        let was_set_forward = ahead > STEP_MARGIN;
        if was_set_forward || new.upper_bound(now) < upper_bound {
            *tightest = new;
        }
        was_set_forward.then_some(ahead)
    }

    /// A local time that is certainly not after the moment at which the server's clock read `server_time`; `None`
    /// before the first answer, and where the server's clock may have read that time twice.
    ///
    /// The server read the time of the newest answer after the request was sent, so later than `sent_at` here. A grant
    /// at a later time of the server is later than `sent_at`, too. A grant at an earlier time of the server is earlier
    /// than `sent_at` by at most the difference of the two server times. If the server's clock was set forward in
    /// between, that difference is too large, and the result is earlier than it need be, never later.
    #[must_use]
    pub fn not_after(&self, server_time: Duration) -> Option<Instant> {
        let newest = self.newest?;
        if self.repeated.is_some_and(|repeated| server_time < repeated.below) {
            return None;
        }
        Some(newest.sent_at.before(newest.server_time.saturating_sub(server_time)))
    }
}

impl Reading {
    /// The latest time that the server's clock can read at `now`, unless it was set forward.
    fn upper_bound(self, now: Instant) -> Duration {
        let elapsed = now.since(self.sent_at);
        self.server_time + elapsed + elapsed / 100
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Adds an answer, with times in milliseconds; returns whether the clock was found to be set forward.
    fn learn_step(clock: &mut ServerClock, sent_at: u64, now: u64, server_time: u64) -> bool {
        clock.learn(at(sent_at), at(now), Duration::from_millis(server_time)).is_some()
    }

    #[test]
    fn only_a_clock_set_forward_is_detected() {
        let mut clock = ServerClock::default();
        let mut learn_step = |sent_at, now, server_time| learn_step(&mut clock, sent_at, now, server_time);
        assert!(!learn_step(1000, 1001, 50_000), "the first answer has nothing to compare with");
        assert!(!learn_step(2000, 2001, 51_000));
        assert!(!learn_step(3000, 3900, 52_900), "a slow answer");
        assert!(!learn_step(4000, 4001, 53_010), "within the margin of what passed here");
        assert!(learn_step(5000, 5001, 54_100));
        assert!(!learn_step(6000, 6001, 20_000), "set back");
        assert!(!learn_step(7000, 7001, 21_000));
        assert!(learn_step(8000, 8001, 23_000), "compared with the time to which it was set back");
        assert!(!learn_step(9000, 9001, 24_000), "each step is detected once");
    }

    #[test]
    fn a_step_hidden_by_slow_answers_is_detected_by_the_first_quick_one() {
        let mut clock = ServerClock::default();
        assert!(!learn_step(&mut clock, 1000, 1001, 50_000));
        // The clock is set forward by half a second. The next answers take longer than that, so they do not prove the
        // step.
        for slow in [2000, 3000, 4000] {
            assert!(!learn_step(&mut clock, slow, slow + 600, slow + 49_500));
        }
        assert_eq!(
            clock.learn(at(5000), at(5001), Duration::from_micros(54_500_000)),
            Some(Duration::from_micros(458_990))
        );
    }

    #[test]
    fn an_answer_out_of_order_changes_nothing() {
        let mut clock = ServerClock::default();
        assert!(!learn_step(&mut clock, 1000, 1001, 50_000));
        assert!(!learn_step(&mut clock, 800, 810, 49_805));
        assert!(
            learn_step(&mut clock, 1100, 1101, 50_110),
            "a step of 10 ms, which the late answer would have hidden"
        );
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

    /// A time of the server's clock.
    const fn server_millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_time_that_a_clock_reads_twice_dates_nothing() {
        let mut clock = ServerClock::default();
        clock.learn(at(1000), at(1001), server_millis(100_000));
        // A grant is pushed at 101 s and arrives late. The clock is set back by 3 s.
        clock.learn(at(3000), at(3001), server_millis(99_000));
        assert_eq!(clock.not_after(server_millis(101_000)), None, "two seconds ago, or not yet");
        assert_eq!(clock.not_after(server_millis(102_100)), Some(at(3000)), "it never was so late before");
        clock.learn(at(7000), at(7001), server_millis(103_000));
        assert_eq!(clock.not_after(server_millis(101_000)), None, "which of both times?");
        assert_eq!(clock.not_after(server_millis(102_900)), Some(at(6900)));
    }

    #[test]
    fn after_a_large_step_back_dating_resumes_after_the_latest_notification() {
        let mut clock = ServerClock::default();
        clock.learn(at(1000), at(1001), server_millis(900_000));
        clock.learn(at(2000), at(2001), server_millis(100_000));
        clock.learn(at(30_000), at(30_001), server_millis(128_000));
        assert_eq!(clock.not_after(server_millis(128_100)), None);
        clock.learn(at(62_002), at(62_003), server_millis(160_002));
        assert_eq!(clock.not_after(server_millis(160_100)), Some(at(62_002)));
    }

    #[test]
    fn concurrent_answers_are_not_a_step_back() {
        let mut clock = ServerClock::default();
        // Two requests leave together; the second is answered after the first.
        clock.learn(at(1000), at(1050), server_millis(50_000));
        clock.learn(at(1000), at(1051), server_millis(50_001));
        clock.learn(at(9000), at(9100), server_millis(57_930));
        assert_eq!(clock.not_after(server_millis(50_500)), Some(at(9000 - 7430)));
    }

    /// Requests and their answers, in milliseconds: the pause before the request, the step of the server's clock before
    /// it arrives, the time of the request on its way, the time of the answer on its way.
    fn answers(step: impl Strategy<Value = i64>) -> impl Strategy<Value = Vec<(u64, i64, u64, u64)>> {
        let travel_time = || prop_oneof![Just(0), 0..5u64, 0..2000u64];
        prop::collection::vec((0..3000u64, step, travel_time(), travel_time()), 1..40)
    }

    /// The times of each answer, from a server whose clock runs at `percent` of the local rate: when the request was
    /// sent and when the answer was received, in local milliseconds, and the server's time in microseconds.
    fn answer_times(answers: &[(u64, i64, u64, u64)], percent: u64) -> Vec<(u64, u64, u64)> {
        let (mut local_now, mut server_now) = (1_000, 1_000_000_000);
        let answer_times = answers.iter().map(|&(pause, step, request_travel, answer_travel)| {
            let sent_at = local_now + pause;
            server_now =
                (server_now + (pause + request_travel) * percent * 10).saturating_add_signed(step * 1000);
            let server_time = server_now;
            local_now = sent_at + request_travel + answer_travel;
            server_now += answer_travel * percent * 10;
            (sent_at, local_now, server_time)
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
            for (sent_at, now, server_time) in answer_times(&answers, percent) {
                prop_assert_eq!(clock.learn(at(sent_at), at(now), Duration::from_micros(server_time)), None);
            }
        }

        #[test]
        fn a_step_is_detected_as_soon_as_two_answers_prove_it(
            answers in answers(prop_oneof![3 => Just(0), 1 => -3000..3000i64]), percent in 99..=103u64,
        ) {
            let mut clock = ServerClock::default();
            // The answers since the last step that was detected: when sent, and the server's time.
            let mut since_detection: Vec<(u64, u64)> = Vec::new();
            for (sent_at, now, server_time) in answer_times(&answers, percent) {
                let proves_step = |&(sent_before, server_before): &(u64, u64)| server_time > server_before + (now - sent_before) * 1010 + 2000;
                let is_proven = since_detection.iter().any(proves_step);
                prop_assert_eq!(clock.learn(at(sent_at), at(now), Duration::from_micros(server_time)).is_some(), is_proven);
                if is_proven {
                    since_detection.clear();
                }
                since_detection.push((sent_at, server_time));
            }
        }
    }
}
