//! The connection of a client to its server: made when first needed, made again when it breaks, shared by all requests.
//! It sends nothing twice: a request on a broken connection answers "unknown", and the keeper decides what to do.
#![expect(
    clippy::disallowed_methods,
    reason = "the runtime of connections: attempts to make one are tasks of their own"
)]

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{BoxFuture, Clock, Contact, EngineError, Fault, Instant, catch_panic};

/// The pause after the first failed attempt to connect. It doubles with each further failure, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Makes the connections of a [`Link`].
pub trait Dial: Send + Sync + 'static {
    /// A connection, which is closed when it is dropped.
    type Conn: Send + Sync + 'static;

    /// Connects, within a bounded time. The connection notifies `broken` when it is gone.
    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<Self::Conn, EngineError>>;

    /// Whether the connection is no longer usable.
    fn is_dead(conn: &Self::Conn) -> bool;

    /// The address of the server at the other end, for errors.
    fn address(conn: &Self::Conn) -> String;

    /// The link calls this after it made a connection. `reconnected`: there was an earlier connection, and the
    /// notifications that the server sent after that connection broke were missed.
    fn connected(&self, conn: &Arc<Self::Conn>, reconnected: bool);
}

/// The connection that all requests of a client share.
pub struct Link<D: Dial>(Arc<Inner<D>>);

/// What all clones of a link share.
struct Inner<D: Dial> {
    dialer: D,
    clock: Arc<dyn Clock>,
    /// Whether the server was ever reached.
    contact: Contact,
    /// The newest connection, which may be broken.
    current: Mutex<Option<Arc<D::Conn>>>,
    /// Code that locks both `dialing` and `current` must lock `dialing` first.
    dialing: Mutex<Dialing>,
    /// Notified when an attempt to connect has ended.
    attempt_ended: Notify,
    /// Notified when the current connection is gone.
    broken: Arc<Notify>,
}

/// The state of the attempts to connect.
#[derive(Default)]
struct Dialing {
    /// A connection was made at least once.
    was_connected: bool,
    /// Failed attempts in a row; a connection that broke soon after it was made counts as failed.
    failures: u32,
    /// When the newest connection was made.
    connected_at: Option<Instant>,
    /// An attempt to connect is running.
    is_running: bool,
    /// The pause after an attempt: until when it lasts, and the fault and message of the error with which requests fail
    /// until then.
    pause: Option<(Instant, Fault, String)>,
}

impl<D: Dial> Link<D> {
    /// A link without a connection. It connects at the first call of [`conn`](Self::conn), and reports the outcome to
    /// `contact`.
    pub fn new(dialer: D, clock: Arc<dyn Clock>, contact: Contact) -> Self {
        let (current, dialing, attempt_ended, broken) = Default::default();
        Self(Arc::new(Inner { dialer, clock, contact, current, dialing, attempt_ended, broken }))
    }

    /// The dialer of this link.
    #[must_use]
    pub fn dialer(&self) -> &D {
        &self.0.dialer
    }

    /// The connection, if there is one now.
    #[must_use]
    pub fn live(&self) -> Option<Arc<D::Conn>> {
        self.0.live()
    }

    /// Drops the connection, if there is one: it is closed as soon as no request uses it any more. The next request
    /// makes a new connection.
    pub fn hang_up(&self) {
        *self.0.current() = None;
    }

    /// The connection; a new one if there is none. Each attempt to connect runs in its own task, so that a caller who
    /// gives up does not end the attempt. Between two attempts there is a pause, during which callers get the error of
    /// the last attempt.
    ///
    /// # Errors
    /// The error of the last attempt.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn conn(&self) -> Result<Arc<D::Conn>, EngineError> {
        if let Some(conn) = self.0.live() {
            return Ok(conn);
        }
        // Registered before the state is read, so that the end of an attempt is not missed.
        let mut attempt_ended = std::pin::pin!(self.0.attempt_ended.notified());
        attempt_ended.as_mut().enable();
        {
            let mut dialing = self.0.dialing();
            if let Some(conn) = self.0.live() {
                return Ok(conn);
            }
            if !dialing.is_running {
                let now = self.0.clock.now();
                if let Some((_, fault, message)) = dialing.pause.as_ref().filter(|(until, ..)| now < *until) {
                    return Err(EngineError::new(*fault, message.clone()));
                }
                dialing.is_running = true;
                drop(dialing);
                // The task is spawned after `dialing` is unlocked: a runtime that is shut down drops the task
                // immediately, and the drop of the task locks `dialing`, too.
                tokio::spawn(ConnectTask(Arc::clone(&self.0)).run());
            }
        }
        attempt_ended.await;
        if let Some(conn) = self.0.live() {
            return Ok(conn);
        }
        let dialing = self.0.dialing();
        Err(match &dialing.pause {
            Some((_, fault, message)) => EngineError::new(*fault, message.clone()),
            None => EngineError::new(Fault::Retry, "cannot connect: the attempt was ended"),
        })
    }

    /// Connects again whenever the connection breaks, after some request made the first connection. Never returns.
    pub async fn mend(&self) {
        loop {
            let broken = self.0.broken.notified();
            let had_connection = self.0.current().is_some();
            if self.0.live().is_some() || !had_connection {
                broken.await;
            } else if self.conn().await.is_err() {
                tokio::time::sleep(FIRST_PAUSE).await;
            }
        }
    }
}

/// An attempt to connect. However it ends, the requests that wait for it are notified.
struct ConnectTask<D: Dial>(Arc<Inner<D>>);

impl<D: Dial> ConnectTask<D> {
    async fn run(self) {
        let link = &self.0;
        // The connection before this attempt, if there was one, is gone.
        link.contact.record_disconnected();
        let dial = catch_panic(async { link.dialer.dial(Arc::clone(&link.broken)).await });
        // A retry may succeed after a panic: another server may answer.
        let outcome = dial.await.unwrap_or_else(|panicked| {
            Err(EngineError::new(Fault::Retry, format!("cannot connect: {panicked}")))
        });
        let now = link.clock.now();
        let mut dialing = link.dialing();
        if dialing.connected_at.take().is_some_and(|connected_at| now.since(connected_at) > LONGEST_PAUSE) {
            dialing.failures = 0;
        }
        // A new connection counts as failed until it has lasted longer than [`LONGEST_PAUSE`], because some servers
        // close a connection as soon as it is made.
        let pause = (FIRST_PAUSE * (1 << dialing.failures.min(16))).min(LONGEST_PAUSE);
        dialing.failures += 1;
        match outcome {
            Ok(conn) => {
                let reconnected = std::mem::replace(&mut dialing.was_connected, true);
                let address = D::address(&conn);
                dialing.connected_at = Some(now);
                dialing.pause = Some((now.after(pause), Fault::Retry, format!("{address} hung up")));
                tracing::trace!(address, again = reconnected, "connected");
                let conn = Arc::new(conn);
                link.contact.record_connected();
                *link.current() = Some(Arc::clone(&conn));
                drop(dialing);
                link.contact.record_connected_to(&address);
                link.dialer.connected(&conn, reconnected);
            }
            Err(error) => {
                tracing::debug!(%error, "not connected");
                link.contact.record_failure(error.fault, &error.message);
                dialing.pause = Some((now.after(pause), error.fault, error.message));
            }
        }
    }
}

impl<D: Dial> Drop for ConnectTask<D> {
    fn drop(&mut self) {
        self.0.dialing().is_running = false;
        self.0.attempt_ended.notify_waiters();
    }
}

impl<D: Dial> Inner<D> {
    // No code under these locks can panic in the middle of a change.
    fn dialing(&self) -> MutexGuard<'_, Dialing> {
        self.dialing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<D::Conn>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current connection, unless it is broken.
    fn live(&self) -> Option<Arc<D::Conn>> {
        self.current().as_ref().filter(|conn| !D::is_dead(conn)).cloned()
    }
}

impl<D: Dial> Clone for Link<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Dial> std::fmt::Debug for Link<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("connected", &self.live().is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Env;

    /// A dialer for a server that does not exist.
    struct NeverConnects;

    impl Dial for NeverConnects {
        type Conn = ();

        fn dial(&self, _: Arc<Notify>) -> BoxFuture<'_, Result<(), EngineError>> {
            Box::pin(async { Err(EngineError::new(Fault::Retry, "no server")) })
        }

        fn is_dead((): &()) -> bool {
            false
        }

        fn address((): &()) -> String {
            String::new()
        }

        fn connected(&self, _: &Arc<()>, _: bool) {}
    }

    /// A runtime that was shut down drops tasks as soon as they are spawned. This happens when a guard is dropped at
    /// the end of a program, after the runtime.
    #[test]
    fn a_runtime_that_was_shut_down_is_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let link = Link::new(NeverConnects, Env::system().clock, Contact::default());
        let handle = runtime.handle().clone();
        drop(runtime);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _within = handle.enter();
            sender.send(pollster::block_on(link.conn()).unwrap_err().fault)
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(90)), Ok(Fault::Retry));
    }
}
