//! Asks nodes of a Redis Cluster for the owners of the slots: in the background, one node after the other, with pauses.
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::{EngineError, Fault};

use super::{cluster::Inner, node::Node, slots};
use crate::runtime;

/// The pause after an answer, or when no node gave one. Between two answers many requests are redirected from node to
/// node, and need no answer to this question.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one node has for its answer.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The state and the last result of this task.
#[derive(Default)]
pub(crate) struct MapTask {
    under_way: bool,
    /// A caller wants to know of changes since the running attempt began.
    again: bool,
    failed: Option<(Fault, String)>,
}

impl MapTask {
    /// Starts an attempt, if none is running. Callers during an attempt get the result of the next one.
    pub(crate) fn want(cluster: &Weak<Inner>) {
        let Some(inner) = cluster.upgrade() else { return };
        {
            let mut known = inner.lock();
            known.task.again = true;
            if std::mem::replace(&mut known.task.under_way, true) {
                return;
            }
        }
        // Not under the lock: a runtime that is shutting down drops the task at once.
        runtime::detach(Asking { cluster: Weak::clone(cluster), ended: false }.run());
    }

    /// The error of the last attempt.
    pub(crate) fn failed(&self) -> Option<EngineError> {
        self.failed.as_ref().map(|(fault, message)| EngineError::new(*fault, message.clone()))
    }
}

/// However it ends, the next request starts a new one.
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

/// Asks until a node answers. Of several errors, the one that the user can repair is reported.
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

/// Nothing was done, so the outcome is not unknown. A server that is no node says so with an error of its own.
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
