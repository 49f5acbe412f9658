//! One clock for all processes that share a directory, including those in a time namespace.

use std::{fs, sync::Arc};

use crate::{Clock, Instant};

/// The offsets of the clocks of this process from the machine's: `time_namespaces(7)`.
const OFFSETS: &str = "/proc/self/timens_offsets";
const NANOS: i128 = 1_000_000_000;

/// The time since the boot of the machine, computed from a clock with an offset to it.
struct MachineClock {
    shifted: Arc<dyn Clock>,
    /// In nanoseconds.
    ahead: i128,
}

impl Clock for MachineClock {
    fn now(&self) -> Instant {
        let nanos = i128::from(self.shifted.now().as_nanos()) - self.ahead;
        Instant::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

/// The clock of the machine. `clock` is the clock that this process sees.
pub(crate) fn machine_clock(clock: Arc<dyn Clock>) -> Arc<dyn Clock> {
    match boot_time_ahead() {
        0 => clock,
        ahead => Arc::new(MachineClock { shifted: clock, ahead }),
    }
}

/// How many nanoseconds the boot-time clock of this process is ahead of the machine's own: not 0 in a time namespace
/// only.
#[must_use]
pub fn boot_time_ahead() -> i128 {
    // Kernels without time namespaces have no such file, and one clock for all processes.
    ahead(&fs::read_to_string(OFFSETS).unwrap_or_default())
}

/// Parses the line of the boot-time clock: its name, seconds, nanoseconds.
fn ahead(offsets: &str) -> i128 {
    let boottime = offsets.lines().find_map(|line| line.strip_prefix("boottime")).unwrap_or_default();
    let mut numbers = boottime.split_ascii_whitespace().filter_map(|number| number.parse::<i64>().ok());
    let mut next = || numbers.next().map_or(0, i128::from);
    next() * NANOS + next()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct At(u64);

    impl Clock for At {
        fn now(&self) -> Instant {
            Instant::from_nanos(self.0)
        }
    }

    #[test]
    fn a_shifted_clock_is_corrected() {
        assert_eq!(ahead(""), 0);
        assert_eq!(ahead("monotonic           7         3\nboottime            0         0\n"), 0);
        assert_eq!(
            ahead("monotonic           0         0\nboottime        86400       500\n"),
            86_400 * NANOS + 500
        );
        let shown = |at, ahead| MachineClock { shifted: Arc::new(At(at)), ahead }.now().as_nanos();
        assert_eq!(ahead("boottime -5 0"), -5 * NANOS);
        assert_eq!(
            ahead("monotonic           0         0\nboottime       -86400         0\n"),
            -86_400 * NANOS
        );
        assert_eq!(ahead("monotonic           0         0\nboottime            0       500\n"), 500);
        assert_eq!((shown(700, 500), shown(700, -500), shown(700, 800)), (200, 1200, 0));
    }
}
