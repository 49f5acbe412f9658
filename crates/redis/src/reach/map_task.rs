//! Asks nodes of a Redis Cluster who has which slots: in the background, one after the other, and not all the time.
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::{EngineError, Fault};

use super::{cluster::Inner, node::Node, slots};
use crate::runtime;

/// The pause after an answer, or when nobody gave one. Between two of them many requests are sent on from node to node, and need no
/// answer of this.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one node has for its answer.
const PATIENCE: Duration = Duration::from_millis(1500);

/// What became of asking.
#[derive(Default)]
pub(crate) struct MapTask {
    under_way: bool,
    /// Somebody wants to know what may have changed since it began.
    again: bool,
    failed: Option<(Fault, String)>,
}

impl MapTask {
    /// Asks, if nobody does. Those who ask meanwhile get the answer after.
    pub(crate) fn want(cluster: &Weak<Inner>) {
        let Some(inner) = cluster.upgrade() else { return };
        {
            let mut known = inner.lock();
            known.task.again = true;
            if std::mem::replace(&mut known.task.under_way, true) {
                return;
            }
        }
        // Not under the lock: a runtime that is shut down drops the task at once.
        runtime::detach(Asking { cluster: Weak::clone(cluster), ended: false }.run());
    }

    /// What the last attempt met.
    pub(crate) fn failed(&self) -> Option<EngineError> {
        self.failed.as_ref().map(|(fault, message)| EngineError::new(*fault, message.clone()))
    }
}

/// In whatever way it ends, the next who wants to know begins it anew.
struct Asking {
    cluster: Weak<Inner>,
    ended: bool,
}

impl Asking {
    async fn run(mut self) {
        loop {
            {
                let Some(cluster) = self.cluster.upgrade() else { return };
                {
                    let mut known = cluster.lock();
                    if !std::mem::take(&mut known.task.again) {
                        known.task.under_way = false;
                        self.ended = true;
                        return;
                    }
                }
                let answer = ask(&cluster).await;
                cluster.lock().task.failed = answer.err().map(|error| (error.fault, error.message));
                cluster.told.notify_waiters();
            }
            runtime::pause(PAUSE).await;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.upgrade().filter(|_| !self.ended) {
            cluster.lock().task.under_way = false;
            cluster.told.notify_waiters();
        }
    }
}

/// Asks until somebody answers. What is told of errors is the one that a user can do something about.
async fn ask(cluster: &Inner) -> Result<(), EngineError> {
    let mut met: Option<EngineError> = None;
    for node in cluster.witnesses() {
        let answer = runtime::within(PATIENCE * 2, ask_one(cluster, &node)).await;
        let answer = answer.unwrap_or_else(|| Err(silent(&node)));
        match answer {
            Ok(()) => return Ok(()),
            Err(error) => {
                tracing::debug!(node = %node.place, %error, "did not tell who has which slots");
                let is_plainer = |met: &EngineError| met.fault == Fault::Retry;
                if met.as_ref().is_none_or(is_plainer) {
                    met = Some(error);
                }
            }
        }
    }
    Err(met.unwrap_or_else(|| EngineError::new(Fault::Retry, "no node of the Redis Cluster is known")))
}

async fn ask_one(cluster: &Inner, node: &Arc<Node>) -> Result<(), EngineError> {
    let conn = node.conn().await?;
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    // An attempt to connect has its own limit.
    let said = runtime::within(PATIENCE, conn.ask(&command)).await.unwrap_or_else(|| Err(silent(node)));
    let said = said.map_err(|error| no_cluster(error, cluster, node))?;
    cluster.adopt(&slots::read(said, &node.place.host)?, node)
}

fn silent(node: &Node) -> EngineError {
    EngineError::new(Fault::Retry, format!("{} has not told its slots within {PATIENCE:?}", node.place))
}

/// Nothing was done, so that is no unknown outcome; and a server that is no node says so in its way.
fn no_cluster(error: EngineError, cluster: &Inner, node: &Node) -> EngineError {
    let (place, scheme) = (&node.place, cluster.client.config.scheme());
    if error.message.contains("cluster support disabled") {
        let message = format!(
            "{place} is a Redis server and no node of a Redis Cluster: write {scheme}://{place} for it alone"
        );
        return EngineError::new(Fault::Misconfigured, message);
    }
    if error.message.contains("unknown command") {
        let message = format!(
            "{place} is no node of a Redis Cluster: write {scheme}://{place} for a server alone, {scheme}+sentinel://{place}/MASTER for a Sentinel"
        );
        return EngineError::new(Fault::Misconfigured, message);
    }
    match error.fault {
        Fault::Unknown => EngineError { fault: Fault::Retry, ..error },
        _ => error,
    }
}
