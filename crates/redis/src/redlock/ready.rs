//! Checks before each request: enough nodes are connected, and they are servers of the right kind.

use std::{collections::HashMap, sync::atomic::Ordering};

use futures_util::{StreamExt, stream::FuturesUnordered};
use leasehold_core::{EngineError, Fault};

use super::engine::RedlockEngine;
use crate::runtime;

impl RedlockEngine {
    /// Waits until a majority of the nodes is connected. The first time, it also waits a moment for the other nodes, so
    /// that servers of the wrong kind among them are found.
    ///
    /// # Errors
    /// No majority is connected; or two nodes are the same server; or nodes are not independent masters.
    pub(super) async fn wait_until_ready(&self) -> Result<(), EngineError> {
        let connected = self.connected_count();
        if connected < self.nodes.len() {
            self.nodes.iter().for_each(|node| node.dial());
            if connected < self.quorum() || !self.was_connected.load(Ordering::Acquire) {
                self.connect().await?;
            }
        }
        if !self.was_connected.swap(true, Ordering::AcqRel) {
            self.contact.record_connected();
        }
        self.duplicate_server().map_or(Ok(()), Err)
    }

    /// How many nodes are connected and answer in time.
    pub(super) fn responsive_count(&self) -> usize {
        self.nodes.iter().filter(|node| node.responsive_conn().is_some()).count()
    }

    /// How many nodes are connected.
    fn connected_count(&self) -> usize {
        self.nodes.iter().filter(|node| node.conn().is_some()).count()
    }

    /// Connects to the nodes that are not connected, until a majority is connected; then waits a moment for the others.
    async fn connect(&self) -> Result<(), EngineError> {
        let connect = |node: &std::sync::Arc<super::node::Node>| {
            let node = std::sync::Arc::clone(node);
            async move { node.connect().await }
        };
        let mut attempts: FuturesUnordered<_> =
            self.nodes.iter().filter(|node| node.conn().is_none()).map(connect).collect();
        let mut errors = Vec::new();
        while self.connected_count() < self.quorum() {
            match attempts.next().await {
                Some(Ok(())) => {}
                Some(Err(error)) => errors.push(error),
                None => break,
            }
        }
        if self.connected_count() >= self.quorum() {
            let remaining = async { while attempts.next().await.is_some() {} };
            runtime::within(self.first_contact_timeout(), remaining).await;
        }
        if let Some(wrong_kind) = self.nodes.iter().find_map(|node| node.wrong_kind_error()) {
            return Err(wrong_kind);
        }
        if self.connected_count() >= self.quorum() {
            return Ok(());
        }
        let (connected, nodes) = (self.connected_count(), self.nodes.len());
        let is_permanent = |error: &&EngineError| !matches!(error.fault, Fault::Retry | Fault::Unknown);
        let fault = errors.iter().find(is_permanent).map_or(Fault::Retry, |error| error.fault);
        let messages: Vec<_> = errors.iter().map(|error| error.message.as_str()).collect();
        let message = format!("{connected} of {nodes} nodes can be asked: {}", messages.join("; "));
        self.contact.record_failure(fault, &message);
        Err(EngineError::new(fault, message))
    }

    /// The error if two addresses of the URL lead to the same server.
    fn duplicate_server(&self) -> Option<EngineError> {
        let mut addresses = HashMap::new();
        for node in self.nodes.iter().filter(|node| node.conn().is_some()) {
            let Some((run_id, _)) = node.run_id_and_start() else { continue };
            if let Some(other) = addresses.insert(run_id, &node.address) {
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
