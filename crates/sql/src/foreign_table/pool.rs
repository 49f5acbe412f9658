//! The connections of a client to the table of another program: few, each used by one request at a time.

use std::sync::{Arc, Mutex};

use leasehold_core::{Clock, Fault, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::store::{Access, Connection, Connector};
use crate::{client::lock_mutex, database::Failed, pool_wait::wait_for_returned};

/// How long a connection stays idle before it is closed: less than the time after which servers and proxies close idle
/// connections, and so short that a pooler or a name that leads to another server is noticed.
const MAX_IDLE: std::time::Duration = std::time::Duration::from_secs(10);

/// An idle connection, and since when.
type Idle = (Box<dyn Connection>, Instant);

/// The connections of one client.
pub(crate) struct Pool {
    pub(crate) connector: Box<dyn Connector>,
    clock: Arc<dyn Clock>,
    /// How many connections there are at most.
    most: usize,
    /// One permit for each connection that a request uses.
    permits: Arc<Semaphore>,
    /// Limits the requests that wait for the row of a name, so that renewals and releases find a connection.
    row_wait_permits: Arc<Semaphore>,
    /// Connections that were opened for locks.
    idle: Mutex<Vec<Idle>>,
    /// Notified when a connection becomes idle.
    returned: Notify,
}

/// A connection taken out of the pool. Unless it is [given back](Self::give_back), dropping it closes it: it is
/// possibly in the middle of a transaction.
pub(crate) struct Borrowed {
    pub(crate) conn: Box<dyn Connection>,
    /// What the connection was opened for: what locks need was checked only if it was opened for locks.
    opened_for: Access,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// A pool of `most` connections at most: two at least.
    pub(crate) fn new(connector: Box<dyn Connector>, clock: Arc<dyn Clock>, most: usize) -> Self {
        let (idle, returned) = Default::default();
        let (permits, row_wait_permits) =
            (Arc::new(Semaphore::new(most)), Arc::new(Semaphore::new(most - 1)));
        Self { connector, clock, most, permits, row_wait_permits, idle, returned }
    }

    /// Waits until a request may wait for the row of a name. To be called before [`borrow`](Self::borrow).
    pub(crate) async fn row_wait(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.row_wait_permits).acquire_owned().await.ok()
    }

    /// Borrows an idle connection, or opens one.
    pub(crate) async fn borrow(self: &Arc<Self>, access: Access) -> Result<Borrowed, Failed> {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| Failed::new(Fault::Retry, "closed"))?;
        let (conn, opened_for) = match self.take_idle() {
            Some(conn) => (conn, Access::Lock),
            None => match self.open(access).await {
                // A missing connection must not end a hold: another request of this client gives one back soon.
                Err(full)
                    if full.fault == Fault::Full && self.permits.available_permits() + 1 < self.most =>
                {
                    let returned = wait_for_returned(&self.returned, || self.take_idle()).await;
                    (returned.ok_or(full)?, Access::Lock)
                }
                opened => (opened?, access),
            },
        };
        Ok(Borrowed { conn, opened_for, pool: Arc::clone(self), _permit: permit })
    }

    /// The connection used last, if one is idle.
    fn take_idle(&self) -> Option<Box<dyn Connection>> {
        let (mut idle, now) = (lock_mutex(&self.idle), self.clock.now());
        idle.retain(|(conn, since)| !conn.is_closed() && now < since.after(MAX_IDLE));
        idle.pop().map(|(conn, _)| conn)
    }

    async fn open(&self, access: Access) -> Result<Box<dyn Connection>, Failed> {
        let (opened, contact) = (self.connector.open(access).await, self.connector.contact());
        let conn = opened.inspect_err(|failed| contact.record_failure(failed.fault, &failed.message))?;
        contact.record_connected();
        Ok(conn)
    }

    /// Closes the idle connections: one broke, so most likely all of them did.
    pub(crate) fn close_idle(&self) {
        lock_mutex(&self.idle).clear();
    }
}

impl Borrowed {
    /// Returns the connection to the pool. A connection that was opened only to look is closed: nothing has checked
    /// that locks can use it.
    pub(crate) fn give_back(self) {
        let Self { conn, opened_for, pool, _permit } = self;
        if !conn.is_closed() && opened_for == Access::Lock {
            lock_mutex(&pool.idle).push((conn, pool.clock.now()));
            pool.returned.notify_one();
        }
    }
}
