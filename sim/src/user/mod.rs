//! User code that acquires locks and records what it sees. The library under test records nothing.

mod active_hold;
mod attempt;
mod writes;

use std::{sync::Arc, time::Duration};

use leasehold_core::{Instant, Locks};
use leasehold_testkit::history::nanos;
use tokio::sync::Notify;

use crate::{
    client::Host,
    journal::{Actor, Journal},
    plan::{Breaking, Op, Plan},
    resource::Resources,
    truth::Truths,
};
use attempt::Attempt;

/// How many times a hold is checked while it is used.
const CHECKS: u32 = 4;

/// One task of a client.
pub(crate) struct User {
    /// The plan of the run.
    pub(crate) plan: Arc<Plan>,
    /// The process and the task.
    pub(crate) actor: Actor,
    /// Its process.
    pub(crate) host: Host,
    /// The locks of its process.
    pub(crate) locks: Locks,
    /// The journal that it records to.
    pub(crate) journal: Arc<Journal>,
    /// The resources that it writes to.
    pub(crate) resources: Arc<Resources>,
    /// The observer to which it reports its claims.
    pub(crate) truths: Arc<Truths>,
    /// Notified when core reports a renewal of holds of the process, successful or not.
    pub(crate) renewed: Arc<Notify>,
}

impl User {
    /// Runs the operations in order.
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

    /// Breaks the present hold of a name, as an operator does after looking up the holder.
    async fn break_hold(&self, name: &str, forced: bool) {
        if let Some(token) = self.truths.holder(name) {
            // The answer does not matter: the events that follow show whether the hold was broken.
            drop(self.locks.break_hold(name, token, forced).await);
        }
    }

    /// How much this client's clock advances while `world` passes on the world's clock.
    fn own_time(&self, world: Duration) -> Duration {
        let fast = self.plan.clients[self.actor.process.number() as usize - 1].fast;
        world.mul_f64(1.0 + fast as f64 / 1e6)
    }

    /// The world's time.
    fn now(&self) -> Instant {
        self.journal.scheduler().now()
    }
}
