//! Counts of what happened on one engine since the exporter started.

use super::{
    families::{BREAKS, GRANTS, HOLD_DURATION, LEFT, LOSSES, WAIT_DURATION},
    histogram::Histogram,
    text::{Exposition, Labels},
};
use crate::Change;

/// Counts of what happened on one engine since the exporter started. They are lower bounds: a hold that begins and ends
/// between two looks is not seen.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Totals {
    grants: u64,
    lapses: u64,
    left: u64,
    breaks: u64,
    waits: Histogram,
    holds: Histogram,
}

impl Totals {
    /// Nothing has happened.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts the changes that [`Looks::next`](crate::Looks::next) has returned.
    pub fn count<'a>(&mut self, changes: impl IntoIterator<Item = &'a Change>) {
        changes.into_iter().for_each(|change| self.count_one(change));
    }

    /// Counts a hold that an operator broke by way of this process. A look cannot tell a break from a release.
    pub const fn count_break(&mut self) {
        self.breaks = self.breaks.saturating_add(1);
    }

    fn count_one(&mut self, change: &Change) {
        match change {
            // A break by another process is seen only where the name stays taken.
            Change::Waiting(_) | Change::Broken(_) => {}
            Change::Left(_) => self.left = self.left.saturating_add(1),
            Change::Granted { waited, .. } => {
                self.grants = self.grants.saturating_add(1);
                // A wait that no look saw was shorter than the time between two looks. Without these waits, the
                // histogram would show only the long ones.
                self.waits.record(waited.unwrap_or_default());
            }
            Change::Ended { holder, lapsed } => {
                self.lapses = self.lapses.saturating_add(u64::from(*lapsed));
                holder.held.iter().for_each(|held| self.holds.record(*held));
            }
        }
    }

    pub(super) fn write(&self, text: &mut Exposition, labels: &Labels<'_>) {
        let lapsed: Vec<_> = labels.iter().copied().chain([("cause", "lapsed")]).collect();
        for (family, labels, count) in [
            (&GRANTS, labels, self.grants),
            (&LOSSES, &lapsed, self.lapses),
            (&LEFT, labels, self.left),
            (&BREAKS, labels, self.breaks),
        ] {
            text.sample(family, labels, count_value(count));
        }
        text.histogram(&WAIT_DURATION, labels, &self.waits);
        text.histogram(&HOLD_DURATION, labels, &self.holds);
    }
}

/// A count as a value. Prometheus has only floating-point numbers.
#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 are not exact in Prometheus either")]
pub(super) const fn count_value(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use leasehold::{HolderView, Name, View, WaiterView};

    use super::*;
    use crate::Looks;

    fn view(holder: &str, remaining: u64, waiters: &[&str]) -> View {
        let mut view = View::free(Name::new("a").unwrap(), "a".into());
        let holder = HolderView::new(holder.into(), "o".into()).token(Some(1));
        view.holders.push(holder.times(Some(Duration::from_secs(40)), Some(Duration::from_secs(remaining))));
        for id in waiters {
            view.waiters.push(WaiterView::new((*id).into(), "o".into(), Some(Duration::from_secs(20))));
        }
        view
    }

    #[test]
    fn grants_losses_waits_and_holds_are_counted() {
        let (mut looks, mut totals, now) = (Looks::new(), Totals::new(), Instant::now());
        let mut look = |view: &[View], seconds| {
            let changes = looks.next(view, now + Duration::from_secs(seconds));
            totals.count(changes.iter().map(|(_, change)| change));
        };
        look(&[view("h", 30, &["w", "x"])], 0);
        // "h" released, "w" was granted, "x" left.
        look(&[view("w", 1, &[])], 1);
        // The lease of "w" ran out, "y" was granted at once.
        look(&[view("y", 30, &[])], 5);
        totals.count_break();
        let mut text = Exposition::new();
        totals.write(&mut text, &[("engine", "file")]);
        let text = text.to_string();
        for line in [
            "leasehold_observed_grants_total{engine=\"file\"} 2",
            "leasehold_observed_losses_total{engine=\"file\",cause=\"lapsed\"} 1",
            "leasehold_observed_waits_left_total{engine=\"file\"} 1",
            "leasehold_breaks_total{engine=\"file\"} 1",
            "leasehold_observed_wait_duration_seconds_bucket{engine=\"file\",le=\"0.001\"} 1",
            "leasehold_observed_wait_duration_seconds_sum{engine=\"file\"} 20",
            "leasehold_observed_wait_duration_seconds_count{engine=\"file\"} 2",
            "leasehold_observed_hold_duration_seconds_sum{engine=\"file\"} 80",
            "leasehold_observed_hold_duration_seconds_count{engine=\"file\"} 2",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in {text}");
        }
    }

    #[test]
    fn all_counters_start_at_zero() {
        let mut text = Exposition::new();
        Totals::new().write(&mut text, &[]);
        assert!(
            text.to_string().contains("\nleasehold_observed_losses_total{cause=\"lapsed\"} 0\n"),
            "{text}"
        );
    }
}
