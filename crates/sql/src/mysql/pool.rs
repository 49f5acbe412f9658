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
    client::{CONNECTIONS, lock_of},
    database::{Absent, Failed, replaced},
    returned::returned,
    slots::Slots,
};

/// A connection that was silent for longer is closed: the server, or a proxy in front of it, would do so soon.
const IDLE: Duration = Duration::from_secs(30);
/// A connection that was silent for longer gets a ping first. Otherwise statements to a server that was restarted
/// meanwhile would be in doubt.
const TRUSTED: Duration = Duration::from_secs(1);

pub(super) struct Pool {
    config: Config,
    pub(super) contact: Contact,
    clock: Arc<dyn Clock>,
    permits: Semaphore,
    idle: Mutex<Vec<Conn>>,
    lineage: Mutex<Option<Lineage>>,
    slots: Mutex<Option<Slots>>,
    /// Notified when a connection becomes idle.
    returned: Notify,
    cut: AtomicBool,
}

/// A connection taken out of the pool. Unless it is [given back](Self::back) it is closed, because it may be in the
/// middle of a transaction.
pub(super) struct Lent<'a> {
    pub(super) conn: Conn,
    pool: &'a Pool,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(config: Config, clock: Arc<dyn Clock>) -> Self {
        let (contact, idle, lineage, slots, returned, cut) = Default::default();
        Self {
            config,
            contact,
            clock,
            permits: Semaphore::new(CONNECTIONS),
            idle,
            lineage,
            slots,
            returned,
            cut,
        }
    }

    /// A connection to the tables.
    pub(super) async fn conn(&self) -> Result<Lent<'_>, Failed> {
        self.lent(Absent::Create).await
    }

    pub(super) async fn lent(&self, absent: Absent) -> Result<Lent<'_>, Failed> {
        // The semaphore is never closed.
        let permit = self.permits.acquire().await.map_err(|_| Failed::new(Fault::Retry, "closed"))?;
        loop {
            let now = self.clock.now();
            let idle = {
                let mut idle = lock_of(&self.idle);
                idle.retain(|conn| now < conn.last_answer.after(IDLE));
                // The one used last: the others may stay silent, and be closed.
                idle.pop()
            };
            let mut conn = match idle {
                Some(conn) => conn,
                None => match self.open(absent).await {
                    Err(full) if full.fault == Fault::Full => self.wait_for_idle().await.ok_or(full)?,
                    opened => opened?,
                },
            };
            if now < conn.last_answer.after(TRUSTED) || conn.answers_soon().await {
                return Ok(Lent { conn, pool: self, _permit: permit });
            }
        }
    }

    async fn open(&self, absent: Absent) -> Result<Conn, Failed> {
        let opened = Conn::open(&self.config, self.clock.now(), absent).await;
        let conn = opened.inspect_err(|failed| self.contact.failed(failed.fault, &failed.message))?;
        self.contact.made();
        if !conn.can_lock() {
            return Ok(conn);
        }
        self.learn(conn.slots());
        let before = lock_of(&self.lineage).replace(conn.lineage());
        if before.is_some_and(|before| before != conn.lineage()) {
            // Another server answers by now: connections to its predecessor are useless.
            lock_of(&self.idle).clear();
        }
        Ok(conn)
    }

    /// Where the server accepts no more connections, waits for one that another request of ours uses right now: a
    /// missing connection must not let a hold expire or a release fail.
    async fn wait_for_idle(&self) -> Option<Conn> {
        if CONNECTIONS - 1 == self.permits.available_permits() {
            return None;
        }
        returned(&self.returned, || lock_of(&self.idle).pop()).await
    }

    /// How many connections the server had left at its last report.
    pub(super) fn slots(&self) -> Option<Slots> {
        *lock_of(&self.slots)
    }

    pub(super) fn learn(&self, slots: Option<Slots>) {
        *lock_of(&self.slots) = slots;
    }

    /// Closes all idle connections.
    pub(super) fn close_idle(&self) {
        lock_of(&self.idle).clear();
    }

    /// A connection broke: the idle ones most likely did, too.
    pub(super) fn broke(&self) {
        lock_of(&self.idle).clear();
        self.cut.store(true, Ordering::Relaxed);
    }

    /// Whether that happened since the last call.
    pub(super) fn was_cut(&self) -> bool {
        self.cut.swap(false, Ordering::Relaxed)
    }

    /// The lineage of the tables on this server; zero before the first connection.
    pub(super) fn lineage(&self) -> Lineage {
        lock_of(&self.lineage).unwrap_or(Lineage::new(0))
    }
}

impl Lent<'_> {
    /// Returns the connection to the pool.
    ///
    /// # Errors
    /// If another server answers by now: the answers of this one do not count.
    pub(super) fn back(self) -> Result<(), Failed> {
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
            lock_of(&pool.idle).push(conn);
            pool.returned.notify_one();
        }
        Ok(())
    }
}
