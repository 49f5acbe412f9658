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
    client::{CONNECTIONS, lock_of},
    database::{Absent, Failed, replaced},
    returned::returned,
    runtime,
    slots::Slots,
};

/// How long a connection stays idle before it is closed, unless it is the only one.
const IDLE: Duration = Duration::from_secs(4);

pub(crate) struct Pool {
    pub(crate) config: Config,
    pub(crate) contact: Contact,
    permits: Semaphore,
    /// The idle connections, and since when; the one used last is used next.
    idle: Mutex<Vec<(Conn, Instant)>>,
    lineage: Mutex<Option<Lineage>>,
    slots: Mutex<Option<Slots>>,
    /// Notified when a connection becomes idle or is closed.
    returned: Notify,
    /// Receives the notifications of all connections.
    handler: Weak<dyn NotificationHandler>,
}

/// A connection taken out of the pool. Unless it is [given back](Self::back) it is closed, because it may be in the
/// middle of a transaction.
pub(crate) struct Lent<'a> {
    pub(crate) conn: Conn,
    pool: &'a Pool,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub(crate) fn new(config: Config, handler: Weak<dyn NotificationHandler>) -> Arc<Self> {
        let (contact, idle, lineage, slots, returned) = Default::default();
        Arc::new(Self {
            config,
            contact,
            permits: Semaphore::new(CONNECTIONS),
            idle,
            lineage,
            slots,
            returned,
            handler,
        })
    }

    /// A connection to the tables, for requests that do not wait for others for long.
    pub(crate) async fn conn(&self) -> Result<Lent<'_>, Failed> {
        self.lent(Absent::Create).await
    }

    pub(crate) async fn lent(&self, absent: Absent) -> Result<Lent<'_>, Failed> {
        // The listening connection only where no other one is idle.
        self.lend(absent, |idle| not_listening(idle).or(idle.len().checked_sub(1))).await
    }

    /// A connection that does not listen: notifications do not arrive during a transaction.
    pub(crate) async fn not_listening(&self) -> Result<Lent<'_>, Failed> {
        self.lend(Absent::Create, not_listening).await
    }

    /// The listening connection, if it is idle.
    pub(crate) fn listening(&self) -> Option<Lent<'_>> {
        let permit = self.permits.try_acquire().ok()?;
        let mut idle = lock_of(&self.idle);
        let at = idle.iter().position(|(conn, _)| conn.listens())?;
        let (conn, _) = idle.remove(at);
        Some(Lent { conn, pool: self, _permit: permit })
    }

    async fn lend(
        &self,
        absent: Absent,
        which: impl Fn(&[(Conn, Instant)]) -> Option<usize>,
    ) -> Result<Lent<'_>, Failed> {
        // The semaphore is never closed.
        let permit = self.permits.acquire().await.map_err(|_| Failed::new(Fault::Retry, "closed"))?;
        let idle = {
            let mut idle = lock_of(&self.idle);
            idle.retain(|(conn, _)| !conn.is_closed());
            which(&idle).map(|at| idle.remove(at))
        };
        let conn = match idle {
            Some((mut conn, _)) if conn.may_differ() => {
                conn.recognise(&self.config, absent).await?;
                self.leads_to(&conn);
                conn
            }
            Some((conn, _)) => conn,
            None => match self.open(absent).await {
                Err(full) if full.fault == Fault::Full => self.any_existing().await.ok_or(full)?,
                opened => opened?,
            },
        };
        Ok(Lent { conn, pool: self, _permit: permit })
    }

    async fn open(&self, absent: Absent) -> Result<Conn, Failed> {
        let opened = Conn::open(&self.config, absent, Weak::clone(&self.handler)).await;
        let conn = opened.inspect_err(|failed| self.contact.failed(failed.fault, &failed.message))?;
        self.contact.made();
        self.leads_to(&conn);
        Ok(conn)
    }

    /// Where the server accepts no more connections, any existing one must do, even the listening one: a
    /// missing connection must not let a hold expire or a release fail.
    async fn any_existing(&self) -> Option<Conn> {
        let free = || lock_of(&self.idle).pop().map(|(conn, _)| conn).filter(|conn| !conn.may_differ());
        if let Some(conn) = free() {
            return Some(conn);
        }
        // Another request of ours uses it right now; or no request does, and there is no other connection.
        if CONNECTIONS - 1 == self.permits.available_permits() {
            return None;
        }
        returned(&self.returned, free).await
    }

    /// How many connections the server had left at its last report.
    pub(crate) fn slots(&self) -> Option<Slots> {
        *lock_of(&self.slots)
    }

    pub(crate) fn learn(&self, slots: Option<Slots>) {
        *lock_of(&self.slots) = slots;
    }

    /// Closes all idle connections, without a report to the listener.
    pub(crate) fn close_idle(&self) {
        for (conn, _) in lock_of(&self.idle).drain(..) {
            conn.suppress_report();
        }
    }

    /// Closes connections that were idle for long, except for one: the listening one, or the one used last.
    pub(crate) fn close_unused(&self) {
        let mut idle = lock_of(&self.idle);
        let now = runtime::now();
        let stays = idle.iter().rposition(|(conn, _)| conn.listens()).or(idle.len().checked_sub(1));
        let mut at = 0..;
        idle.retain(|(_, since)| at.next() == stays || now.duration_since(*since) < IDLE);
    }

    /// Where another server answers now, connections to its predecessor are useless.
    fn leads_to(&self, conn: &Conn) {
        if !conn.can_lock() {
            return;
        }
        if let Some(slots) = conn.slots() {
            self.learn(Some(slots));
        }
        let lineage = conn.lineage();
        let before = lock_of(&self.lineage).replace(lineage);
        if before.is_some_and(|before| before != lineage) {
            lock_of(&self.idle).clear();
        }
    }

    pub(crate) fn lineage(&self) -> Lineage {
        lock_of(&self.lineage).unwrap_or(Lineage::new(0))
    }
}

/// The connection used last among those that do not listen.
fn not_listening(idle: &[(Conn, Instant)]) -> Option<usize> {
    idle.iter().rposition(|(conn, _)| !conn.listens())
}

impl Lent<'_> {
    /// Returns the connection to the pool.
    ///
    /// # Errors
    /// If another server answers by now: the answers of this one do not count.
    pub(crate) fn back(self) -> Result<(), Failed> {
        let Self { conn, pool, _permit } = self;
        // A connection without tables, or to a replica, must not be used for a lock.
        if !conn.can_lock() {
            return Ok(());
        }
        if conn.lineage() != pool.lineage() {
            return Err(replaced());
        }
        lock_of(&pool.idle).push((conn, runtime::now()));
        pool.returned.notify_one();
        pool.close_unused();
        Ok(())
    }
}
