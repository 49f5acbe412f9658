//! The plan of one client process.

use std::time::Duration;

use super::Op;

/// One process: when it starts, how fast its clock is, and the operations of its tasks in their order.
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
    /// Whether its clock is slower than the margin allows: by more than a hundredth.
    #[must_use]
    pub(crate) const fn is_too_slow(&self) -> bool {
        self.fast < -10_000
    }
}
