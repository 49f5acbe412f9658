//! The plan of one client process.

use std::time::Duration;

use super::Op;

/// One process: when it starts, the rate of its clock, and the operations of each of its tasks in order.
#[derive(Clone, Debug)]
pub(crate) struct ClientPlan {
    /// When it starts.
    pub(crate) starts: Duration,
    /// By how many millionths its clock is faster than the server's.
    pub(crate) fast: i64,
    /// The operations of each task.
    pub(crate) tasks: Vec<Vec<Op>>,
}

impl ClientPlan {
    /// Whether its clock is slower than the server's by more than a hundredth, which is more than the margin of
    /// deadlines allows.
    #[must_use]
    pub(crate) const fn is_too_slow(&self) -> bool {
        self.fast < -10_000
    }
}
