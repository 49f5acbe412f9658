//! The LISTEN connection: receives the notifications of other clients.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Fault, Notification};
use tokio::{sync::Mutex, time::Instant};

use super::{
    config::Config,
    conn::{Conn, Subscription},
    notification_handler::NotificationHandler,
    notification_text,
    pool::{Borrowed, Pool},
};
use crate::{
    client::{Client, within_request_timeout},
    database::Failed,
    row::ClientId,
    runtime,
};

/// How long after a failure to listen the next attempt is made; waiting clients check once a second.
const RETRY_AFTER: Duration = Duration::from_millis(900);
/// How long the connection keeps listening without a waiting claim; longer than a claim needs to enter the queue.
const LINGER: Duration = Duration::from_secs(10);

/// Listens for notifications while claims of this client wait. If [`Config::listen`] names a server behind a pooler,
/// listens on a connection to this server, otherwise on a connection of the pool.
pub(crate) struct Listener {
    id: ClientId,
    /// The client that receives the notifications.
    client: OnceLock<Weak<Client>>,
    pub(crate) pool: Arc<Pool>,
    state: Mutex<ListenerState>,
    /// Whether the last attempt to listen succeeded.
    last_attempt_succeeded: AtomicBool,
    /// Whether the client is asleep: then it must not listen.
    asleep: AtomicBool,
    weak_self: Weak<Listener>,
}

#[derive(Default)]
struct ListenerState {
    subscription: Option<Arc<Subscription>>,
    /// The connection past the pooler, if the URL names one.
    direct_conn: Option<Conn>,
    /// Why and when the last attempt to listen failed.
    last_failure: Option<(Failed, Instant)>,
    /// Since when no claim has waited.
    unneeded_since: Option<Instant>,
}

impl Listener {
    pub(crate) fn new(id: ClientId, config: Config) -> Arc<Self> {
        Arc::new_cyclic(|weak_self: &Weak<Self>| Self {
            id,
            client: OnceLock::new(),
            pool: Pool::new(config, Weak::clone(weak_self) as _),
            state: Mutex::default(),
            last_attempt_succeeded: AtomicBool::new(true),
            asleep: AtomicBool::new(false),
            weak_self: Weak::clone(weak_self),
        })
    }

    /// Sets the client that receives the notifications.
    pub(crate) fn set_client(&self, client: Weak<Client>) {
        let _ = self.client.set(client);
    }

    fn client(&self) -> Option<Arc<Client>> {
        self.client.get()?.upgrade()
    }

    /// Starts to listen, unless the client listens already or is asleep. Returns `Ok` also after a temporary failure:
    /// then the client polls for its grants.
    ///
    /// # Errors
    /// Failures that a retry does not cure.
    pub(crate) async fn ensure_listening(&self) -> Result<(), Failed> {
        let mut state = self.state.lock().await;
        state.unneeded_since = None;
        if self.asleep.load(Ordering::Relaxed) {
            return Ok(());
        }
        if state.subscription.as_ref().is_some_and(|subscription| subscription.listens()) {
            return Ok(());
        }
        let now = runtime::now();
        let failed = state.last_failure.as_ref().filter(|(_, at)| now.duration_since(*at) < RETRY_AFTER);
        if let Some((failed, _)) = failed {
            return fail_if_permanent(failed);
        }
        let listening = within_request_timeout(self.listen()).await;
        self.last_attempt_succeeded.store(listening.is_ok(), Ordering::Relaxed);
        match listening {
            Ok((subscription, direct_conn)) => {
                state.direct_conn = direct_conn;
                // Notifications that were sent while there was no subscription are lost.
                let missed =
                    state.subscription.replace(subscription).is_some() | state.last_failure.take().is_some();
                if let Some(client) = self.client().filter(|_| missed) {
                    client.mailbox.push(Notification::AskAll);
                }
                Ok(())
            }
            Err(failed) => {
                tracing::debug!(%failed, "cannot listen for grants");
                let result = fail_if_permanent(&failed);
                state.last_failure = Some((failed, runtime::now()));
                result
            }
        }
    }

    /// Subscribes, and returns the subscription, with its connection if that is past a pooler.
    async fn listen(&self) -> Result<(Arc<Subscription>, Option<Conn>), Failed> {
        let (config, channel) = (&self.pool.config, notification_text::channel(self.id));
        if let Some(server) = &config.listen {
            let conn = Conn::open_direct(config, server, Weak::clone(&self.weak_self) as _).await?;
            return Ok((conn.listen(config, &channel).await?, Some(conn)));
        }
        let borrowed = self.pool.borrow().await?;
        let subscription = borrowed.conn.listen(config, &channel).await?;
        borrowed.give_back()?;
        Ok((subscription, None))
    }

    /// Borrows a connection for a transaction, which possibly waits for a row lock. While claims of this client wait,
    /// borrows a connection that does not listen, so that the transaction delays no notification.
    pub(crate) async fn borrow_for_transaction(&self) -> Result<Borrowed<'_>, Failed> {
        let claims_wait = self.client().is_some_and(|client| client.has_waiting_claims());
        if claims_wait { self.pool.borrow_not_listening().await } else { self.pool.borrow().await }
    }

    /// Forbids listening from now on (`asleep`), or allows it again.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    /// Closes the idle connections; the LISTEN connection, too, if it is idle.
    pub(crate) async fn close_idle_connections(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let direct_conn = state.direct_conn.take();
        direct_conn.iter().for_each(Conn::suppress_report);
        self.pool.close_idle_connections();
        if state.subscription.as_ref().is_some_and(|subscription| !subscription.listens()) {
            state.subscription = None;
            self.last_attempt_succeeded.store(false, Ordering::Relaxed);
        }
    }

    /// Whether the LISTEN connection is open, as far as is known.
    pub(crate) fn is_listening(&self) -> bool {
        self.last_attempt_succeeded.load(Ordering::Relaxed)
    }

    /// Stops listening after a while without waiting claims. Called while no claim waits.
    pub(crate) async fn release_unneeded(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let now = runtime::now();
        let listens = state.subscription.as_ref().is_some_and(|subscription| subscription.listens());
        if !listens || now.duration_since(*state.unneeded_since.get_or_insert(now)) <= LINGER {
            return;
        }
        if state.direct_conn.take().is_none() {
            // If a request uses the connection now, the next call ends the subscription.
            let Some(borrowed) = self.pool.borrow_listening() else { return };
            let unlistened =
                within_request_timeout(borrowed.conn.unlisten()).await.and_then(|()| borrowed.give_back());
            if let Err(failed) = unlistened {
                tracing::debug!(%failed, "a connection that listened is closed");
            }
        }
        state.subscription = None;
    }
}

/// Returns the failure, unless a retry may help.
fn fail_if_permanent(failed: &Failed) -> Result<(), Failed> {
    match failed.fault {
        Fault::Retry | Fault::Full | Fault::Unknown => Ok(()),
        _ => Err(failed.clone()),
    }
}

impl NotificationHandler for Listener {
    fn handle_notification(&self, payload: &str) {
        let Some(client) = self.client() else { return };
        if let Some(notification) = notification_text::read(payload, self.id, self.pool.lineage()) {
            client.handle_notification(&notification);
        }
    }

    fn handle_end(&self) {
        if let Some(client) = self.client() {
            client.note_listener_lost();
        }
    }
}
