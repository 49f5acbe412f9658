//! Connects to the cluster: to the first member that serves.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

use leasehold_core::{BoxFuture, Clock, Dial, EngineError, Fault, dial_limit};
use tokio::sync::Notify;

use crate::{config::Config, conn::Conn, push_handler::PushHandler};

/// The connection to the cluster, shared by all requests.
pub(crate) type Link = leasehold_core::Link<Dialer>;

pub(crate) struct Dialer {
    pub(crate) config: Config,
    clock: Arc<dyn Clock>,
    hears: Weak<dyn PushHandler>,
    /// The member to begin with.
    next: AtomicUsize,
}

impl Dialer {
    /// `first` chooses the member to begin with: clients are to be spread over them.
    pub(crate) fn new(
        config: Config,
        clock: Arc<dyn Clock>,
        hears: Weak<dyn PushHandler>,
        first: usize,
    ) -> Self {
        let next = AtomicUsize::new(first % config.members.len().max(1));
        Self { config, clock, hears, next }
    }

    /// The first member, from the next one on, that serves; else what the last one that can be reached said.
    async fn first_that_serves(&self, broken: Arc<Notify>) -> Result<Conn, EngineError> {
        let members = &self.config.members;
        let limit = dial_limit(self.config.connect_timeout, members.len());
        let first = self.next.load(Ordering::Relaxed);
        let mut worst: Option<EngineError> = None;
        for at in first..first + members.len() {
            let member = &members[at % members.len()];
            let (clock, broken) = (Arc::clone(&self.clock), Arc::clone(&broken));
            let opening = Conn::open(&self.config, member, limit, clock, Weak::clone(&self.hears), broken);
            let error = match opening.await {
                Ok(conn) => {
                    // A member whose connection breaks is tried last.
                    self.next.store((at + 1) % members.len(), Ordering::Relaxed);
                    return Ok(conn);
                }
                Err(error) => error,
            };
            // That we are not let in says more than that a member is down.
            if worst.as_ref().is_none_or(|worst| worst.fault == Fault::Retry) {
                worst = Some(error);
            }
        }
        Err(worst.unwrap_or_else(|| EngineError::new(Fault::Misconfigured, "the URL names no member")))
    }
}

impl Dial for Dialer {
    type Conn = Conn;

    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<Conn, EngineError>> {
        Box::pin(self.first_that_serves(broken))
    }

    fn is_dead(conn: &Conn) -> bool {
        conn.is_dead()
    }

    fn place(conn: &Conn) -> String {
        conn.member.to_string()
    }

    fn connected(&self, _: &Arc<Conn>, again: bool) {
        if again && let Some(hears) = self.hears.upgrade() {
            hears.connected_again();
        }
    }
}
