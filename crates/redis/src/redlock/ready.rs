//! Checks before each request: enough nodes are connected, and they are servers of the right kind.

use std::{collections::HashMap, sync::atomic::Ordering};

use futures_util::{StreamExt, stream::FuturesUnordered};
use leasehold_core::{EngineError, Fault};

use super::engine::RedlockEngine;
use crate::runtime;

impl RedlockEngine {
    /// Waits until a majority of the nodes is connected. The first time, also waits a moment for the other nodes, so
    /// that wrong ones are found.
    ///
    /// # Errors
    /// There is no majority; or nodes are one server, or are not independent masters.
    pub(super) async fn ready(&self) -> Result<(), EngineError> {
        let live = self.connected();
        if live < self.nodes.len() {
            self.nodes.iter().for_each(|node| node.dial());
            if live < self.quorum() || !self.was_connected.load(Ordering::Acquire) {
                self.connect().await?;
            }
        }
        if !self.was_connected.swap(true, Ordering::AcqRel) {
            self.contact.record_connected();
        }
        self.duplicate_server().map_or(Ok(()), Err)
    }

    /// How many nodes are connected and answer in time.
    pub(super) fn live(&self) -> usize {
        self.nodes.iter().filter(|node| node.live().is_some()).count()
    }

    /// How many nodes are connected.
    fn connected(&self) -> usize {
        self.nodes.iter().filter(|node| node.conn().is_some()).count()
    }

    /// Connects to the nodes that are not connected, until a majority is.
    async fn connect(&self) -> Result<(), EngineError> {
        let dial = |node: &std::sync::Arc<super::node::Node>| {
            let node = std::sync::Arc::clone(node);
            async move { node.connect().await }
        };
        let mut dialed: FuturesUnordered<_> =
            self.nodes.iter().filter(|node| node.conn().is_none()).map(dial).collect();
        let mut errors = Vec::new();
        while self.connected() < self.quorum() {
            match dialed.next().await {
                Some(Ok(())) => {}
                Some(Err(error)) => errors.push(error),
                None => break,
            }
        }
        if self.connected() >= self.quorum() {
            let rest = async { while dialed.next().await.is_some() {} };
            runtime::within(self.first_timeout(), rest).await;
        }
        if let Some(wrong_kind) = self.nodes.iter().find_map(|node| node.wrong_kind()) {
            return Err(wrong_kind);
        }
        if self.connected() >= self.quorum() {
            return Ok(());
        }
        let (live, nodes) = (self.connected(), self.nodes.len());
        let is_permanent = |error: &&EngineError| !matches!(error.fault, Fault::Retry | Fault::Unknown);
        let fault = errors.iter().find(is_permanent).map_or(Fault::Retry, |error| error.fault);
        let messages: Vec<_> = errors.iter().map(|error| error.message.as_str()).collect();
        let message = format!("{live} of {nodes} nodes can be asked: {}", messages.join("; "));
        self.contact.record_failure(fault, &message);
        Err(EngineError::new(fault, message))
    }

    /// The error if two names lead to one server.
    fn duplicate_server(&self) -> Option<EngineError> {
        let mut known = HashMap::new();
        for node in self.nodes.iter().filter(|node| node.conn().is_some()) {
            let Some((run, _)) = node.process() else { continue };
            if let Some(other) = known.insert(run, &node.address) {
                let message = format!(
                    "{other} and {} lead to one server, whose vote would count twice: name independent masters",
                    node.address
                );
                return Some(EngineError::new(Fault::Misconfigured, message));
            }
        }
        None
    }
}
