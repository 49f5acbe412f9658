//! The wall clock of a server beside ours. Only for reports to operators: no decision uses our wall clock.

use std::time::Duration;

use leasehold_core::EngineError;
use redis::from_redis_value;

use crate::{
    conn::{Conn, wall_clock},
    reply::unreadable,
};

/// The largest difference of our clock and the server's that is not reported: clocks that are synchronised by a time
/// server differ by far less.
pub(crate) const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);

/// The server's wall clock, and the clock of this machine before the request and after the answer, all counted from
/// 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// Our clock before the request.
    ours_before: Duration,
    /// The clock of the server.
    pub(crate) server: Duration,
    /// Our clock after the answer.
    pub(crate) ours_after: Duration,
}

/// On which side of our clock the clock of a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ahead,
    Behind,
}

impl Clocks {
    /// Asks for the server's wall clock, between two readings of our wall clock.
    pub(crate) async fn read(conn: &Conn) -> Result<Self, EngineError> {
        let ours_before = wall_clock();
        let time = conn.ask(&redis::cmd("TIME")).await?;
        let ours_after = wall_clock();
        let (seconds, micros) = from_redis_value(time).map_err(|_| unreadable())?;
        let server = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
        Ok(Self { ours_before, server, ours_after })
    }

    /// The difference that the clocks certainly have, and on which side of ours the server's is. `None` if they differ
    /// by at most [`MAX_CLOCK_DIFFERENCE`] beyond the time that the answer took.
    pub(crate) fn difference(&self) -> Option<(Duration, Side)> {
        let ahead = self.server.saturating_sub(self.ours_after);
        let behind = self.ours_before.saturating_sub(self.server);
        if ahead > MAX_CLOCK_DIFFERENCE {
            Some((ahead, Side::Ahead))
        } else if behind > MAX_CLOCK_DIFFERENCE {
            Some((behind, Side::Behind))
        } else {
            None
        }
    }

    /// How far the server's clock is certainly ahead of the clock of another server; zero if it may be behind.
    pub(crate) fn lead_over(&self, other: &Self) -> Duration {
        // By our clock, this server's clock was read before `ours_after`, the other's after its `ours_before`.
        let least = self.server.saturating_add(other.ours_before);
        let most = other.server.saturating_add(self.ours_after);
        least.saturating_sub(most)
    }

    /// How long the answer took, which is how much the difference is uncertain by.
    pub(crate) fn uncertainty(&self) -> Duration {
        self.ours_after.saturating_sub(self.ours_before)
    }
}

#[cfg(test)]
impl Clocks {
    /// Readings of the clocks, in milliseconds.
    pub(crate) fn of_millis(ours_before: u64, server: u64, ours_after: u64) -> Self {
        let [ours_before, server, ours_after] = [ours_before, server, ours_after].map(Duration::from_millis);
        Self { ours_before, server, ours_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_counts_beyond_the_round_trip() {
        for (ours_before, server, ours_after, expected) in [
            (5000, 5000, 5000, None),
            (5000, 4000, 9000, None),
            (5000, 3999, 9000, Some((1001, Side::Behind))),
            (5000, 10_000, 9000, None),
            (5000, 10_500, 9000, Some((1500, Side::Ahead))),
        ] {
            let expected = expected.map(|(millis, side)| (Duration::from_millis(millis), side));
            assert_eq!(Clocks::of_millis(ours_before, server, ours_after).difference(), expected);
        }
    }

    #[test]
    fn the_difference_of_two_servers_counts_only_what_is_certain() {
        let clocks = Clocks::of_millis;
        for (one, other, millis) in [
            // Both read at once: 3 s apart.
            (clocks(5000, 8000, 5000), clocks(5000, 5000, 5000), 3000),
            // The same clock, read 2 s later.
            (clocks(7000, 7000, 7000), clocks(5000, 5000, 5000), 0),
            // An answer that took 1 s hides 1 s.
            (clocks(5000, 8000, 6000), clocks(5000, 5000, 5000), 2000),
            (clocks(5000, 8000, 5000), clocks(4000, 5000, 5000), 2000),
            (clocks(5000, 5000, 5000), clocks(5000, 8000, 5000), 0),
        ] {
            assert_eq!(one.lead_over(&other), Duration::from_millis(millis), "{one:?} {other:?}");
        }
    }
}
