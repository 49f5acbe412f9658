//! How long lock cycles took, and what ttl they allow.

use std::{fmt::Write, time::Duration};

use leasehold::{Diagnostic, Life, Profile, Severity};

use crate::text::short_duration;

/// A ttl has room for this many of the slowest requests: a renewal is sent after a third of the ttl, so in the rest
/// there are several attempts even if all of them are slow.
const REQUESTS_IN_A_TTL: u32 = 10;

/// The times of lock cycles: one acquire and one release each.
#[derive(Debug, Default)]
pub(crate) struct Times {
    cycles: Vec<Duration>,
    slowest_request: Duration,
}

impl Times {
    pub(super) fn add(&mut self, acquire: Duration, release: Duration) {
        self.cycles.push(acquire + release);
        self.slowest_request = self.slowest_request.max(acquire).max(release);
    }

    /// How many cycles there were.
    pub(crate) fn cycles(&self) -> usize {
        self.cycles.len()
    }

    /// The time in which this share of the cycles was done, in percent; zero without a cycle.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.cycles.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }

    pub(super) fn slowest_request(&self) -> Duration {
        self.slowest_request
    }

    /// The percentiles as a finding, with the limit by which [`advice`] judges them.
    pub(super) fn finding(&self, profile: &Profile, ttl: Duration) -> Diagnostic {
        let [p50, p99] = [50, 99].map(|percent| shown(self.percentile(percent)));
        let (cycles, slowest) = (self.cycles(), shown(self.slowest_request));
        let limit = if profile.life.lapses() {
            format!("a ttl of {} allows {}", short_duration(ttl), shown(ttl / REQUESTS_IN_A_TTL))
        } else {
            "there is no limit, because holds do not lapse".to_owned()
        };
        Diagnostic::good(
            "latency",
            format!(
                "{cycles} lock cycles: p50 {p50}, p99 {p99}; the slowest request took {slowest}, and {limit}"
            ),
        )
    }
}

/// Whether the ttl suits an engine whose slowest request took this time.
pub(super) fn advice(profile: &Profile, ttl: Duration, slowest_request: Duration) -> Diagnostic {
    if !profile.life.lapses() {
        let found = match profile.life {
            Life::Process => {
                "holds end with their process: the ttl decides only how often a holder checks its lock"
            }
            _ => "holds do not lapse: the ttl decides only how often a holder checks its lock",
        };
        return Diagnostic::good("ttl", found);
    }
    let shown_ttl = short_duration(ttl);
    let (shortest, longest) = (*profile.ttl.start(), *profile.ttl.end());
    if !(shortest..=longest).contains(&ttl) {
        let found = format!("the engine does not grant a ttl of {shown_ttl}");
        let advice = format!("use a ttl from {} to {}", short_duration(shortest), short_duration(longest));
        return Diagnostic::new("ttl", Severity::Warning, found, advice);
    }
    let needed = slowest_request.saturating_mul(REQUESTS_IN_A_TTL);
    if ttl < needed {
        let mut found = String::new();
        let _ = write!(
            found,
            "a ttl of {shown_ttl} is less than ten times the slowest request ({}): slow renewals lose holds",
            shown(slowest_request)
        );
        let seconds = needed.as_secs() + u64::from(needed.subsec_nanos() > 0);
        return Diagnostic::new("ttl", Severity::Warning, found, format!("use a ttl of {seconds}s or more"));
    }
    let found = format!(
        "a ttl of {shown_ttl} is more than ten times the slowest request; see docs/choosing-a-ttl.md"
    );
    Diagnostic::good("ttl", found)
}

/// A short time, with the unit that suits it.
pub(super) fn shown(time: Duration) -> String {
    match time.as_micros() {
        micros @ 0..1000 => format!("{micros} us"),
        micros @ 1000..1_000_000 => format!("{}.{} ms", micros / 1000, micros / 100 % 10),
        _ => short_duration(time),
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Locks;

    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let mut times = Times::default();
        assert_eq!(times.percentile(99), Duration::ZERO);
        // In no order.
        for millis in (1..=100).map(|number| number * 37 % 101) {
            times.add(Duration::from_millis(millis), Duration::ZERO);
        }
        assert_eq!([1, 50, 99, 100].map(|percent| times.percentile(percent).as_millis()), [1, 50, 99, 100]);
        assert_eq!(times.slowest_request(), Duration::from_millis(100));
    }

    #[test]
    fn a_ttl_has_room_for_ten_of_the_slowest_requests() {
        let locks = Locks::connect("memory:").unwrap();
        let judged = |ttl, slowest| {
            advice(locks.profile(), Duration::from_millis(ttl), Duration::from_millis(slowest))
        };
        assert_eq!(judged(30_000, 3000).severity, Severity::Good);
        let short = judged(30_000, 3001);
        assert_eq!((short.severity, short.advice.as_str()), (Severity::Warning, "use a ttl of 31s or more"));
        let refused = judged(50, 1);
        assert_eq!(
            (refused.severity, refused.advice.as_str()),
            (Severity::Warning, "use a ttl from 100ms to 1d00h")
        );
    }

    #[test]
    fn the_times_are_told_with_the_limit_that_judges_them() {
        let mut profile = Locks::connect("memory:").unwrap().profile().clone();
        let mut times = Times::default();
        times.add(Duration::from_millis(3), Duration::from_millis(4));
        let mut told = |life| {
            profile.life = life;
            let found = times.finding(&profile, Duration::from_secs(5));
            assert_eq!((found.id, found.severity), ("latency", Severity::Good));
            found.found
        };
        let measured = "1 lock cycles: p50 7.0 ms, p99 7.0 ms; the slowest request took 4.0 ms, and ";
        assert_eq!(told(Life::Lease), format!("{measured}a ttl of 5.0s allows 500.0 ms"));
        assert_eq!(told(Life::Process), format!("{measured}there is no limit, because holds do not lapse"));
    }

    #[test]
    fn times_have_a_suitable_unit() {
        let shown = [7, 1000, 12_345, 1_500_000].map(|micros| shown(Duration::from_micros(micros)));
        assert_eq!(shown, ["7 us", "1.0 ms", "12.3 ms", "1.5s"]);
    }
}
