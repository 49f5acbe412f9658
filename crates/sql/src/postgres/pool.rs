//! The connections of a client: few, each used by one statement or transaction at a time.

use std::{
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use leasehold_core::Lineage;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use super::{config::Config, conn::Conn, hears::Hears};
use crate::{
    client::{CONNECTIONS, lock_of},
    database::{Absent, Failed, replaced},
    door,
};

/// How long a connection rests before it is closed, unless it is the only one.
const REST: Duration = Duration::from_secs(4);

pub(crate) struct Pool {
    pub(crate) config: Config,
    room: Semaphore,
    /// Those that rest, since when; the one used last is used next.
    idle: Mutex<Vec<(Conn, Instant)>>,
    lineage: Mutex<Option<Lineage>>,
    /// Who hears what is told on any of its connections.
    hears: Weak<dyn Hears>,
}

/// A connection out of the pool. Unless it is [given back](Self::back) it is closed: nobody knows what it is in the midst of.
pub(crate) struct Lent<'a> {
    pub(crate) conn: Conn,
    pool: &'a Pool,
    _room: SemaphorePermit<'a>,
}

impl Pool {
    pub(crate) fn new(config: Config, hears: Weak<dyn Hears>) -> Arc<Self> {
        let (idle, lineage) = Default::default();
        Arc::new(Self { config, room: Semaphore::new(CONNECTIONS), idle, lineage, hears })
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
        let room =
            self.room.acquire().await.map_err(|_| Failed::new(leasehold_core::Fault::Retry, "closed"))?;
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
            None => {
                let conn = Conn::open(&self.config, absent, Weak::clone(&self.hears)).await?;
                self.leads_to(&conn);
                conn
            }
        };
        Ok(Lent { conn, pool: self, _room: room })
    }

    /// Those that rested for long are closed, but for one: the one that listens, or was used last.
    pub(crate) fn rest(&self) {
        let mut idle = lock_of(&self.idle);
        let now = door::now();
        let stays = idle.iter().rposition(|(conn, _)| conn.listens()).or(idle.len().checked_sub(1));
        let mut at = 0..;
        idle.retain(|(_, since)| at.next() == stays || now.duration_since(*since) < REST);
    }

    /// Where another server answers now, what is still connected to the one before it is of no use.
    fn leads_to(&self, conn: &Conn) {
        if !conn.has_tables() {
            return;
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
        if !conn.has_tables() {
            return Ok(());
        }
        if conn.lineage() != pool.lineage() {
            return Err(replaced());
        }
        lock_of(&pool.idle).push((conn, door::now()));
        pool.rest();
        Ok(())
    }
}
