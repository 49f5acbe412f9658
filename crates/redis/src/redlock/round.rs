//! Asks nodes at once, and waits for no more of them than decide.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use leasehold_core::BoxFuture;

use super::node::Node;
use crate::{conn::Conn, runtime};

/// A request that is under way to a node: of this number, on this connection.
pub(super) struct Asking<T> {
    pub(super) at: usize,
    pub(super) node: Arc<Node>,
    pub(super) conn: Arc<Conn>,
    pub(super) answer: BoxFuture<'static, T>,
}

/// Hears answers in the order in which they come, until `hear` says that it is enough, all are there, or the time is over. What is
/// still under way then goes on by itself, for a request that left is done whoever waits for it; and who was late is not waited for again
/// before it answers.
pub(super) async fn round<T: Send + 'static>(
    asking: Vec<Asking<T>>,
    limit: Duration,
    mut hear: impl FnMut(usize, T) -> bool,
) {
    let mut open: Vec<(usize, Arc<Node>, u64)> = Vec::with_capacity(asking.len());
    let mut answers: FuturesUnordered<BoxFuture<'static, (usize, T)>> = FuturesUnordered::new();
    for Asking { at, node, conn, answer } in asking {
        open.push((at, node, conn.number));
        answers.push(Box::pin(async move { (at, answer.await) }));
    }
    let mut over = std::pin::pin!(runtime::pause(limit));
    loop {
        tokio::select! {
            biased;
            answer = answers.next() => match answer {
                Some((at, answer)) => {
                    open.retain(|(open, ..)| *open != at);
                    if hear(at, answer) {
                        break;
                    }
                }
                None => return,
            },
            () = &mut over => {
                open.iter().for_each(|(_, node, connection)| node.is_late(*connection));
                break;
            }
        }
    }
    if !answers.is_empty() {
        runtime::detach(async move { while answers.next().await.is_some() {} });
    }
}
