//! The background task that asks nodes of a Redis Cluster for the owners of the slots (the map), one node after the
//! other.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::{EngineError, Fault};

use super::{cluster::ClusterState, node::Node, slots};
use crate::runtime;

/// The pause between two attempts to read the map. During the pause, redirections show the owners of single slots.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);
/// The time limit for the answer of one node.
const NODE_TIMEOUT: Duration = Duration::from_millis(1500);

/// The state of the task, and the result of its last attempt.
#[derive(Default)]
pub(crate) struct MapTask {
    is_running: bool,
    /// Whether a caller asked for the owners after the running attempt began.
    is_requested: bool,
    /// The error of the last attempt; `None` if that attempt read the map.
    last_error: Option<(Fault, String)>,
}

impl MapTask {
    /// Requests the owners of the slots. Starts the task, if it is not running; otherwise the task makes another
    /// attempt after the present one.
    pub(crate) fn request(cluster: &Weak<ClusterState>) {
        let Some(inner) = cluster.upgrade() else { return };
        {
            let mut map = inner.lock();
            map.task.is_requested = true;
            if std::mem::replace(&mut map.task.is_running, true) {
                return;
            }
        }
        // Started after the lock is released: a runtime that is shutting down drops the task at once, and the drop
        // takes the lock.
        runtime::detach(MapReader { cluster: Weak::clone(cluster), is_idle: false }.run());
    }

    /// The error of the last attempt.
    pub(crate) fn last_error(&self) -> Option<EngineError> {
        self.last_error.as_ref().map(|(fault, message)| EngineError::new(*fault, message.clone()))
    }
}

/// The running task: attempts to read the map until no caller wants the map. If the task is dropped before that, the
/// next request starts a new task.
struct MapReader {
    cluster: Weak<ClusterState>,
    /// Whether the task has ended because no caller wants the map.
    is_idle: bool,
}

impl MapReader {
    /// Reads the map for each request. For all requests that come during one attempt, reads the map once more after
    /// that attempt.
    async fn run(mut self) {
        loop {
            {
                let Some(cluster) = self.cluster.upgrade() else { return };
                {
                    let mut map = cluster.lock();
                    if !std::mem::take(&mut map.task.is_requested) {
                        map.task.is_running = false;
                        self.is_idle = true;
                        return;
                    }
                }
                let answer = read_map(&cluster).await;
                cluster.lock().task.last_error = answer.err().map(|error| (error.fault, error.message));
                cluster.map_attempt_ended.notify_waiters();
            }
            runtime::pause(ATTEMPT_PAUSE).await;
        }
    }
}

impl Drop for MapReader {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.upgrade().filter(|_| !self.is_idle) {
            cluster.lock().task.is_running = false;
            cluster.map_attempt_ended.notify_waiters();
        }
    }
}

/// Asks one node after another until one answers. If no node answers, returns the first error whose cause the user can
/// repair; without such an error, the error of the node that was asked last.
async fn read_map(cluster: &ClusterState) -> Result<(), EngineError> {
    let mut first_error: Option<EngineError> = None;
    for node in cluster.nodes_to_ask() {
        let answer = runtime::within(NODE_TIMEOUT * 2, read_map_from(cluster, &node)).await;
        let answer = answer.unwrap_or_else(|| Err(silent_error(&node)));
        match answer {
            Ok(()) => return Ok(()),
            Err(error) => {
                tracing::debug!(node = %node.endpoint, %error, "did not report the owners of the slots");
                let is_temporary = |error: &EngineError| error.fault == Fault::Retry;
                if first_error.as_ref().is_none_or(is_temporary) {
                    first_error = Some(error);
                }
            }
        }
    }
    Err(first_error
        .unwrap_or_else(|| EngineError::new(Fault::Retry, "no node of the Redis Cluster is known")))
}

/// Asks one node for the owners of the slots, and records them.
async fn read_map_from(cluster: &ClusterState, node: &Arc<Node>) -> Result<(), EngineError> {
    let conn = node.conn().await?;
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    // This limit is only for the answer: the attempt to connect has another one.
    let reply =
        runtime::within(NODE_TIMEOUT, conn.ask(&command)).await.unwrap_or_else(|| Err(silent_error(node)));
    let reply = reply.map_err(|error| not_a_node_error(error, cluster, node))?;
    cluster.set_owners(&slots::read_slots(reply, &node.endpoint.host)?, node)
}

/// The error of a node that did not answer in time.
fn silent_error(node: &Node) -> EngineError {
    EngineError::new(
        Fault::Retry,
        format!("{} has not reported the slots within {NODE_TIMEOUT:?}", node.endpoint),
    )
}

/// The error for a server that is not a node of a cluster; any other error stays as it is. The request only reads, so
/// an error with an unknown outcome becomes one to retry.
fn not_a_node_error(error: EngineError, cluster: &ClusterState, node: &Node) -> EngineError {
    let (endpoint, scheme) = (&node.endpoint, cluster.client.config.scheme());
    if error.message.contains("cluster support disabled") {
        let message = format!(
            "{endpoint} is a Redis server and no node of a Redis Cluster: write {scheme}://{endpoint} for it alone"
        );
        return EngineError::new(Fault::Misconfigured, message);
    }
    if error.message.contains("unknown command") {
        let message = format!(
            "{endpoint} is no node of a Redis Cluster: write {scheme}://{endpoint} for a server alone, {scheme}+sentinel://{endpoint}/MASTER for a Sentinel"
        );
        return EngineError::new(Fault::Misconfigured, message);
    }
    match error.fault {
        Fault::Unknown => EngineError { fault: Fault::Retry, ..error },
        _ => error,
    }
}
