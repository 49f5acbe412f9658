//! The connection to the server: made when first needed, made again when it breaks, shared by all requests. Nothing is sent
//! twice by it: a request that met a broken connection answers "unknown", and core decides.
#![expect(
    clippy::disallowed_methods,
    reason = "the door of this crate: it runs the connection, bounds it in time, and reads the wall clock"
)]

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::future::join;
use leasehold_core::{Clock, EngineError, Fault, Instant, News};
use redis::{
    Cmd, Value,
    aio::{MultiplexedConnection, PubSubSink},
};
use tokio::sync::{Notify, oneshot};

use crate::{
    config::Config,
    dial,
    error::{sort, sort_connecting},
    news::Ears,
    outbox::{Items, Outbox, Sender, Values},
    scripts::Script,
};

/// How long connecting may take, until the server has answered to everything that is asked first.
const DIAL_LIMIT: Duration = Duration::from_secs(3);
/// The pause after a failed attempt to connect, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// While somebody waits for the server, its clock is asked so often: well within the shortest claim time, so that pushed
/// grants can be dated.
const PULSE: Duration = Duration::from_millis(500);
/// A server that answers nothing for so long is taken for gone, and connected to anew.
const SILENCE: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub(crate) struct Link(Arc<Inner>);

struct Inner {
    config: Config,
    channel: String,
    clock: Arc<dyn Clock>,
    ears: Arc<Ears>,
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
    made: u64,
    /// In a row, among them connections that broke at once.
    failed: u32,
    /// When the newest connection was made.
    born: Option<Instant>,
    under_way: bool,
    /// Before this, the last error is the answer.
    not_before: Option<(Instant, Fault, String)>,
}

/// One connection.
pub(crate) struct Conn {
    /// Counts connections: on one of them, requests are applied in order.
    pub(crate) number: u64,
    mux: MultiplexedConnection,
    outbox: Outbox,
    dead: Arc<AtomicBool>,
    ears: Arc<Ears>,
    /// Dropped with it: ends its task.
    _alive: oneshot::Sender<()>,
}

impl Link {
    pub(crate) fn new(config: Config, channel: String, clock: Arc<dyn Clock>, ears: Arc<Ears>) -> Self {
        let (current, dialing, dialed, broken) = Default::default();
        Self(Arc::new(Inner { config, channel, clock, ears, current, dialing, dialed, broken }))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
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
                tokio::spawn(Attempt(Arc::clone(&self.0)).run());
            }
        }
        dialed.await;
        if let Some(conn) = self.0.live() {
            return Ok(conn);
        }
        let dialing = self.0.dialing();
        let (fault, message) = match &dialing.not_before {
            Some((_, fault, message)) => (*fault, message.clone()),
            None => {
                (Fault::Retry, format!("cannot connect to {}: the attempt was ended", self.0.config.address))
            }
        };
        Err(EngineError::new(fault, message))
    }

    /// Keeps a connection that was made once: when it breaks, makes a new one. Never returns; whoever reads news polls it.
    pub(crate) async fn mend(&self) {
        loop {
            let broken = self.0.broken.notified();
            let was_made = self.0.current().is_some();
            if self.0.live().is_some() || !was_made {
                broken.await;
            } else if self.conn().await.is_err() {
                tokio::time::sleep(FIRST_PAUSE).await;
            }
        }
    }
}

/// An attempt to connect. In whatever way it ends, those who wait for it are told.
struct Attempt(Arc<Inner>);

impl Attempt {
    async fn run(self) {
        let link = &self.0;
        let number = link.dialing().made + 1;
        let made = link.dial(number).await;
        let (now, address) = (link.clock.now(), &link.config.address);
        let mut dialing = link.dialing();
        if dialing.born.take().is_some_and(|born| now.since(born) > LONGEST_PAUSE) {
            dialing.failed = 0;
        }
        // A connection that was made counts as failed until it has lived for a while: some servers hang up at once.
        let pause = (FIRST_PAUSE * (1 << dialing.failed.min(16))).min(LONGEST_PAUSE);
        dialing.failed += 1;
        match made {
            Ok(conn) => {
                let again = dialing.made > 0;
                dialing.made = number;
                dialing.born = Some(now);
                dialing.not_before = Some((now.after(pause), Fault::Retry, format!("{address} hung up")));
                *link.current() = Some(conn);
                if again {
                    link.ears.mailbox.push(News::AskAll);
                }
                tracing::debug!(server = %address, again, "connected");
            }
            Err(error) => {
                tracing::debug!(server = %address, %error, "not connected");
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
        self.dialing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> Option<Arc<Conn>> {
        self.current().as_ref().filter(|conn| !conn.dead.load(Ordering::Acquire)).cloned()
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Conn>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn dial(&self, number: u64) -> Result<Arc<Conn>, EngineError> {
        let address = &self.config.address;
        let late = |_| {
            let message = format!("cannot connect to {address}: no answer within {DIAL_LIMIT:?}");
            EngineError::new(Fault::Retry, message)
        };
        let begun = self.clock.now();
        let connecting = async {
            let mut dialed = dial::open(&self.config, &self.channel, &self.ears).await?;
            let mut driver = std::mem::replace(&mut dialed.driver, Box::pin(std::future::pending()));
            let (digests, time) = tokio::select! {
                prepared = dialed.prepare(&self.channel) => {
                    prepared.map_err(|error| sort_connecting(error, &address.to_string()))?
                }
                () = &mut driver => {
                    return Err(EngineError::new(Fault::Retry, format!("cannot connect to {address}: it hung up")));
                }
            };
            let mux = dialed.mux;
            self.ears.connected(begun, self.clock.now(), time);
            let (alive, gone) = oneshot::channel();
            let dead = Arc::new(AtomicBool::new(false));
            let (ears, clock) = (|| Arc::clone(&self.ears), || Arc::clone(&self.clock));
            let (outbox, sender) = Sender::new(mux.clone(), digests, clock(), ears());
            let pulse = pulse(mux.clone(), dialed.news, ears(), clock());
            let last_words = LastWords { dead: Arc::clone(&dead), broken: Arc::clone(&self.broken) };
            tokio::spawn(async move {
                let _last_words = last_words;
                tokio::select! {
                    () = driver => {}
                    () = sender.run() => {}
                    () = pulse => {}
                    _ = gone => {}
                }
            });
            Ok(Arc::new(Conn { number, mux, outbox, dead, ears: ears(), _alive: alive }))
        };
        tokio::time::timeout(DIAL_LIMIT, connecting).await.map_err(late)?
    }
}

impl Conn {
    /// Runs a script for these items.
    pub(crate) async fn run(&self, script: Script, items: Items) -> Result<Values, EngineError> {
        let _under_way = self.ears.under_way();
        self.outbox.call(script, items).await
    }

    /// Asks the server to say when a lock changes that another program holds. True if it is gone already.
    pub(crate) async fn track(&self, lock: &str) -> Result<bool, EngineError> {
        let _under_way = self.ears.under_way();
        let mut asked = redis::pipe();
        asked.cmd("CLIENT").arg(&["CACHING", "YES"]).ignore().cmd("GET").arg(lock);
        let value: (Option<Vec<u8>>,) = asked.query_async(&mut self.mux.clone()).await.map_err(sort)?;
        Ok(value.0.is_none())
    }

    /// Sends a command that is no script.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value, EngineError> {
        let _under_way = self.ears.under_way();
        command.query_async(&mut self.mux.clone()).await.map_err(sort)
    }
}

/// While somebody waits, asks the server for its time, and for a sign of life on the connection for news if that is another;
/// ends when one of them stays silent.
async fn pulse(
    mut mux: MultiplexedConnection,
    mut news: Option<PubSubSink>,
    ears: Arc<Ears>,
    clock: Arc<dyn Clock>,
) {
    loop {
        if !ears.is_wanted() {
            ears.interest.notified().await;
        }
        // An error is a sign of life; a connection that broke ends its driver.
        let time = async {
            let sent = clock.now();
            if let Ok((seconds, micros)) = redis::cmd("TIME").query_async::<(u64, u64)>(&mut mux).await {
                ears.learn(sent, clock.now(), seconds * 1_000_000 + micros);
            }
        };
        let sign = async {
            if let Some(news) = &mut news {
                let _ = news.ping::<Value>().await;
            }
        };
        if tokio::time::timeout(SILENCE, join(time, sign)).await.is_err() {
            return;
        }
        tokio::time::sleep(PULSE).await;
    }
}

/// This machine's time of day, since 1970. To be shown beside the server's: nothing is decided by it.
pub(crate) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Tells, in whatever way the task of a connection ends, that it is gone.
struct LastWords {
    dead: Arc<AtomicBool>,
    broken: Arc<Notify>,
}

impl Drop for LastWords {
    fn drop(&mut self) {
        self.dead.store(true, Ordering::Release);
        self.broken.notify_one();
    }
}
