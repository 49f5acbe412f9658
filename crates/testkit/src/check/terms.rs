//! What a run promises, as far as the checker must know.

use std::time::Duration;

pub(super) use crate::history::nanos;

/// What a run promises. A run sets the fields that differ from the default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Terms {
    /// The largest difference between the rates of two clocks. Deadlines must allow for it.
    pub drift: f64,
    /// A margin beside the drift by which deadlines must be earlier than the end of the lease.
    pub margin: Duration,
    /// The error of a deadline that is computed from the remaining time of a guard.
    pub reading: Duration,
    /// The resolution of the expiry times that the server reports.
    pub precision: Duration,
    /// A server may remove expired entries at intervals. For how long such a server may have an entry after its expiry.
    pub overdue: Duration,
    /// The engine, as configured, promises no exclusion from the first disturbance on (a fail-over, a restart without
    /// its data). From then on the server may end a hold at any time. Tokens must grow only if one acquire returned
    /// before the other was called. Overlaps are counted and are no violations. The holds that the server reports are
    /// not compared with those of the history.
    pub lossy: bool,
    /// How many later attempts may overtake one waiter. `None`: the run promises no order.
    pub overtakes: Option<u64>,
    /// How long a lock may stay free while a live waiter waits for it.
    pub wake: Duration,
    /// By how much `wake` is longer if nothing notifies the waiter: a hold lapsed, notifications were cut, or a
    /// disturbance has just ended.
    pub poll: Duration,
    /// By how much `wake` is longer if the user was notified of the loss of a hold, but the hold stayed on the server
    /// until the end of its lease.
    pub lapse: Duration,
    /// The kinds of disturbances that only cut notifications.
    pub cuts: Vec<String>,
    /// How long `lost()` may take to report a loss.
    pub report_limit: Duration,
    /// How long the remains of an attempt without a grant may stay on a reachable server.
    pub cancelled: Duration,
    /// How old the state that a server reports may be. A server that is cut off from the others keeps answering until
    /// it notices that.
    pub stale: Duration,
    /// The minimum time for which a queue entry exists after the last contact of its claim, if that is longer than the
    /// lease.
    pub entry_life: Duration,
    /// How long a request may be in flight if its process was killed, or was notified of a loss, after it sent the
    /// request. The lease of the request begins when the request arrives.
    pub under_way: Duration,
    /// Disturbances may set the server's clock back. Then an entry that had lapsed, but that the server had not removed
    /// yet, becomes valid again.
    pub set_back: bool,
    /// How much longer than the limit of its wait an acquire may take.
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
