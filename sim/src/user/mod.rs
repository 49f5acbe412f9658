//! What user code does with locks, and writes down about it. The library under test records nothing.

mod active_hold;
mod attempt;
mod writes;

use std::{sync::Arc, time::Duration};

use leasehold_core::{Instant, Locks};
use leasehold_testkit::history::nanos;
use tokio::sync::Notify;

use crate::{
    client::Host,
    journal::{Journal, Who},
    plan::{Breaking, Op, Plan},
    resource::Resources,
    truth::Truths,
};
use attempt::Attempt;

/// A hold is looked at so often while it is used.
const LOOKS: u32 = 4;

/// One task of a client.
pub(crate) struct User {
    /// The run.
    pub(crate) plan: Arc<Plan>,
    /// Who it is.
    pub(crate) who: Who,
    /// Its process.
    pub(crate) host: Host,
    /// What it locks with.
    pub(crate) locks: Locks,
    /// Where it writes down what happens.
    pub(crate) journal: Arc<Journal>,
    /// What it writes to.
    pub(crate) resources: Arc<Resources>,
    /// Where it says which claim is whose.
    pub(crate) truths: Arc<Truths>,
    /// Rings when the core says that holds of its process were renewed, or were not.
    pub(crate) renewed: Arc<Notify>,
}

impl User {
    /// Does one thing after the other.
    pub(crate) async fn work(self, ops: Vec<Op>) {
        for op in &ops {
            self.host.nap(op.pause).await;
            if let Some(breaking) = op.breaks {
                self.break_hold(self.plan.locks[op.lock].name, breaking == Breaking::Forced).await;
            }
            Attempt::new(&self, op).run().await;
            if let Some(limit) = op.closes {
                self.locks.close(limit).await;
            }
        }
    }

    /// Breaks a hold, as an operator does that has looked who holds.
    async fn break_hold(&self, name: &str, forced: bool) {
        if let Some(token) = self.truths.holder(name) {
            // Whether it got through shows in what happens.
            drop(self.locks.break_hold(name, token, forced).await);
        }
    }

    /// How long this clock says that something takes.
    fn own_time(&self, world: Duration) -> Duration {
        let fast = self.plan.clients[self.who.process.number() as usize - 1].fast;
        world.mul_f64(1.0 + fast as f64 / 1e6)
    }

    fn now(&self) -> Instant {
        self.journal.scheduler().now()
    }
}
