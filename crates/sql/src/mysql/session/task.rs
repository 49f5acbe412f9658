//! The task that owns the connection of a session: it executes requests one after another, and notices at once that the
//! server has closed the connection.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use leasehold_core::Fault;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{
    super::{
        conn::{Conn, ResultSet},
        error::{Commits, ExecuteError},
        relay::Relayed,
        rows::ColumnReader,
        server::replica_error,
    },
    batch,
};
use crate::{
    database::Failed,
    session::{
        options::LONGEST_TTL,
        server::{Batch, BatchFailed, BatchReply},
    },
};

/// How often the undo of a failed batch is tried, before the session is closed, which undoes everything.
const UNDO_TRIES: usize = 8;
/// The proof that the session is the one that was opened, and that the server is still a primary.
const HEARTBEAT: &str = "SELECT CONNECTION_ID(), @@global.read_only";

/// A request to the task.
pub(super) enum Request {
    Batch(Batch, oneshot::Sender<Result<BatchReply, BatchFailed>>),
    Heartbeat(oneshot::Sender<Result<(), BatchFailed>>),
    /// Statements that lock nothing.
    Query(String, oneshot::Sender<Result<Vec<ResultSet>, BatchFailed>>),
}

/// What the task and its handle share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) has_ended: AtomicBool,
    /// Notified to close the connection.
    pub(super) closing: Notify,
}

/// The task that owns the connection. When it ends, the connection is closed.
pub(super) struct Task {
    pub(super) conn: Conn,
    pub(super) relayed: Option<Relayed>,
    pub(super) connection: u64,
    pub(super) shared: Arc<Shared>,
}

impl Task {
    /// Serves requests until the session ends.
    pub(super) async fn serve(mut self, mut requests: mpsc::Receiver<Request>) {
        let shared = Arc::clone(&self.shared);
        let serving = async {
            loop {
                let request = tokio::select! {
                    biased;
                    () = is_closed(&mut self.relayed) => return,
                    request = requests.recv() => request,
                };
                let Some(request) = request else { return };
                if !self.answer(request).await {
                    return;
                }
            }
        };
        // A request that is being served when the session is closed gets no answer.
        tokio::select! { () = serving => {}, () = shared.closing.notified() => {} }
        shared.has_ended.store(true, Ordering::Release);
    }

    /// Answers a request; returns whether the session is still usable.
    async fn answer(&mut self, request: Request) -> bool {
        // Before a sender hears that the session ended, the session has ended for everybody.
        let note = |ended: bool| {
            if ended {
                self.shared.has_ended.store(true, Ordering::Release);
            }
            !ended
        };
        match request {
            Request::Batch(batch, sender) => {
                let answer = exchange(&mut self.conn, self.connection, &batch).await;
                let usable = note(matches!(answer, Err(BatchFailed::Ended(_))));
                // A caller that is gone has dropped its receiver.
                let _ = sender.send(answer);
                usable
            }
            Request::Query(text, sender) => {
                let answer = execute(&mut self.conn, &text).await.map_err(|error| {
                    let refused = matches!(error, ExecuteError::ServerError { .. });
                    let failed = error.classify(Commits::Never);
                    if refused { BatchFailed::Undone(failed) } else { BatchFailed::Ended(failed) }
                });
                let usable = note(matches!(answer, Err(BatchFailed::Ended(_))));
                let _ = sender.send(answer);
                usable
            }
            Request::Heartbeat(sender) => {
                let answer = heartbeat(&mut self.conn, self.connection).await.map_err(BatchFailed::Ended);
                let usable = note(answer.is_err());
                let _ = sender.send(answer);
                usable
            }
        }
    }
}

/// Resolves when the server has closed the connection.
async fn is_closed(relayed: &mut Option<Relayed>) {
    match relayed {
        Some(relayed) => relayed.closed().await,
        None => pending().await,
    }
}

async fn exchange(conn: &mut Conn, connection: u64, batch: &Batch) -> Result<BatchReply, BatchFailed> {
    let failed = match execute(conn, &batch::statements(batch)).await {
        Ok(sets) => {
            let answers = batch::read(batch, &sets).map_err(BatchFailed::Ended)?;
            check_connection(answers.connection, connection).map_err(BatchFailed::Ended)?;
            check_primary(answers.read_only).map_err(BatchFailed::Ended)?;
            return Ok(answers.reply);
        }
        Err(failed @ ExecuteError::ServerError { .. }) => failed.classify(Commits::Never),
        Err(lost) => return Err(BatchFailed::Ended(lost.classify(Commits::Never))),
    };
    let (text, mut tries) = (batch::undo_statements(batch), 1..UNDO_TRIES);
    let undone = loop {
        match execute(conn, &text).await {
            Ok(sets) => break sets,
            // Whatever ended the first statement can end another one.
            Err(ExecuteError::ServerError { .. }) if tries.next().is_some() => {}
            Err(error) => return Err(BatchFailed::Ended(error.classify(Commits::Never))),
        }
    };
    let found = batch::connection(&undone).map_err(BatchFailed::Ended)?;
    check_connection(found, connection).map_err(BatchFailed::Ended)?;
    Err(BatchFailed::Undone(failed))
}

async fn heartbeat(conn: &mut Conn, connection: u64) -> Result<(), Failed> {
    let sets = execute(conn, HEARTBEAT).await.map_err(|error| error.classify(Commits::Never))?;
    let row = sets.last().and_then(|set| set.rows.first());
    let row = row.ok_or_else(|| Failed::new(Fault::Retry, "the server answered nothing"))?;
    let mut columns = ColumnReader::new(row);
    check_connection(columns.next()?, connection)?;
    check_primary(columns.next()?)
}

/// A primary that became a replica grants nothing: clients that connect now lock on another server.
fn check_primary(read_only: i64) -> Result<(), Failed> {
    if read_only != 0 { Err(replica_error()) } else { Ok(()) }
}

/// Executes statements. An answer after the time limit would be of no use: by then no hold is valid.
async fn execute(conn: &mut Conn, text: &str) -> Result<Vec<ResultSet>, ExecuteError> {
    conn.execute_within(LONGEST_TTL, text).await
}

/// A proxy can connect again in silence: then the locks of the session are gone.
fn check_connection(found: u64, expected: u64) -> Result<(), Failed> {
    if found == expected {
        return Ok(());
    }
    Err(Failed::new(
        Fault::Retry,
        format!(
            "connection {found} answered in place of connection {expected}, which had the locks: a proxy connected again; name the server itself"
        ),
    ))
}
