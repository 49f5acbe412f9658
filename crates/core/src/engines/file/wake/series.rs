//! When to ask after a lock file was closed: the kernel reports a close before it frees the lock. Pure.

use std::time::Duration;

use crate::{ClaimId, Instant};

/// The delays after an event at which a claim asks. In most cases the lock is free at the first delay; after 188 of
/// 3,000 releases by close it was free only at a later one.
const DELAYS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(30),
];

/// The claims that share one watch, and the series of moments at which they should ask after an event.
#[derive(Debug, Default)]
pub(crate) struct Series {
    claims: Vec<ClaimId>,
    /// The first event of the running series, and how many of its delays have passed.
    running: Option<(Instant, usize)>,
    /// An event came during the series: one more series follows, so that a flood of closes causes a bounded number of
    /// requests.
    event_during_series: bool,
}

impl Series {
    pub(crate) fn add(&mut self, id: ClaimId) {
        if !self.claims.contains(&id) {
            self.claims.push(id);
        }
    }

    /// Removes a claim; returns whether none is left.
    pub(crate) fn remove(&mut self, id: ClaimId) -> bool {
        self.claims.retain(|claim| *claim != id);
        self.claims.is_empty()
    }

    pub(crate) fn claims(&self) -> &[ClaimId] {
        &self.claims
    }

    /// Records that the watched file was closed.
    pub(crate) fn add_event(&mut self, now: Instant) {
        match self.running {
            None => self.running = Some((now, 0)),
            Some(_) => self.event_during_series = true,
        }
    }

    /// Whether the claims should ask now: one more delay has passed since the last call.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        let Some((start, passed_count)) = self.running else { return false };
        let reached_count = DELAYS.iter().filter(|delay| start.after(**delay) <= now).count();
        if reached_count <= passed_count {
            return false;
        }
        self.running = (reached_count < DELAYS.len()).then_some((start, reached_count));
        if self.running.is_none() && std::mem::take(&mut self.event_during_series) {
            self.running = Some((now, 1));
        }
        true
    }

    /// When the next delay ends.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let (start, passed_count) = self.running?;
        DELAYS.get(passed_count).map(|delay| start.after(*delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(1_000_000_000).after(Duration::from_millis(millis))
    }

    fn due(series: &mut Series, until: u64) -> Vec<u64> {
        (0..=until).filter(|&millis| series.take_due(at(millis))).collect()
    }

    #[test]
    fn an_event_schedules_five_rechecks() {
        let mut series = Series::default();
        assert!(!series.take_due(at(0)) && series.next_due().is_none());
        series.add_event(at(0));
        assert_eq!(due(&mut series, 100), [0, 1, 3, 10, 30]);
        assert_eq!(series.next_due(), None);
    }

    #[test]
    fn a_late_check_rechecks_once() {
        let mut series = Series::default();
        series.add_event(at(0));
        assert!(series.take_due(at(5)) && !series.take_due(at(5)));
        assert_eq!(series.next_due(), Some(at(10)));
    }

    #[test]
    fn a_flood_of_events_costs_a_bounded_number_of_rechecks() {
        let mut series = Series::default();
        let mut asked = 0;
        for millis in 0..1000 {
            series.add_event(at(millis));
            asked += usize::from(series.take_due(at(millis)));
        }
        assert!((100..250).contains(&asked), "{asked}");
        assert!(series.next_due().is_some(), "the last event has its series");
    }
}
