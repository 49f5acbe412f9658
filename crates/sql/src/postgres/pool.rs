//! The connections of a client: few, each used by one statement or transaction at a time.

use std::{
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use leasehold_core::{Contact, Fault, Lineage};
use tokio::{
    sync::{Notify, Semaphore, SemaphorePermit},
    time::Instant,
};

use super::{config::Config, conn::Conn, notification_handler::NotificationHandler};
use crate::{
    client::lock_mutex,
    connection_slots::ConnectionSlots,
    database::{Failed, MissingTables, replaced},
    pool_wait::wait_for_returned,
    runtime,
};

/// How long a connection stays idle before it is closed, unless it is the only one.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// The connections of one client.
pub(crate) struct Pool {
    pub(crate) config: Config,
    pub(crate) contact: Contact,
    /// One permit for each connection that a request uses.
    permits: Semaphore,
    /// The idle connections, and since when; the one used last is used next.
    idle: Mutex<Vec<(Conn, Instant)>>,
    /// The lineage of the server that answered last: an answer of another one shows a fail-over.
    lineage: Mutex<Option<Lineage>>,
    /// What the server last reported of its connection slots.
    slots: Mutex<Option<ConnectionSlots>>,
    /// Notified when a connection becomes idle or is closed.
    returned: Notify,
    /// Receives the notifications of all connections.
    handler: Weak<dyn NotificationHandler>,
}

/// A connection taken out of the pool. Unless it is [given back](Self::give_back), dropping it closes the connection,
/// which is possibly in the middle of a transaction.
pub(crate) struct Borrowed<'a> {
    pub(crate) conn: Conn,
    pool: &'a Pool,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub(crate) fn new(config: Config, handler: Weak<dyn NotificationHandler>) -> Arc<Self> {
        let (contact, idle, lineage, slots, returned) = Default::default();
        let permits = Semaphore::new(config.connections);
        Arc::new(Self { config, contact, permits, idle, lineage, slots, returned, handler })
    }

    /// Borrows a connection, for a request that does not wait for other clients for long; creates missing tables.
    pub(crate) async fn borrow(&self) -> Result<Borrowed<'_>, Failed> {
        self.borrow_with(MissingTables::Create).await
    }

    /// Borrows a connection.
    pub(crate) async fn borrow_with(&self, missing_tables: MissingTables) -> Result<Borrowed<'_>, Failed> {
        // Borrows the listening connection only if no other connection is idle.
        self.borrow_idle(missing_tables, |idle| last_not_listening(idle).or(idle.len().checked_sub(1))).await
    }

    /// Borrows a connection that does not listen, because notifications do not arrive during a transaction.
    pub(crate) async fn borrow_not_listening(&self) -> Result<Borrowed<'_>, Failed> {
        self.borrow_idle(MissingTables::Create, last_not_listening).await
    }

    /// Borrows the listening connection, if it is idle.
    pub(crate) fn borrow_listening(&self) -> Option<Borrowed<'_>> {
        let permit = self.permits.try_acquire().ok()?;
        let mut idle = lock_mutex(&self.idle);
        let index = idle.iter().position(|(conn, _)| conn.listens())?;
        let (conn, _) = idle.remove(index);
        Some(Borrowed { conn, pool: self, _permit: permit })
    }

    /// Borrows the idle connection that `choose` chooses by its index, or opens one.
    async fn borrow_idle(
        &self,
        missing_tables: MissingTables,
        choose: impl Fn(&[(Conn, Instant)]) -> Option<usize>,
    ) -> Result<Borrowed<'_>, Failed> {
        // The semaphore is never closed.
        let permit = self.permits.acquire().await.map_err(|_| Failed::new(Fault::Retry, "closed"))?;
        let idle = {
            let mut idle = lock_mutex(&self.idle);
            idle.retain(|(conn, _)| !conn.is_closed());
            choose(&idle).map(|index| idle.remove(index))
        };
        let conn = match idle {
            Some((mut conn, _)) if conn.may_lead_elsewhere() => {
                conn.find_tables(&self.config, missing_tables).await?;
                self.note_tables(&conn);
                conn
            }
            Some((conn, _)) => conn,
            None => match self.open(missing_tables).await {
                Err(full) if full.fault == Fault::Full => self.wait_for_existing().await.ok_or(full)?,
                opened => opened?,
            },
        };
        Ok(Borrowed { conn, pool: self, _permit: permit })
    }

    /// Opens a connection.
    async fn open(&self, missing_tables: MissingTables) -> Result<Conn, Failed> {
        let opened = Conn::open(&self.config, missing_tables, Weak::clone(&self.handler)).await;
        let conn = opened.inspect_err(|failed| self.contact.record_failure(failed.fault, &failed.message))?;
        self.contact.record_connected_to(&self.config.server.address.to_string());
        self.note_tables(&conn);
        Ok(conn)
    }

    /// Takes an idle connection, even the listening one, or waits until another request returns one. Called when the
    /// server accepts no more connections: a missing connection must not let a hold expire or a release fail. `None` if
    /// no other request uses a connection, or if none is returned in time.
    async fn wait_for_existing(&self) -> Option<Conn> {
        let take_idle =
            || lock_mutex(&self.idle).pop().map(|(conn, _)| conn).filter(|conn| !conn.may_lead_elsewhere());
        if let Some(conn) = take_idle() {
            return Some(conn);
        }
        // If no other request uses a connection, there is no connection to wait for.
        if self.config.connections - 1 == self.permits.available_permits() {
            return None;
        }
        wait_for_returned(&self.returned, take_idle).await
    }

    /// Whether the tables exist, and are as leasehold makes them. Creates none.
    pub(crate) async fn has_tables(&self) -> Result<bool, Failed> {
        let borrowed = self.borrow_with(MissingTables::Leave).await?;
        let exist = borrowed.conn.has_tables();
        borrowed.give_back()?;
        Ok(exist)
    }

    /// The connection slots at the server's last report.
    pub(crate) fn connection_slots(&self) -> Option<ConnectionSlots> {
        *lock_mutex(&self.slots)
    }

    /// Stores what the server reports of its connection slots.
    pub(crate) fn note_connection_slots(&self, slots: Option<ConnectionSlots>) {
        *lock_mutex(&self.slots) = slots;
    }

    /// Closes all idle connections, without a report to the listener.
    pub(crate) fn close_idle_connections(&self) {
        for (conn, _) in lock_mutex(&self.idle).drain(..) {
            conn.suppress_report();
        }
    }

    /// Closes connections that were idle for long, except for one: the listening one, or the one used last.
    pub(crate) fn close_unused(&self) {
        let mut idle = lock_mutex(&self.idle);
        let now = runtime::now();
        let kept_index = idle.iter().rposition(|(conn, _)| conn.listens()).or(idle.len().checked_sub(1));
        let mut index = 0..;
        idle.retain(|(_, since)| index.next() == kept_index || now.duration_since(*since) < MAX_IDLE);
    }

    /// Records the lineage of the tables that a connection leads to. If the lineage has changed, another server answers
    /// now: then closes the idle connections, which lead to its predecessor.
    fn note_tables(&self, conn: &Conn) {
        if !conn.can_lock() {
            return;
        }
        if let Some(slots) = conn.connection_slots() {
            self.note_connection_slots(Some(slots));
        }
        let lineage = conn.lineage();
        let previous = lock_mutex(&self.lineage).replace(lineage);
        if previous.is_some_and(|previous| previous != lineage) {
            lock_mutex(&self.idle).clear();
        }
    }

    /// The lineage of the server that answered last; zero before the first connection.
    pub(crate) fn lineage(&self) -> Lineage {
        lock_mutex(&self.lineage).unwrap_or(Lineage::new(0))
    }
}

/// The index of the connection used last among those that do not listen.
fn last_not_listening(idle: &[(Conn, Instant)]) -> Option<usize> {
    idle.iter().rposition(|(conn, _)| !conn.listens())
}

impl Borrowed<'_> {
    /// Returns the connection to the pool.
    ///
    /// # Errors
    /// If another server has replaced the server of this connection by now: then the answers on this connection do not
    /// count.
    pub(crate) fn give_back(self) -> Result<(), Failed> {
        let Self { conn, pool, _permit } = self;
        // A connection without tables, or to a replica, must not be used for a lock.
        if !conn.can_lock() {
            return Ok(());
        }
        if conn.lineage() != pool.lineage() {
            return Err(replaced());
        }
        lock_mutex(&pool.idle).push((conn, runtime::now()));
        pool.returned.notify_one();
        pool.close_unused();
        Ok(())
    }
}
