//! Hearing what other clients tell this one.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Fault, News};
use tokio::{sync::Mutex, time::Instant};

use super::{conn::Conn, hears::Hears, pool::Pool, told};
use crate::{client::Client, database::Failed, door, row::ClientId};

/// How long after it could not be opened it is tried again: who waits looks once a second.
const AGAIN: Duration = Duration::from_millis(900);
/// How long it listens on when nobody waits any more; longer than a claim takes until it stands in line.
const REST: Duration = Duration::from_secs(10);

/// One connection that listens, as long as claims of this client stand in line.
pub(crate) struct Ear {
    id: ClientId,
    client: OnceLock<Weak<Client>>,
    pool: Arc<Pool>,
    state: Mutex<State>,
    /// Whether it could be opened last.
    open: AtomicBool,
    me: Weak<Ear>,
}

#[derive(Default)]
struct State {
    conn: Option<Conn>,
    /// Why and when it could not be opened last.
    failed: Option<(Failed, Instant)>,
    /// Since when nobody has needed it.
    unneeded: Option<Instant>,
}

impl Ear {
    pub(crate) fn new(id: ClientId, pool: Arc<Pool>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            id,
            client: OnceLock::new(),
            pool,
            state: Mutex::default(),
            open: AtomicBool::new(true),
            me: Weak::clone(me),
        })
    }

    /// Whom it hears for.
    pub(crate) fn set(&self, client: Weak<Client>) {
        let _ = self.client.set(client);
    }

    fn client(&self) -> Option<Arc<Client>> {
        self.client.get()?.upgrade()
    }

    /// Listens from now on. Where the server of the URL answers and the one that is listened to does not, grants are found by looking.
    ///
    /// # Errors
    /// Those that are no better the next time.
    pub(crate) async fn open(&self) -> Result<(), Failed> {
        let mut state = self.state.lock().await;
        state.unneeded = None;
        if state.conn.as_ref().is_some_and(|conn| !conn.is_closed()) {
            return Ok(());
        }
        let now = door::now();
        let failed = state.failed.as_ref().filter(|(_, at)| now.duration_since(*at) < AGAIN);
        if let Some((failed, _)) = failed {
            return fatal(failed);
        }
        let me: Weak<dyn Hears> = Weak::clone(&self.me) as _;
        let listening = Conn::listen(&self.pool.config, &told::channel(self.id), me).await;
        self.open.store(listening.is_ok(), Ordering::Relaxed);
        match listening {
            Ok(conn) => {
                // What was told meanwhile, nobody heard.
                let missed = state.conn.replace(conn).is_some() | state.failed.take().is_some();
                if let Some(client) = self.client().filter(|_| missed) {
                    client.mailbox.push(News::AskAll);
                }
                Ok(())
            }
            Err(failed) => {
                tracing::debug!(%failed, "grants cannot be heard of");
                let said = fatal(&failed);
                state.failed = Some((failed, door::now()));
                said
            }
        }
    }

    /// Whether it is open, as far as is known.
    pub(crate) fn hears(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Nobody waits: after a while it listens no more.
    pub(crate) fn rest(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let now = door::now();
        if now.duration_since(*state.unneeded.get_or_insert(now)) > REST {
            state.conn = None;
        }
    }
}

fn fatal(failed: &Failed) -> Result<(), Failed> {
    match failed.fault {
        Fault::Retry | Fault::Unknown => Ok(()),
        _ => Err(failed.clone()),
    }
}

impl Hears for Ear {
    fn heard(&self, said: &str) {
        let Some(client) = self.client() else { return };
        if let Some(told) = told::read(said, self.id, self.pool.lineage()) {
            client.hear(&told);
        }
    }

    fn deaf(&self) {
        if let Some(client) = self.client() {
            client.is_deaf();
        }
    }
}
