//! Connects to the first member that serves.

use std::sync::{Arc, Weak};

use leasehold_core::{BoxFuture, Clock, Dial, EngineError, Rotation, dial_limit};
use tokio::sync::Notify;

use crate::{config::Config, conn::Conn, push_handler::PushHandler};

/// The connection to the cluster, shared by all requests.
pub(crate) type Link = leasehold_core::Link<Dialer>;

/// Connects the link of a client to a member.
pub(crate) struct Dialer {
    pub(crate) config: Config,
    clock: Arc<dyn Clock>,
    /// Receives the notifications of each connection.
    handler: Weak<dyn PushHandler>,
    /// Which member is tried next.
    rotation: Rotation,
}

impl Dialer {
    /// `first_member` chooses the first member to try, so that clients spread over the members.
    pub(crate) fn new(
        config: Config,
        clock: Arc<dyn Clock>,
        handler: Weak<dyn PushHandler>,
        first_member: usize,
    ) -> Self {
        Self { config, clock, handler, rotation: Rotation::new(first_member) }
    }
}

impl Dial for Dialer {
    type Conn = Conn;

    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<Conn, EngineError>> {
        Box::pin(async move {
            let members = &self.config.members;
            let limit = dial_limit(self.config.connect_timeout, members.len());
            let open = |member| {
                let (clock, broken) = (Arc::clone(&self.clock), Arc::clone(&broken));
                Conn::open(&self.config, member, limit, clock, Weak::clone(&self.handler), broken)
            };
            self.rotation.connect(members, open, || false).await
        })
    }

    fn is_dead(conn: &Conn) -> bool {
        conn.is_dead()
    }

    fn address(conn: &Conn) -> String {
        conn.member.to_string()
    }

    fn connected(&self, _: &Arc<Conn>, is_reconnect: bool) {
        if is_reconnect && let Some(handler) = self.handler.upgrade() {
            handler.on_reconnected();
        }
    }
}
