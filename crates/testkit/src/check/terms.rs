//! What a run promises, as far as the checker must know.

use std::time::Duration;

pub(super) use crate::history::nanos;

/// The terms of a run. Set what differs from the default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Terms {
    /// The largest difference between the rates of two clocks. Deadlines must allow for it.
    pub drift: f64,
    /// A further margin that deadlines must leave.
    pub margin: Duration,
    /// The error of a deadline that is computed from the remaining time of a guard.
    pub reading: Duration,
    /// The resolution of the expiry times that the server reports.
    pub precision: Duration,
    /// How much longer than granted an entry may exist on a server that removes expired entries at intervals.
    pub overdue: Duration,
    /// The engine, as configured, promises no exclusion from the first disturbance on (a fail-over, a restart without
    /// its data). From then on the server may end a hold at any time; token order is required only if one acquire
    /// returned before the other was called; overlaps are counted and are no violations; the holds that the
    /// server reports are not compared.
    pub lossy: bool,
    /// How often a waiter may be overtaken. `None`: no order is promised.
    pub overtakes: Option<u64>,
    /// How long a lock may stay free while a live waiter waits for it.
    pub wake: Duration,
    /// The additional time if nothing notifies the waiter: a hold lapsed, notifications were cut, or a disturbance has
    /// just ended.
    pub poll: Duration,
    /// The additional time if a hold lasted until the end of its lease after its user was notified of its loss.
    pub lapse: Duration,
    /// The kinds of disturbances that cut only notifications.
    pub cuts: Vec<String>,
    /// How long `lost()` may take to report a loss.
    pub report_limit: Duration,
    /// How long the remains of an attempt without a grant may stay on a reachable server.
    pub cancelled: Duration,
    /// How old the state may be that a server reports: a server that is cut off from the others keeps answering until
    /// it notices.
    pub stale: Duration,
    /// The minimum lifetime of a queue entry after the last contact of its claim, if that is longer than a short lease.
    pub entry_life: Duration,
    /// How long a request may be in flight that was sent before its process was killed or was notified of a loss. Its
    /// lease starts when it arrives.
    pub under_way: Duration,
    /// Disturbances may set the server's clock back, so an entry that had lapsed unnoticed may become valid again.
    pub set_back: bool,
    /// How much longer than its limit an acquire may take.
    pub over_limit: Duration,
    /// The resources that check no tokens. Their lost updates are a figure and no violation.
    pub unfenced: Vec<String>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            drift: 0.01,
            margin: Duration::ZERO,
            reading: Duration::from_millis(1),
            precision: Duration::from_millis(2),
            overdue: Duration::ZERO,
            lossy: false,
            overtakes: None,
            wake: Duration::from_millis(250),
            poll: Duration::ZERO,
            lapse: Duration::ZERO,
            cuts: Vec::new(),
            report_limit: Duration::from_millis(50),
            cancelled: Duration::from_secs(1),
            stale: Duration::ZERO,
            entry_life: Duration::ZERO,
            under_way: Duration::ZERO,
            set_back: false,
            over_limit: Duration::from_millis(100),
            unfenced: Vec::new(),
        }
    }
}

impl Terms {
    /// The time for which a lease of `ttl` certainly lasts, by any clock.
    pub(super) fn shortest(&self, ttl: u64) -> u64 {
        (ttl as f64 * (1.0 - self.drift)) as u64
    }

    /// The time after which a lease of `ttl` has certainly ended, by any clock.
    pub(super) fn longest(&self, ttl: u64) -> u64 {
        ((ttl as f64 * (1.0 + self.drift)) as u64).saturating_add(nanos(self.overdue))
    }
}
