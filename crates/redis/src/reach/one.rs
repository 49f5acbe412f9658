//! One server: one connection, made again and again.

use std::sync::{Arc, atomic::Ordering};

use leasehold_core::{BoxFuture, Contact, Dial, EngineError, Link, News};
use tokio::sync::Notify;

use crate::{
    conn::Conn,
    news::Ears,
    reach::Client,
    server::{Address, Server},
};

/// The server of the URL.
pub(crate) struct One(Link<Dialer>);

/// Connects to one server, again and again, for one client.
pub(crate) struct Dialer {
    pub(crate) client: Arc<Client>,
    pub(crate) server: Server,
    /// What this server pushes, and what its clock says.
    pub(crate) ears: Arc<Ears>,
}

impl One {
    pub(crate) fn new(client: &Arc<Client>, address: Address, contact: Contact) -> Self {
        let dialer = Dialer::new(client, client.config.server(address, 1));
        Self(Link::new(dialer, Arc::clone(&client.clock), contact))
    }

    pub(crate) async fn conn(&self) -> Result<Arc<Conn>, EngineError> {
        self.0.conn().await
    }

    pub(crate) fn ears(&self) -> &Ears {
        &self.0.dialer().ears
    }

    pub(crate) async fn mend(&self) {
        self.0.mend().await;
    }
}

impl Dialer {
    pub(crate) fn new(client: &Arc<Client>, server: Server) -> Self {
        let ears = Ears::new(&client.config.prefix, Arc::clone(&client.mailbox));
        Self { client: Arc::clone(client), server, ears }
    }

    /// To one of several servers that pass on what is published.
    pub(crate) fn of_many(client: &Arc<Client>, server: Server) -> Self {
        let ears = Ears::of_many(&client.config.prefix, Arc::clone(&client.mailbox));
        Self { client: Arc::clone(client), server, ears }
    }
}

impl Dial for Dialer {
    type Conn = Conn;

    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<Conn, EngineError>> {
        let number = self.client.connections.fetch_add(1, Ordering::Relaxed);
        Box::pin(Conn::open(self, number, broken))
    }

    fn is_dead(conn: &Conn) -> bool {
        conn.is_dead()
    }

    fn place(conn: &Conn) -> String {
        conn.place.clone()
    }

    fn connected(&self, _: &Arc<Conn>, again: bool) {
        if again {
            self.ears.mailbox.push(News::AskAll);
        }
    }
}
