//! The connections of a client: few, each used by one statement or transaction at a time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Clock, Contact, Fault, Lineage};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::{config::Config, conn::Conn};
use crate::{
    client::lock_mutex,
    connection_slots::ConnectionSlots,
    database::{Failed, MissingTables, replaced},
    pool_wait::wait_for_returned,
};

/// A connection that was silent for longer than this is closed: otherwise the server, or a proxy in front of the
/// server, would close the connection soon.
const MAX_IDLE: Duration = Duration::from_secs(30);
/// A connection that was silent for longer than this gets a ping first. Without the ping, the outcome of a statement to
/// a server that was restarted meanwhile would be unknown.
const PING_AFTER: Duration = Duration::from_secs(1);

/// The connections of one client.
pub(super) struct Pool {
    config: Config,
    pub(super) contact: Contact,
    clock: Arc<dyn Clock>,
    /// One permit for each connection that a request uses.
    permits: Semaphore,
    idle: Mutex<Vec<Conn>>,
    /// The lineage of the server that answered last: an answer of another one shows a fail-over.
    lineage: Mutex<Option<Lineage>>,
    /// What the server last reported of its connection slots.
    slots: Mutex<Option<ConnectionSlots>>,
    /// Notified when a connection becomes idle.
    returned: Notify,
    /// Whether a connection broke since the last poll for grants.
    connections_broke: AtomicBool,
}

/// A connection taken out of the pool. Unless it is [given back](Self::give_back), dropping it closes the connection,
/// which is possibly in the middle of a transaction.
pub(super) struct Borrowed<'a> {
    pub(super) conn: Conn,
    pool: &'a Pool,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(config: Config, clock: Arc<dyn Clock>) -> Self {
        let (contact, idle, lineage, slots, returned, connections_broke) = Default::default();
        let permits = Semaphore::new(config.connections);
        Self { config, contact, clock, permits, idle, lineage, slots, returned, connections_broke }
    }

    /// Borrows a connection; creates missing tables.
    pub(super) async fn borrow(&self) -> Result<Borrowed<'_>, Failed> {
        self.borrow_with(MissingTables::Create).await
    }

    /// Borrows an idle connection that still works, or opens one.
    pub(super) async fn borrow_with(&self, missing_tables: MissingTables) -> Result<Borrowed<'_>, Failed> {
        // The semaphore is never closed.
        let permit = self.permits.acquire().await.map_err(|_| Failed::new(Fault::Retry, "closed"))?;
        loop {
            let now = self.clock.now();
            let idle = {
                let mut idle = lock_mutex(&self.idle);
                idle.retain(|conn| now < conn.last_answer.after(MAX_IDLE));
                // Borrows the connection that was used last, so that the other connections can stay silent and be
                // closed.
                idle.pop()
            };
            let mut conn = match idle {
                Some(conn) => conn,
                None => match self.open(missing_tables).await {
                    Err(full) if full.fault == Fault::Full => self.wait_for_idle().await.ok_or(full)?,
                    opened => opened?,
                },
            };
            if now < conn.last_answer.after(PING_AFTER) || conn.answers_ping().await {
                return Ok(Borrowed { conn, pool: self, _permit: permit });
            }
        }
    }

    /// Opens a connection.
    async fn open(&self, missing_tables: MissingTables) -> Result<Conn, Failed> {
        let opened = Conn::open(&self.config, self.clock.now(), missing_tables).await;
        let conn = opened.inspect_err(|failed| self.contact.record_failure(failed.fault, &failed.message))?;
        self.contact.record_connected_to(&self.config.address());
        if !conn.can_lock() {
            return Ok(conn);
        }
        self.note_connection_slots(conn.connection_slots());
        let previous = lock_mutex(&self.lineage).replace(conn.lineage());
        if previous.is_some_and(|previous| previous != conn.lineage()) {
            // Another server answers now: connections to its predecessor are useless.
            lock_mutex(&self.idle).clear();
        }
        Ok(conn)
    }

    /// Waits for a connection that another request of this client uses right now. Called when the server accepts no
    /// more connections: a missing connection must not let a hold expire or a release fail. `None` if no other request
    /// uses a connection, or if none is returned in time.
    async fn wait_for_idle(&self) -> Option<Conn> {
        if self.config.connections - 1 == self.permits.available_permits() {
            return None;
        }
        wait_for_returned(&self.returned, || lock_mutex(&self.idle).pop()).await
    }

    /// The address of the server, and the login.
    pub(super) const fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the tables exist, and are as leasehold makes them. Creates none.
    pub(super) async fn has_tables(&self) -> Result<bool, Failed> {
        let borrowed = self.borrow_with(MissingTables::Leave).await?;
        let exist = borrowed.conn.has_tables();
        borrowed.give_back()?;
        Ok(exist)
    }

    /// The connection slots at the server's last report.
    pub(super) fn connection_slots(&self) -> Option<ConnectionSlots> {
        *lock_mutex(&self.slots)
    }

    /// Stores what the server reports of its connection slots.
    pub(super) fn note_connection_slots(&self, slots: Option<ConnectionSlots>) {
        *lock_mutex(&self.slots) = slots;
    }

    /// Closes all idle connections.
    pub(super) fn close_idle_connections(&self) {
        lock_mutex(&self.idle).clear();
    }

    /// Records that a connection broke, and closes the idle connections, which most likely broke, too.
    pub(super) fn note_broken(&self) {
        lock_mutex(&self.idle).clear();
        self.connections_broke.store(true, Ordering::Relaxed);
    }

    /// Whether a connection broke since the last call.
    pub(super) fn broke_since_last_call(&self) -> bool {
        self.connections_broke.swap(false, Ordering::Relaxed)
    }

    /// The lineage of the tables on this server; zero before the first connection.
    pub(super) fn lineage(&self) -> Lineage {
        lock_mutex(&self.lineage).unwrap_or(Lineage::new(0))
    }
}

impl Borrowed<'_> {
    /// Returns the connection to the pool.
    ///
    /// # Errors
    /// If another server has replaced the server of this connection by now: then the answers on this connection do not
    /// count.
    pub(super) fn give_back(self) -> Result<(), Failed> {
        let Self { mut conn, pool, _permit } = self;
        // A connection without tables, or to a replica, must not be used for a lock.
        if !conn.can_lock() {
            return Ok(());
        }
        if conn.lineage() != pool.lineage() {
            return Err(replaced());
        }
        if !conn.is_closed() {
            conn.last_answer = pool.clock.now();
            lock_mutex(&pool.idle).push(conn);
            pool.returned.notify_one();
        }
        Ok(())
    }
}
