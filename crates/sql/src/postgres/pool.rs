//! The connections of a client: few, each used by one statement or transaction at a time.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::Lineage;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use super::{config::Config, conn::Conn};
use crate::{
    client::{CONNECTIONS, lock_of},
    database::{Failed, replaced},
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
}

/// A connection out of the pool. Unless it is [given back](Self::back) it is closed: nobody knows what it is in the midst of.
pub(crate) struct Lent<'a> {
    pub(crate) conn: Conn,
    pool: &'a Pool,
    _room: SemaphorePermit<'a>,
}

impl Pool {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        let (idle, lineage) = Default::default();
        Arc::new(Self { config, room: Semaphore::new(CONNECTIONS), idle, lineage })
    }

    pub(crate) async fn conn(&self) -> Result<Lent<'_>, Failed> {
        // The semaphore is never closed.
        let room =
            self.room.acquire().await.map_err(|_| Failed::new(leasehold_core::Fault::Retry, "closed"))?;
        let idle = {
            let mut idle = lock_of(&self.idle);
            idle.retain(|(conn, _)| !conn.is_closed());
            idle.pop()
        };
        let conn = match idle {
            Some((mut conn, _)) if conn.may_differ() => {
                conn.recognise(&self.config).await?;
                self.leads_to(conn.lineage());
                conn
            }
            Some((conn, _)) => conn,
            None => {
                let conn = Conn::open(&self.config).await?;
                self.leads_to(conn.lineage());
                conn
            }
        };
        Ok(Lent { conn, pool: self, _room: room })
    }

    /// Those that rested for long are closed, but the one that was used last.
    pub(crate) fn rest(&self) {
        let mut idle = lock_of(&self.idle);
        let last = idle.pop();
        let now = door::now();
        idle.retain(|(_, since)| now.duration_since(*since) < REST);
        idle.extend(last);
    }

    /// Where another server answers now, what is still connected to the one before it is of no use.
    fn leads_to(&self, lineage: Lineage) {
        let before = lock_of(&self.lineage).replace(lineage);
        if before.is_some_and(|before| before != lineage) {
            lock_of(&self.idle).clear();
        }
    }

    pub(crate) fn lineage(&self) -> Lineage {
        lock_of(&self.lineage).unwrap_or(Lineage::new(0))
    }
}

impl Lent<'_> {
    /// It is free for others.
    ///
    /// # Errors
    /// If another server answers by now: what this one said does not count.
    pub(crate) fn back(self) -> Result<(), Failed> {
        let Self { conn, pool, _room } = self;
        if conn.lineage() != pool.lineage() {
            return Err(replaced());
        }
        lock_of(&pool.idle).push((conn, door::now()));
        pool.rest();
        Ok(())
    }
}
