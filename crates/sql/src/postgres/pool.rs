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

/// How long a connection rests before it is closed, unless it is the only one.
const REST: Duration = Duration::from_secs(4);

pub(crate) struct Pool {
    pub(crate) config: Config,
    pub(crate) contact: Contact,
    room: Semaphore,
    /// Those that rest, since when; the one used last is used next.
    idle: Mutex<Vec<(Conn, Instant)>>,
    lineage: Mutex<Option<Lineage>>,
    slots: Mutex<Option<Slots>>,
    /// Rings when a connection is free for others, or is closed.
    returned: Notify,
    /// Who hears what is told on any of its connections.
    hears: Weak<dyn NotificationHandler>,
}

/// A connection out of the pool. Unless it is [given back](Self::back) it is closed: nobody knows what it is in the midst of.
pub(crate) struct Lent<'a> {
    pub(crate) conn: Conn,
    pool: &'a Pool,
    _room: SemaphorePermit<'a>,
}

impl Pool {
    pub(crate) fn new(config: Config, hears: Weak<dyn NotificationHandler>) -> Arc<Self> {
        let (contact, idle, lineage, slots, returned) = Default::default();
        Arc::new(Self {
            config,
            contact,
            room: Semaphore::new(CONNECTIONS),
            idle,
            lineage,
            slots,
            returned,
            hears,
        })
    }

    /// A connection to the tables, for what does not wait for others for long.
    pub(crate) async fn conn(&self) -> Result<Lent<'_>, Failed> {
        self.lent(Absent::Make).await
    }

    pub(crate) async fn lent(&self, absent: Absent) -> Result<Lent<'_>, Failed> {
        // The one that listens only where no other rests.
        self.lend(absent, |idle| deaf(idle).or(idle.len().checked_sub(1))).await
    }

    /// A connection that hears nothing: nothing is heard on one while it is in a transaction.
    pub(crate) async fn deaf(&self) -> Result<Lent<'_>, Failed> {
        self.lend(Absent::Make, deaf).await
    }

    /// The connection that listens, if nobody uses it now.
    pub(crate) fn listening(&self) -> Option<Lent<'_>> {
        let room = self.room.try_acquire().ok()?;
        let mut idle = lock_of(&self.idle);
        let at = idle.iter().position(|(conn, _)| conn.listens())?;
        let (conn, _) = idle.remove(at);
        Some(Lent { conn, pool: self, _room: room })
    }

    async fn lend(
        &self,
        absent: Absent,
        which: impl Fn(&[(Conn, Instant)]) -> Option<usize>,
    ) -> Result<Lent<'_>, Failed> {
        // The semaphore is never closed.
        let room = self.room.acquire().await.map_err(|_| Failed::new(Fault::Retry, "closed"))?;
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
                Err(full) if full.fault == Fault::Full => self.any_of_ours().await.ok_or(full)?,
                opened => opened?,
            },
        };
        Ok(Lent { conn, pool: self, _room: room })
    }

    async fn open(&self, absent: Absent) -> Result<Conn, Failed> {
        let opened = Conn::open(&self.config, absent, Weak::clone(&self.hears)).await;
        let conn = opened.inspect_err(|failed| self.contact.failed(failed.fault, &failed.message))?;
        self.contact.made();
        self.leads_to(&conn);
        Ok(conn)
    }

    /// Where the server takes no more connections, those that there are have to do, whatever else they are kept for: a hold is not to
    /// lapse, nor a release to fail, for want of one more.
    async fn any_of_ours(&self) -> Option<Conn> {
        let free = || lock_of(&self.idle).pop().map(|(conn, _)| conn).filter(|conn| !conn.may_differ());
        if let Some(conn) = free() {
            return Some(conn);
        }
        // Another of our requests uses it right now, or none does and there is none.
        if CONNECTIONS - 1 == self.room.available_permits() {
            return None;
        }
        returned(&self.returned, free).await
    }

    /// What the server said last of how many connections it has left.
    pub(crate) fn slots(&self) -> Option<Slots> {
        *lock_of(&self.slots)
    }

    pub(crate) fn learn(&self, slots: Option<Slots>) {
        *lock_of(&self.slots) = slots;
    }

    /// All that rest are closed, and nobody is told of it.
    pub(crate) fn let_go(&self) {
        for (conn, _) in lock_of(&self.idle).drain(..) {
            conn.hush();
        }
    }

    /// Those that rested for long are closed, but for one: the one that listens, or was used last.
    pub(crate) fn rest(&self) {
        let mut idle = lock_of(&self.idle);
        let now = runtime::now();
        let stays = idle.iter().rposition(|(conn, _)| conn.listens()).or(idle.len().checked_sub(1));
        let mut at = 0..;
        idle.retain(|(_, since)| at.next() == stays || now.duration_since(*since) < REST);
    }

    /// Where another server answers now, what is still connected to the one before it is of no use.
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

/// The one that was used last of those that hear nothing.
fn deaf(idle: &[(Conn, Instant)]) -> Option<usize> {
    idle.iter().rposition(|(conn, _)| !conn.listens())
}

impl Lent<'_> {
    /// It is free for others.
    ///
    /// # Errors
    /// If another server answers by now: what this one said does not count.
    pub(crate) fn back(self) -> Result<(), Failed> {
        let Self { conn, pool, _room } = self;
        // Whoever locks finds it neither without tables nor at a replica.
        if !conn.can_lock() {
            return Ok(());
        }
        if conn.lineage() != pool.lineage() {
            return Err(replaced());
        }
        lock_of(&pool.idle).push((conn, runtime::now()));
        pool.returned.notify_one();
        pool.rest();
        Ok(())
    }
}
