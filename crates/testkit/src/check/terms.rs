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
    /// The largest error of a deadline that is computed from the remaining time of a guard.
    pub reading: Duration,
    /// The resolution of the expiry times that the server reports.
    pub precision: Duration,
    /// How long after its expiry an entry may still be on the server. Some servers remove expired entries only at
    /// intervals.
    pub overdue: Duration,
    /// How much longer than asked for a result may be kept.
    pub kept_longer: Duration,
    /// Whether the engine, as configured, promises no exclusion from the first disturbance on (a fail-over, a restart
    /// without its data). If so, the server may end a hold at any time from then on. Tokens must grow only if one
    /// acquire returned before the other was called. Overlaps are counted and are no violations. The holds that the
    /// server reports are not compared with those of the history.
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
    /// How old the state that a server reports can be. A server that is cut off from the other servers keeps answering
    /// until it notices the cut.
    pub stale: Duration,
    /// The minimum time for which a queue entry exists after the last request of its claim. If the lease is longer, the
    /// entry exists for the length of the lease.
    pub entry_life: Duration,
    /// How long a request may be in flight if its process was killed, or was notified of a loss, after it sent the
    /// request. The lease of the request begins when the request arrives.
    pub under_way: Duration,
    /// Whether the hold of a killed process ends at once, and not only with its lease.
    pub ends_with_process: bool,
    /// Whether disturbances may set the server's clock back. If so, an entry that had lapsed, but that the server had
    /// not removed yet, can become valid again.
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
            kept_longer: Duration::ZERO,
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
            ends_with_process: false,
            set_back: false,
            over_limit: Duration::from_millis(100),
            unfenced: Vec::new(),
        }
    }
}

impl Terms {
    /// The time for which a lease of `ttl` certainly lasts, measured by any clock within the drift.
    pub(super) fn shortest(&self, ttl: u64) -> u64 {
        (ttl as f64 * (1.0 - self.drift)) as u64
    }

    /// The time after which a lease of `ttl` has certainly ended, measured by any clock within the drift.
    pub(super) fn longest(&self, ttl: u64) -> u64 {
        ((ttl as f64 * (1.0 + self.drift)) as u64).saturating_add(nanos(self.overdue))
    }
}
