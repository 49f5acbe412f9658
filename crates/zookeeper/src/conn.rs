//! One connection of a session to one server.

use std::{
    io::ErrorKind,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Clock, Endpoint, EngineError, Fault, Instant, LONGEST_REPLY};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{Notify, oneshot},
};

use crate::{
    config::Config,
    outbox::{Outbox, Sent},
    runtime,
    stream::{self, StreamHalves},
    watches::{WatchHandler, Watches},
    wire::{Event, Header, Hello, LENGTH_BYTES, Op, Reader, Welcome, XID_EVENT},
};

/// The longest welcome message. A real one has some forty bytes.
const MAX_WELCOME_BYTES: usize = 1024;
/// The shortest session timeout that this client accepts, in milliseconds. A server grants at least two of its ticks,
/// and no real server has ticks of less than 10 ms. With a shorter timeout, heartbeats would follow each other without
/// a pause.
const MIN_TIMEOUT_MILLIS: i32 = 20;
/// The first size of the receive buffer, in bytes.
const RECEIVE_BUFFER_BYTES: usize = 16 * 1024;
/// A receive buffer larger than this is freed when it is empty.
const MAX_IDLE_BUFFER_BYTES: usize = 256 * 1024;

/// One connection. Dropping it closes the connection and does not end the session.
pub(crate) struct Conn {
    pub(crate) endpoint: Endpoint,
    pub(crate) watches: Watches,
    clock: Arc<dyn Clock>,
    outbox: Arc<Outbox>,
    state: Arc<ConnState>,
    /// Dropped with this connection, which ends the task of the connection.
    _task_guard: oneshot::Sender<()>,
}

/// The state of a connection, shared with its task.
struct ConnState {
    /// The connection has ended. This state is final.
    dead: AtomicBool,
    /// The newest change that the server reported on this connection, as its zxid.
    last_zxid: AtomicI64,
    /// The newest change that was reported on any connection of the session.
    newest_zxid: Arc<AtomicI64>,
}

impl Conn {
    /// Connects, and requests or resumes a session.
    pub(crate) async fn handshake(
        config: &Config,
        endpoint: &Endpoint,
        hello: &Hello<'_>,
    ) -> Result<(StreamHalves, Welcome), EngineError> {
        let failed = |error: std::io::Error| {
            // A server with a read-only mode also closes the connection of a client that does not ask for that mode.
            let reason = match error.kind() {
                ErrorKind::UnexpectedEof => {
                    "it hung up at once, as a server without a quorum does".to_owned()
                }
                _ => error.to_string(),
            };
            let hint = stream::tls_hint(config);
            EngineError::new(Fault::Retry, format!("cannot connect to {endpoint}: {reason}{hint}"))
        };
        let (mut read, mut write) = stream::open(config, endpoint).await?.halves;
        write.write_all(&hello.message()).await.map_err(failed)?;
        write.flush().await.map_err(failed)?;
        let not_zookeeper =
            || EngineError::new(Fault::Misconfigured, format!("what listens at {endpoint} is no ZooKeeper"));
        let length = usize::try_from(read.read_u32().await.map_err(failed)?).unwrap_or(usize::MAX);
        if length > MAX_WELCOME_BYTES {
            return Err(not_zookeeper());
        }
        let mut message = vec![0; length];
        read.read_exact(&mut message).await.map_err(failed)?;
        let welcome = Welcome::read(&message).ok_or_else(not_zookeeper)?;
        if welcome.session != 0 && welcome.timeout_millis < MIN_TIMEOUT_MILLIS {
            return Err(not_zookeeper());
        }
        Ok(((read, write), welcome))
    }

    /// Starts to use a connection of a session. A server that leaves a request unanswered for `silence_limit` counts as
    /// dead. `broken` is notified when the connection is gone.
    pub(crate) fn start(
        (read, write): StreamHalves,
        endpoint: Endpoint,
        silence_limit: Duration,
        (newest_zxid, last_xid): (Arc<AtomicI64>, Arc<AtomicI32>),
        clock: Arc<dyn Clock>,
        handler: Weak<dyn WatchHandler>,
        broken: Arc<Notify>,
    ) -> Self {
        let (outbox, state) = (Arc::new(Outbox::new(last_xid)), Arc::new(ConnState::new(newest_zxid)));
        let (task_guard, conn_dropped) = oneshot::channel();
        let watches = Watches::new(handler);
        let (task_outbox, task_state, task_watches, task_clock) =
            (Arc::clone(&outbox), Arc::clone(&state), watches.clone(), Arc::clone(&clock));
        runtime::spawn(async move {
            let end_notice = EndNotice { outbox: &task_outbox, state: &task_state, broken: &broken };
            tokio::select! {
                reason = receive(read, &task_outbox, &task_state, &task_watches) => {
                    tracing::debug!(why = reason, "the connection broke");
                }
                error = write_all(write, &task_outbox, &*task_clock) => tracing::debug!(%error, "the connection broke"),
                () = until_silent(&task_outbox, &*task_clock, silence_limit) => {
                    tracing::debug!("the server does not answer");
                }
                _ = conn_dropped => {}
            }
            drop(end_notice);
        });
        Self { endpoint, watches, clock, outbox, state, _task_guard: task_guard }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state.dead.load(Ordering::Relaxed)
    }

    /// The newest change that the server reported on this connection, as its zxid.
    pub(crate) fn last_zxid(&self) -> i64 {
        self.state.last_zxid.load(Ordering::Relaxed)
    }

    /// The number of unanswered requests.
    pub(crate) fn load(&self) -> usize {
        self.outbox.load()
    }

    /// Queues a request. The server applies requests in the order in which they were queued.
    pub(crate) fn send<O: Op>(&self, op: &O) -> Sent<O> {
        self.outbox.send(op, &*self.clock)
    }
}

impl ConnState {
    const fn new(newest_zxid: Arc<AtomicI64>) -> Self {
        Self { dead: AtomicBool::new(false), last_zxid: AtomicI64::new(0), newest_zxid }
    }
}

/// Fails all unanswered requests when the task of a connection ends, for whatever reason.
struct EndNotice<'a> {
    outbox: &'a Outbox,
    state: &'a ConnState,
    /// Notified when the connection ends.
    broken: &'a Notify,
}

impl Drop for EndNotice<'_> {
    fn drop(&mut self) {
        self.state.dead.store(true, Ordering::Relaxed);
        self.outbox.close();
        self.broken.notify_waiters();
    }
}

/// Receives messages until the server closes the connection or sends something unexpected. Returns the reason.
async fn receive(
    mut read: impl AsyncRead + Unpin,
    outbox: &Outbox,
    state: &ConnState,
    watches: &Watches,
) -> &'static str {
    let mut received = Vec::with_capacity(RECEIVE_BUFFER_BYTES);
    loop {
        match read.read_buf(&mut received).await {
            Ok(0) | Err(_) => return "the server hung up",
            Ok(_) => {}
        }
        let mut unread = &received[..];
        while let Some((length, after)) = unread.split_first_chunk::<LENGTH_BYTES>() {
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            if length > LONGEST_REPLY {
                return "an answer is too long";
            }
            let Some((message, after)) = after.split_at_checked(length) else { break };
            if !dispatch(message, outbox, state, watches) {
                return "the server sent something unexpected";
            }
            unread = after;
        }
        let read_bytes = received.len() - unread.len();
        received.drain(..read_bytes);
        if received.is_empty() && received.capacity() > MAX_IDLE_BUFFER_BYTES {
            received = Vec::with_capacity(RECEIVE_BUFFER_BYTES);
        }
    }
}

/// Handles one message: an event, or an answer. Returns false if the message is unexpected.
fn dispatch(message: &[u8], outbox: &Outbox, state: &ConnState, watches: &Watches) -> bool {
    let mut reader = Reader::new(message);
    let Some(header) = Header::read(&mut reader) else { return false };
    if header.xid == XID_EVENT {
        return Event::read(&mut reader).map(|event| watches.on_event(&event)).is_some();
    }
    state.last_zxid.fetch_max(header.zxid, Ordering::Relaxed);
    state.newest_zxid.fetch_max(header.zxid, Ordering::Relaxed);
    outbox.on_answer(header, reader.rest())
}

/// Writes queued requests until an error occurs, and returns the error.
async fn write_all(mut write: impl AsyncWrite + Unpin, outbox: &Outbox, clock: &dyn Clock) -> std::io::Error {
    loop {
        let batch = outbox.next_batch(clock).await;
        let written = async {
            write.write_all(&batch).await?;
            write.flush().await
        };
        if let Err(error) = written.await {
            return error;
        }
    }
}

/// Returns when a request has been unanswered for too long.
async fn until_silent(outbox: &Outbox, clock: &dyn Clock, silence_limit: Duration) {
    loop {
        runtime::sleep(silence_limit / 4).await;
        let now: Instant = clock.now();
        if outbox.waiting_since().is_some_and(|since| now.since(since) > silence_limit) {
            return;
        }
    }
}
