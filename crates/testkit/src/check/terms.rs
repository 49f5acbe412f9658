//! What a run promises, as far as the checker must know.

use std::time::Duration;

pub(super) use crate::history::nanos;

/// The terms of a run. Change what differs from the default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Terms {
    /// By how much the rates of two clocks may differ; deadlines must leave it.
    pub drift: f64,
    /// What deadlines must leave besides.
    pub margin: Duration,
    /// How far a deadline read from a guard through its remaining time may be off.
    pub reading: Duration,
    /// How coarse the server tells its expiry.
    pub precision: Duration,
    /// How much longer than it was granted for something may stand on the server: one that looks now and then for what is over.
    pub overdue: Duration,
    /// The engine, as configured, promises no exclusion from the first disturbance on (a failover, a restart without
    /// its data): from then on the server may end a hold at any time, orders of tokens are required only where one
    /// acquire returned before the other was called, overlaps are counted and not accused, truths are not compared.
    pub lossy: bool,
    /// How often a waiter may be overtaken; `None`: no order is promised.
    pub overtakes: Option<u64>,
    /// How long a free lock may stand beside a live waiter.
    pub wake: Duration,
    /// How much longer it may where nothing rings: a hold lapsed, news were cut, or a disturbance has just ended.
    pub poll: Duration,
    /// How much longer it may where a hold stood until its lease was over, after its user was told that it is lost.
    pub lapse: Duration,
    /// The kinds of disturbances that cut news and nothing else.
    pub cuts: Vec<String>,
    /// How long after a loss `lost()` may take to say so.
    pub told: Duration,
    /// How long what ended without a grant may stay on a server that can be reached.
    pub cancelled: Duration,
    /// For how long a look may tell what was: a server that is cut off from the others answers it, until it notices.
    pub stale: Duration,
    /// How long a place in line stands at least after its claim last spoke: longer than a short lease.
    pub place: Duration,
    /// How long what a process asked for before it was killed, or told the loss of its hold, may be under way, and count from when it
    /// comes.
    pub under_way: Duration,
    /// Disturbances may set the server's clock back: what lapsed before them, unseen, may stand again.
    pub set_back: bool,
    /// How much longer than its limit an acquire may take.
    pub over_limit: Duration,
    /// The resources that check no tokens: what they lose is a figure and no violation.
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
            told: Duration::from_millis(50),
            cancelled: Duration::from_secs(1),
            stale: Duration::ZERO,
            place: Duration::ZERO,
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

    /// The time after which a lease of `ttl` is certainly over, by any clock.
    pub(super) fn longest(&self, ttl: u64) -> u64 {
        ((ttl as f64 * (1.0 + self.drift)) as u64).saturating_add(nanos(self.overdue))
    }
}
