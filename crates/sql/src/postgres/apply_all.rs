//! A transaction on several names, under the locks of their rows: one round trip to read, one to write.

use std::pin::Pin;

use futures_util::future::{MaybeDone, maybe_done};
use leasehold_core::{Claim, Fault};
use tokio_postgres::{Error, Row};

use super::{
    apply::{
        BEGIN_WITH_LONG_LOCK_TIMEOUT, LONG_LOCK_TIMEOUT, STATEMENTS, begin_statement, decode, execute_write,
    },
    conn::Conn,
    error::{Stage, classify, is_locked_out},
    statements::{CLAIMS, LOCK, LOCK_NEW},
};
use crate::{
    database::Failed,
    row::ClientId,
    step::{Changes, Snapshot},
    step_all::{AllChanges, claim_all},
};

/// The answer to a statement.
type Answer<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

/// Runs one transaction: reads the rows of all names, claims the names, writes the changes.
pub(super) async fn apply_all(conn: &Conn, claims: &[Claim], client: ClientId) -> Result<AllChanges, Failed> {
    let before_commit = |error: Error| classify(&error, Stage::BeforeCommit);
    conn.prepare(&STATEMENTS).await.map_err(before_commit)?;
    let mut rows = read(conn, claims, begin_statement(conn)).await;
    if conn.keeps_session() && rows.as_ref().is_err_and(is_locked_out) {
        conn.run("ROLLBACK").await.map_err(before_commit)?;
        rows = read(conn, claims, BEGIN_WITH_LONG_LOCK_TIMEOUT).await;
    }
    let snapshots: Vec<_> =
        rows.map_err(before_commit)?.into_iter().map(|rows| snapshot(conn, rows)).collect();
    let all = claim_all(&snapshots, claims, client);
    write(conn, claims, &all.changes).await?;
    Ok(all)
}

/// Locks the rows of all names in the order of the claims, creates missing ones, and reads everything about the names.
/// A row is created when its turn comes. Created later, it would be locked against the order, after the rows of later
/// names, and a transaction that keeps the order could wait for this one while this one waits for it.
async fn read(
    conn: &Conn,
    claims: &[Claim],
    begin: &'static str,
) -> Result<Vec<(Vec<Row>, Vec<Row>)>, Error> {
    let mut answers: Vec<Answer<'_>> = vec![text(conn, begin)];
    for claim in claims {
        for statement in [&LOCK_NEW, &LOCK, &CLAIMS] {
            answers.push(Box::pin(async move { conn.query(statement, &[&claim.name.as_str()]).await }));
        }
    }
    let mut rows = in_order(answers).await?.into_iter().skip(1);
    let mut names = Vec::with_capacity(claims.len());
    while let (Some(_), Some(lock), Some(claims)) = (rows.next(), rows.next(), rows.next()) {
        names.push((lock, claims));
    }
    Ok(names)
}

/// Decodes the rows of a name.
fn snapshot(conn: &Conn, rows: (Vec<Row>, Vec<Row>)) -> Result<Snapshot, Failed> {
    let (lock, claims, now) = decode(&rows)?;
    let lock = lock.ok_or_else(|| Failed::new(Fault::Internal, "a row that was just created is missing"))?;
    Ok(Snapshot { now, floor: now, lineage: conn.lineage(), lock, claims })
}

/// Writes and commits, in one round trip.
async fn write(conn: &Conn, claims: &[Claim], changes: &[Changes]) -> Result<(), Failed> {
    let changed = || claims.iter().zip(changes).filter(|(_, changes)| changes.has_row_changes());
    let mut answers: Vec<Answer<'_>> = Vec::new();
    // A commit with notifications waits for a lock that is shared by the whole server.
    if conn.keeps_session() && changed().any(|(_, changes)| !changes.notifications.is_empty()) {
        answers.push(text(conn, LONG_LOCK_TIMEOUT));
    }
    for (claim, changes) in changed() {
        let write = async move { execute_write(conn, claim.name.as_str(), changes).await };
        answers.push(Box::pin(async move { write.await.map(|()| Vec::new()) }));
    }
    let stage = if answers.is_empty() { Stage::BeforeCommit } else { Stage::Commit };
    answers.push(text(conn, "COMMIT"));
    in_order(answers).await.map(drop).map_err(|error| classify(&error, stage))
}

/// Executes text without parameters.
fn text<'a>(conn: &'a Conn, text: &'static str) -> Answer<'a> {
    Box::pin(async move { conn.run(text).await.map(|()| Vec::new()) })
}

/// The answers to statements that are sent in this order, without waiting for each other. After an error, the error of
/// the first statement that failed: the later statements fail because of it.
async fn in_order(answers: Vec<Answer<'_>>) -> Result<Vec<Vec<Row>>, Error> {
    // Each poll of all of them is in order, so the first polls are, which send the statements.
    let mut answers: Vec<MaybeDone<Answer<'_>>> = answers.into_iter().map(maybe_done).collect();
    std::future::poll_fn(|context| {
        let mut all_done = true;
        for answer in &mut answers {
            all_done &= Pin::new(answer).poll(context).is_ready();
        }
        if all_done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    answers.iter_mut().filter_map(|answer| Pin::new(answer).take_output()).collect()
}
