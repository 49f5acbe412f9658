//! One server, and the connection to this server, which is made again when the connection breaks.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use leasehold_core::{BoxFuture, Contact, Dial, EngineError, Fault, Link, Notification};
use tokio::sync::Notify;

use crate::{
    conn::Conn,
    identity::ServerKind,
    push_listener::PushListener,
    reach::Client,
    server::{Address, Server},
    servers::Servers,
};

/// The only server of the URL, or one node of a Redlock.
pub(crate) struct OneServer(Link<Dialer>);

/// Makes connections to one server, for one client.
pub(crate) struct Dialer {
    pub(crate) client: Arc<Client>,
    /// The address and login of the server.
    pub(crate) server: Server,
    /// Handles the pushes of this server, and knows its clock.
    pub(crate) listener: Arc<PushListener>,
    /// The kind of server that is accepted.
    pub(crate) wanted: ServerKind,
    /// An answer that took longer than this does not prove the state of the locks; `None`: every answer does.
    pub(crate) evidence_limit: Option<Duration>,
}

impl OneServer {
    pub(crate) fn new(client: &Arc<Client>, address: Address, contact: Contact) -> Self {
        let dialer = Dialer::new(client, client.config.server(address, 1));
        Self(Link::new(dialer, Arc::clone(&client.clock), contact))
    }

    /// A node of a Redlock: one of several servers that know nothing of each other. The Redlock, which has `contact`,
    /// records whether any node was reached.
    pub(crate) fn independent(client: &Arc<Client>, server: Server, contact: &Contact) -> Self {
        let dialer = Dialer { wanted: ServerKind::RedlockNode, ..Dialer::new(client, server) };
        Self(Link::new(dialer, Arc::clone(&client.clock), contact.of_one_server()))
    }

    /// The connection, which is made if there is none.
    pub(crate) async fn conn(&self) -> Result<Arc<Conn>, EngineError> {
        self.0.conn().await
    }

    /// The connection, if there is one now.
    pub(crate) fn live_conn(&self) -> Option<Arc<Conn>> {
        self.0.live()
    }

    /// The handler of the pushes of this server.
    pub(crate) fn listener(&self) -> &PushListener {
        &self.0.dialer().listener
    }

    /// Makes a broken connection again, in the background. Never returns.
    pub(crate) async fn mend(&self) {
        self.0.mend().await;
    }

    /// Ends a connection to a server that reports that it is not a master. The next request resolves the host name
    /// again, which may then lead to the new master. Returns the error for the refused request.
    pub(crate) fn handle_demotion(&self, connection: u64, error: EngineError) -> EngineError {
        // A server that never was a master has lost no hold.
        let was_master = self.listener().process.was_master();
        hang_up(&self.0, connection, was_master.then_some(self.listener()));
        if was_master { EngineError::new(Fault::Retry, error.message) } else { error }
    }
}

/// Ends the connection with this number, and with a `doubt_listener` tells the keeper through that listener that all
/// holds are in doubt. Does nothing if there is a newer connection, or none.
pub(crate) fn hang_up<D: Dial<Conn = Conn>>(
    link: &Link<D>,
    connection: u64,
    doubt_listener: Option<&PushListener>,
) {
    if link.live().is_some_and(|conn| conn.number == connection) {
        link.hang_up();
        if let Some(listener) = doubt_listener {
            listener.mailbox.push(Notification::Doubt);
        }
    }
}

impl Dialer {
    /// A dialer for this server, with a new listener.
    pub(crate) fn new(client: &Arc<Client>, server: Server) -> Self {
        Self::with_listener(client, server, client.listener())
    }

    /// A dialer for this server, with this listener.
    pub(crate) fn with_listener(client: &Arc<Client>, server: Server, listener: Arc<PushListener>) -> Self {
        let wanted = match client.config.servers {
            Servers::One(_) => ServerKind::Single,
            Servers::Sentinel(_) => ServerKind::SentinelMaster,
            Servers::Cluster(_) => ServerKind::ClusterNode,
        };
        Self { client: Arc::clone(client), server, listener, wanted, evidence_limit: None }
    }
}

impl Dial for Dialer {
    type Conn = Conn;

    /// `broken` is notified when the connection breaks.
    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<Conn, EngineError>> {
        let number = self.client.next_connection.fetch_add(1, Ordering::Relaxed);
        Box::pin(Conn::open(self, number, broken, Box::pin(std::future::pending())))
    }

    fn is_dead(conn: &Conn) -> bool {
        conn.is_dead()
    }

    /// The address of the Redis server, for errors.
    fn address(conn: &Conn) -> String {
        conn.address.clone()
    }

    fn connected(&self, _: &Arc<Conn>, again: bool) {
        // Notifications may be lost: all waiting claims ask again.
        if again {
            self.listener.mailbox.push(Notification::AskAll);
        }
    }
}
