//! A pinned session, as the engine uses it. Its [task](super::task) owns the connection.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use leasehold_core::{BoxFuture, Fault, Guarantee, Lineage};
use tokio::sync::{mpsc, oneshot};

use super::{
    super::{
        conn::ResultSet,
        server::Server,
        statements::{REPLICAS, SERVER},
    },
    guarantee::{Judged, guarantee},
    look,
    open::Opened,
    task::{Request, Shared, Task},
};
use crate::{
    database::Failed,
    runtime,
    session::{
        lock_key::Key,
        options::LONGEST_TTL,
        server::{Batch, BatchFailed, BatchReply, KeyView, Session, SessionEvents},
    },
};

/// How many requests of one session wait for the connection. The process sends a few at once, so that more would show
/// an error of ours.
const INBOX: usize = 64;
/// How many keys one session has at most. The server has no limit but its memory.
const MAX_KEYS: usize = 100_000;

/// One session of the server, for all names of the process.
pub(super) struct Pinned {
    inbox: mpsc::Sender<Request>,
    shared: Arc<Shared>,
    address: String,
    connection: u64,
    lineage: Lineage,
    lock_delay: Duration,
    judged: Judged,
}

impl Pinned {
    /// Pins an opened session, whose number is `session`.
    pub(super) fn new(
        opened: Opened,
        (session, events): (u64, Weak<dyn SessionEvents>),
        address: String,
        (delay, lock_delay): (Duration, Duration),
    ) -> Self {
        let (inbox, requests) = mpsc::channel(INBOX);
        let shared = Arc::<Shared>::default();
        let (lineage, connection) = (opened.lineage, opened.connection);
        let judged = Judged { delay, path: opened.path };
        let task =
            Task { conn: opened.conn, relayed: opened.relayed, connection, shared: Arc::clone(&shared) };
        runtime::spawn(async move {
            task.serve(requests).await;
            if let Some(events) = events.upgrade() {
                events.ended(session);
            }
        });
        Self { inbox, shared, address, connection, lineage, lock_delay, judged }
    }

    /// Sends a request to the task, and waits for the answer.
    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, BatchFailed>>) -> Request,
    ) -> Result<T, BatchFailed> {
        let (answer, answered) = oneshot::channel();
        let ended = || BatchFailed::Ended(Failed::new(Fault::Retry, "the session has ended"));
        self.inbox.send(request(answer)).await.map_err(|_| ended())?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Executes statements that lock nothing.
    async fn query(&self, text: &str) -> Result<Vec<ResultSet>, Failed> {
        let sets = self.ask(|answer| Request::Query(text.to_owned(), answer)).await;
        sets.map_err(|(BatchFailed::Undone(failed) | BatchFailed::Ended(failed))| failed)
    }
}

impl Session for Pinned {
    fn exchange<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<BatchReply, BatchFailed>> {
        Box::pin(self.ask(|answer| Request::Batch(batch.clone(), answer)))
    }

    fn heartbeat(&self) -> BoxFuture<'_, Result<(), BatchFailed>> {
        Box::pin(self.ask(Request::Heartbeat))
    }

    fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.shared.has_ended.store(true, Ordering::Release);
        self.shared.closing.notify_one();
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn id(&self) -> String {
        look::session_id(self.connection)
    }

    fn lineage(&self) -> Lineage {
        self.lineage
    }

    fn longest_ttl(&self) -> Duration {
        LONGEST_TTL
    }

    fn lock_delay(&self) -> Duration {
        self.lock_delay
    }

    fn max_keys(&self) -> usize {
        MAX_KEYS
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, Failed>> {
        Box::pin(async move {
            let queries = [&SERVER, &REPLICAS].map(|sql| sql.statements()).join("; ");
            Ok(guarantee(&Server::read(self.query(&queries).await?), &self.judged))
        })
    }

    fn look<'a>(&'a self, keys: Option<&'a [Key]>) -> BoxFuture<'a, Result<Vec<KeyView>, Failed>> {
        Box::pin(async move {
            match keys {
                Some(keys) => look::read(keys, &self.query(&look::statements(keys)).await?),
                None => look::read_all(&self.query(look::ALL).await?),
            }
        })
    }

    fn shown(&self, key: &Key) -> String {
        look::shown(key)
    }

    fn how_to_end(&self, session: &str) -> String {
        look::how_to_end(session)
    }
}
