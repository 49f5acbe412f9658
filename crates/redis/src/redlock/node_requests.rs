//! Asks all nodes at the same time, and waits only until enough answers have come to decide.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use leasehold_core::BoxFuture;

use super::node::Node;
use crate::{conn::Conn, runtime};

/// A request in flight to a node.
pub(super) struct NodeRequest<T> {
    /// The number of the node.
    pub(super) index: usize,
    pub(super) node: Arc<Node>,
    /// The connection of the request.
    pub(super) conn: Arc<Conn>,
    /// Waits for the answer.
    pub(super) answer: BoxFuture<'static, T>,
}

/// Passes answers to `on_answer` in the order in which they arrive, until `on_answer` returns true, all answers have
/// arrived, or `timeout` is over. Requests in flight then continue in the background, because a node executes a request
/// whether or not a caller waits. Nodes that have not answered in time are marked as late.
pub(super) async fn collect_answers<T: Send + 'static>(
    requests: Vec<NodeRequest<T>>,
    timeout: Duration,
    mut on_answer: impl FnMut(usize, T) -> bool,
) {
    // The nodes that have not answered: number, node, number of the connection.
    let mut unanswered: Vec<(usize, Arc<Node>, u64)> = Vec::with_capacity(requests.len());
    let mut answers: FuturesUnordered<BoxFuture<'static, (usize, T)>> = FuturesUnordered::new();
    for NodeRequest { index, node, conn, answer } in requests {
        unanswered.push((index, node, conn.number));
        answers.push(Box::pin(async move { (index, answer.await) }));
    }
    let mut time_over = std::pin::pin!(runtime::pause(timeout));
    loop {
        tokio::select! {
            biased;
            answer = answers.next() => match answer {
                Some((index, answer)) => {
                    unanswered.retain(|(unanswered, ..)| *unanswered != index);
                    if on_answer(index, answer) {
                        break;
                    }
                }
                None => return,
            },
            () = &mut time_over => {
                unanswered.iter().for_each(|(_, node, connection)| node.mark_late(*connection));
                break;
            }
        }
    }
    if !answers.is_empty() {
        runtime::detach(async move { while answers.next().await.is_some() {} });
    }
}
