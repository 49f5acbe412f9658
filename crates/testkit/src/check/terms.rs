//! What a run promises, as far as the checker must know.

use std::time::Duration;

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
    /// The run disturbs its system so that the engine, as configured, promises no exclusion: orders of tokens are
    /// required only where one acquire returned before the other was called, and truths are not compared.
    pub lossy: bool,
    /// How often a waiter may be overtaken; `None`: no order is promised.
    pub overtakes: Option<u64>,
    /// How long a free lock may stand beside a live waiter.
    pub wake: Duration,
    /// How long after a loss `lost()` may take to say so.
    pub told: Duration,
    /// How long a cancelled attempt may stay on a server that can be reached.
    pub cancelled: Duration,
    /// How much longer than its limit an acquire may take.
    pub over_limit: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            drift: 0.01,
            margin: Duration::ZERO,
            reading: Duration::from_millis(1),
            precision: Duration::from_millis(2),
            lossy: false,
            overtakes: None,
            wake: Duration::from_millis(250),
            told: Duration::from_millis(50),
            cancelled: Duration::from_secs(1),
            over_limit: Duration::from_millis(100),
        }
    }
}

/// A duration as histories count; longer than five centuries is for ever.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
