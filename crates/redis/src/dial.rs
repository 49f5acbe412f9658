//! Connects to the server, again and again, for one client.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use leasehold_core::{BoxFuture, Clock, Dial, EngineError, News};
use tokio::sync::Notify;

use crate::{config::Config, conn::Conn, news::Ears};

/// The connection to the server, shared by all requests.
pub(crate) type Link = leasehold_core::Link<Dialer>;

pub(crate) struct Dialer {
    pub(crate) config: Config,
    pub(crate) channel: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ears: Arc<Ears>,
    /// Counts connections, also those that were not made.
    number: AtomicU64,
}

impl Dialer {
    pub(crate) fn new(config: Config, channel: String, clock: Arc<dyn Clock>, ears: Arc<Ears>) -> Self {
        Self { config, channel, clock, ears, number: AtomicU64::new(1) }
    }
}

impl Dial for Dialer {
    type Conn = Conn;

    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<Conn, EngineError>> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
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
