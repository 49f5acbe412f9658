//! One clock for all processes that share a directory, including those in a time namespace.

use std::{fs, sync::Arc};

use crate::{Clock, Instant};

/// The file with the offsets of the clocks of this process from those of the machine: `time_namespaces(7)`.
const OFFSETS: &str = "/proc/self/timens_offsets";
const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// The clock of the machine, computed from the clock of a time namespace.
struct MachineClock {
    /// The clock that this process sees.
    namespace_clock: Arc<dyn Clock>,
    /// How many nanoseconds `namespace_clock` is ahead of the clock of the machine.
    ahead: i128,
}

impl Clock for MachineClock {
    fn now(&self) -> Instant {
        let nanos = i128::from(self.namespace_clock.now().as_nanos()) - self.ahead;
        Instant::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

/// The clock of the machine. `clock` is the clock that this process sees.
pub(crate) fn machine_clock(clock: Arc<dyn Clock>) -> Arc<dyn Clock> {
    match boot_time_ahead() {
        0 => clock,
        ahead => Arc::new(MachineClock { namespace_clock: clock, ahead }),
    }
}

/// How many nanoseconds the boot-time clock of this process is ahead of the machine's own. It is 0 except in a time
/// namespace.
#[must_use]
pub fn boot_time_ahead() -> i128 {
    // Kernels without time namespaces have no such file, and one clock for all processes.
    parse_ahead(&fs::read_to_string(OFFSETS).unwrap_or_default())
}

/// Parses the line of the boot-time clock: its name, seconds, nanoseconds.
fn parse_ahead(offsets: &str) -> i128 {
    let boottime = offsets.lines().find_map(|line| line.strip_prefix("boottime")).unwrap_or_default();
    let mut numbers = boottime.split_ascii_whitespace().filter_map(|number| number.parse::<i64>().ok());
    let mut next_number = || numbers.next().map_or(0, i128::from);
    next_number() * NANOS_PER_SECOND + next_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FixedClock(u64);

    impl Clock for FixedClock {
        fn now(&self) -> Instant {
            Instant::from_nanos(self.0)
        }
    }

    #[test]
    fn a_shifted_clock_is_corrected() {
        assert_eq!(parse_ahead(""), 0);
        assert_eq!(parse_ahead("monotonic           7         3\nboottime            0         0\n"), 0);
        assert_eq!(
            parse_ahead("monotonic           0         0\nboottime        86400       500\n"),
            86_400 * NANOS_PER_SECOND + 500
        );
        let machine_time =
            |at, ahead| MachineClock { namespace_clock: Arc::new(FixedClock(at)), ahead }.now().as_nanos();
        assert_eq!(parse_ahead("boottime -5 0"), -5 * NANOS_PER_SECOND);
        assert_eq!(
            parse_ahead("monotonic           0         0\nboottime       -86400         0\n"),
            -86_400 * NANOS_PER_SECOND
        );
        assert_eq!(parse_ahead("monotonic           0         0\nboottime            0       500\n"), 500);
        assert_eq!((machine_time(700, 500), machine_time(700, -500), machine_time(700, 800)), (200, 1200, 0));
    }
}
