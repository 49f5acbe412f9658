//! The connection to the cluster: made when first needed, to the first member that serves, made again when it breaks, shared by
//! all requests. Nothing is sent twice by it: a request that met a broken connection answers "unknown", and core decides.

use std::{
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use leasehold_core::{Clock, EngineError, Fault, Instant};
use tokio::sync::Notify;

use crate::{config::Config, conn::Conn, door, hears::Hears, lock_of};

/// How long connecting may take, until the member has said how it is; while there are others to try, less.
const DIAL_LIMIT: Duration = Duration::from_secs(3);
const DIAL_LIMIT_OF_MANY: Duration = Duration::from_millis(1500);
/// The pause after a failed attempt to connect to all members, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Link(Arc<Inner>);

struct Inner {
    config: Config,
    clock: Arc<dyn Clock>,
    hears: Weak<dyn Hears>,
    current: Mutex<Option<Arc<Conn>>>,
    dialing: Mutex<Dialing>,
    /// Rings when an attempt to connect has ended.
    dialed: Notify,
    /// Rings when the current connection is gone.
    broken: Arc<Notify>,
}

/// What became of the attempts to connect.
#[derive(Default)]
struct Dialing {
    /// A connection was made before.
    made: bool,
    /// In a row, among them connections that broke at once.
    failed: u32,
    /// When the newest connection was made.
    born: Option<Instant>,
    under_way: bool,
    /// The member to begin with.
    next: usize,
    /// Before this, the last error is the answer.
    not_before: Option<(Instant, Fault, String)>,
}

impl Link {
    /// `first` chooses the member to begin with: clients are to be spread over them.
    pub(crate) fn new(config: Config, clock: Arc<dyn Clock>, hears: Weak<dyn Hears>, first: usize) -> Self {
        let (current, dialed, broken) = Default::default();
        let dialing = Mutex::new(Dialing { next: first % config.members.len().max(1), ..Dialing::default() });
        Self(Arc::new(Inner { config, clock, hears, current, dialing, dialed, broken }))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    /// The connection, if there is one now.
    pub(crate) fn live(&self) -> Option<Arc<Conn>> {
        self.0.live()
    }

    /// The connection; a new one if there is none. Attempts are made in a task of their own, so that a caller who gives up
    /// does not end them, and are spaced out: in between, the last error is the answer.
    pub(crate) async fn conn(&self) -> Result<Arc<Conn>, EngineError> {
        let mut dialed = std::pin::pin!(self.0.dialed.notified());
        dialed.as_mut().enable();
        {
            let mut dialing = self.0.dialing();
            if let Some(conn) = self.0.live() {
                return Ok(conn);
            }
            if !dialing.under_way {
                let now = self.0.clock.now();
                if let Some((_, fault, message)) = dialing.not_before.as_ref().filter(|(at, ..)| now < *at) {
                    return Err(EngineError::new(*fault, message.clone()));
                }
                dialing.under_way = true;
                door::spawn(Attempt(Arc::clone(&self.0)).run());
            }
        }
        dialed.await;
        if let Some(conn) = self.0.live() {
            return Ok(conn);
        }
        let dialing = self.0.dialing();
        Err(match &dialing.not_before {
            Some((_, fault, message)) => EngineError::new(*fault, message.clone()),
            None => EngineError::new(Fault::Retry, "cannot connect: the attempt was ended"),
        })
    }

    /// Keeps a connection that was made once: when it breaks, makes a new one. Never returns; whoever reads news polls it.
    pub(crate) async fn mend(&self) {
        loop {
            let broken = self.0.broken.notified();
            let was_made = lock_of(&self.0.current).is_some();
            if self.0.live().is_some() || !was_made {
                broken.await;
            } else if self.conn().await.is_err() {
                door::sleep(FIRST_PAUSE).await;
            }
        }
    }
}

/// An attempt to connect. In whatever way it ends, those who wait for it are told.
struct Attempt(Arc<Inner>);

impl Attempt {
    async fn run(self) {
        let link = &self.0;
        let first = {
            let mut dialing = link.dialing();
            // A member whose connection broke is tried last.
            if dialing.born.is_some() {
                dialing.next += 1;
            }
            dialing.next
        };
        let made = link.dial(first).await;
        let now = link.clock.now();
        let mut dialing = link.dialing();
        if dialing.born.take().is_some_and(|born| now.since(born) > LONGEST_PAUSE) {
            dialing.failed = 0;
        }
        // A connection that was made counts as failed until it has lived for a while: some servers hang up at once.
        let pause = (FIRST_PAUSE * (1 << dialing.failed.min(16))).min(LONGEST_PAUSE);
        dialing.failed += 1;
        match made {
            Ok((conn, next)) => {
                let again = std::mem::replace(&mut dialing.made, true);
                dialing.next = next;
                dialing.born = Some(now);
                dialing.not_before =
                    Some((now.after(pause), Fault::Retry, format!("{} hung up", conn.member)));
                tracing::debug!(member = %conn.member, again, "connected");
                *lock_of(&link.current) = Some(Arc::new(conn));
                drop(dialing);
                if let Some(hears) = link.hears.upgrade()
                    && again
                {
                    hears.connected_again();
                }
            }
            Err(error) => {
                tracing::debug!(%error, "not connected");
                dialing.not_before = Some((now.after(pause), error.fault, error.message));
            }
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.dialing().under_way = false;
        self.0.dialed.notify_waiters();
    }
}

impl Inner {
    fn dialing(&self) -> MutexGuard<'_, Dialing> {
        lock_of(&self.dialing)
    }

    fn live(&self) -> Option<Arc<Conn>> {
        lock_of(&self.current).as_ref().filter(|conn| !conn.is_dead()).cloned()
    }

    /// The first member, from this one on, that serves; else what the last one that can be reached said.
    async fn dial(&self, first: usize) -> Result<(Conn, usize), EngineError> {
        let members = &self.config.members;
        let limit = if members.len() > 1 { DIAL_LIMIT_OF_MANY } else { DIAL_LIMIT };
        let mut worst: Option<EngineError> = None;
        for at in first..first + members.len() {
            let member = &members[at % members.len()];
            let (clock, broken) = (Arc::clone(&self.clock), Arc::clone(&self.broken));
            let opening = Conn::open(&self.config, member, limit, clock, Weak::clone(&self.hears), broken);
            let error = match opening.await {
                Ok(conn) => return Ok((conn, at % members.len())),
                Err(error) => error,
            };
            // That we are not let in says more than that a member is down.
            if worst.as_ref().is_none_or(|worst| worst.fault == Fault::Retry) {
                worst = Some(error);
            }
        }
        Err(worst.unwrap_or_else(|| EngineError::new(Fault::Misconfigured, "the URL names no member")))
    }
}
