//! Rows of other programs on PostgreSQL, each locked in a transaction of its own connection.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{BoxFuture, Contact, Diagnostic, Fault, Guarantee, Lineage, Name};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
};
use tokio_postgres::{
    Client, Connection, Error,
    error::SqlState,
    types::{ToSql, Type},
};

use super::{
    config::Config,
    diagnose::{Subject, diagnose},
    dial::{Dialed, dial},
    error::{POOLER_FOUND, Stage, classify, pooler_error},
    rows::column,
    server_start::ServerStart,
    session::how_to_end,
};
use crate::{
    database::Failed,
    row_hold::{self, EndReport, LookedRow, RowEngine, RowHolder, RowServer, RowSession, RowTable, TryLock},
    runtime,
};

/// The settings of a session, and how the server shows them. A transaction of a hold is idle for its whole life. A
/// client that vanished is noticed after 60 s of silence and three probes, later than its holds end by its own clock.
const SETTINGS: [(&str, &str); 7] = [
    ("idle_in_transaction_session_timeout", "0"),
    ("statement_timeout", "4000"),
    ("lock_timeout", "3000"),
    ("tcp_keepalives_idle", "60"),
    ("tcp_keepalives_interval", "10"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "90000"),
];
/// The settings that the server shows, and whether the session is encrypted for a network (`tcp_` settings are 0 on a
/// unix socket).
const SHOWN: &str =
    "SELECT name, setting FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) ANY($1)";
/// From version 17 on the server can end long transactions.
const NO_TRANSACTION_LIMIT: &str = "SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'transaction_timeout'";
/// How long the driver may take to say farewell to the server. It waits for the answers to all requests first.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// The position in the log of the server. The lock of a row is a record in the log, so the position after it is larger
/// than at every earlier lock.
const POSITION: &str =
    "SELECT (pg_catalog.pg_current_wal_insert_lsn() OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn)::bigint";

/// Holds in rows of other programs. This function does not connect; the first request does.
#[must_use]
pub fn row_engine(config: Config, rows: RowTable) -> RowEngine {
    RowEngine::of(Arc::new(Server { config, rows: Arc::new(rows), contact: Contact::default() }), "postgres")
}

/// The end of the message about a session without the settings of leasehold.
pub(crate) const SETTINGS_DROPPED: &str = "a pooler drops the settings, name the server itself";

struct Server {
    config: Config,
    rows: Arc<RowTable>,
    contact: Contact,
}

struct Session {
    client: Client,
    rows: Arc<RowTable>,
    lineage: Lineage,
    has_ended: Arc<AtomicBool>,
    /// Tells the task of the connection that the session was dropped.
    _closing: oneshot::Sender<()>,
}

impl RowServer for Server {
    fn open(&self, end: EndReport) -> BoxFuture<'_, Result<Arc<dyn RowSession>, Failed>> {
        Box::pin(async move {
            let options: Vec<_> = SETTINGS.iter().map(|(name, value)| format!("-c {name}={value}")).collect();
            let options = options.join(" ") + " -c default_transaction_isolation=read\\ committed";
            let limit = self.config.dial_limit();
            let dialed = dial(&self.config.server, Some(&options), limit).await;
            let Dialed { client, connection, .. } =
                dialed.map_err(|failed| self.config.with_address(explain_pooler(failed)))?;
            let has_ended = Arc::new(AtomicBool::new(false));
            let (closing, dropped) = oneshot::channel();
            runtime::spawn(drive(connection, dropped, Arc::clone(&has_ended), end));
            let (rows, lineage) = (Arc::clone(&self.rows), Lineage::new(0));
            let mut session = Session { client, rows, lineage, has_ended, _closing: closing };
            let set_up = session.set_up();
            session.lineage = runtime::within(limit, set_up)
                .await
                .unwrap_or_else(|| Err(Failed::new(Fault::Retry, format!("no answer within {limit:?}"))))
                .map_err(explain_pooler)?;
            Ok(Arc::new(session) as Arc<dyn RowSession>)
        })
    }

    fn how_to_end(&self, session: Option<&str>) -> String {
        match session {
            Some(session) => format!("to end it, run {}", how_to_end(session)),
            None => "the server does not say whose it is; pg_stat_activity lists the sessions, and pg_terminate_backend ends one".into(),
        }
    }

    fn rows(&self) -> &RowTable {
        &self.rows
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, Failed>> {
        let subject = Subject::RowHolds(self.rows.quoted('"'), self.rows.creates());
        Box::pin(async move { diagnose(&self.config, &subject).await })
    }

    fn contact(&self) -> &Contact {
        &self.contact
    }
}

/// The error of a pooler, with what rows need: `listen_url=` does not help.
fn explain_pooler(failed: Failed) -> Failed {
    if failed.message != pooler_error().message {
        return failed;
    }
    let message = format!("{POOLER_FOUND}: hold=row needs the server itself, name it in the URL");
    Failed::new(Fault::Misconfigured, message)
}

/// Drives the connection until it ends or the session is dropped, and reports the end.
async fn drive<S, T>(
    mut connection: Connection<S, T>,
    dropped: oneshot::Receiver<()>,
    has_ended: Arc<AtomicBool>,
    end: EndReport,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut driven = Box::pin(async move {
        while let Some(Ok(_)) = poll_fn(|context| connection.poll_message(context)).await {}
    });
    tokio::select! {
        () = &mut driven => {}
        _ = dropped => drop(runtime::within(CLOSE_LIMIT, &mut driven).await),
    }
    has_ended.store(true, Ordering::Release);
    // The connection is closed before anybody learns of its end.
    drop(driven);
    drop(end);
}

fn failed(error: Error) -> Failed {
    classify(&error, Stage::BeforeCommit)
}

impl Session {
    /// Checks the settings of the session, and returns the lineage.
    async fn set_up(&self) -> Result<Lineage, Failed> {
        self.client.query_typed(NO_TRANSACTION_LIMIT, &[]).await.map_err(failed)?;
        let names: Vec<&str> = SETTINGS.iter().map(|(name, _)| *name).collect();
        let shown = self.client.query_typed(SHOWN, &[(&names, Type::TEXT_ARRAY)]).await.map_err(failed)?;
        if shown.len() != SETTINGS.len() {
            let message = format!("the session has {} of {} settings", shown.len(), SETTINGS.len());
            return Err(Failed::new(Fault::Misconfigured, message));
        }
        for row in &shown {
            let (name, value): (&str, &str) = (column(row, 0)?, column(row, 1)?);
            let wanted = SETTINGS.iter().find(|(known, _)| *known == name).map_or("", |(_, wanted)| wanted);
            // On a unix socket there are no probes: a client that vanished is a process that ended.
            if value != wanted && !(name.starts_with("tcp_") && value == "0") {
                let message = format!("the session has {name}={value} and not {wanted}: {SETTINGS_DROPPED}");
                return Err(Failed::new(Fault::Misconfigured, message));
            }
        }
        // A crash may lose the end of the log, so each start begins a new lineage.
        Ok(ServerStart::read(&self.client).await?.lineage)
    }

    /// The condition for the row of a name, and its parameters.
    fn condition<'a>(&'a self, name: &'a Name) -> (String, Vec<&'a str>) {
        let columns = self.rows.columns(name, '"');
        let part = |(index, (column, _)): (usize, &(String, &str))| {
            format!("{column} OPERATOR(pg_catalog.=) ${}", index + 1)
        };
        let text = columns.iter().enumerate().map(part).collect::<Vec<_>>().join(" AND ");
        (text, columns.into_iter().map(|(_, value)| value).collect())
    }

    async fn query(&self, text: &str, values: &[&str]) -> Result<Vec<tokio_postgres::Row>, Error> {
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::TEXT)).collect();
        self.client.query_typed(text, &typed).await
    }

    /// Begins a transaction, locks the row, and reads the position in the log, in one round trip.
    async fn lock_row(&self, name: &Name) -> Result<TryLock, Failed> {
        let (condition, values) = self.condition(name);
        let text =
            format!("SELECT 1 FROM {} WHERE {condition} LIMIT 2 FOR UPDATE NOWAIT", self.rows.quoted('"'));
        let begin = self.client.batch_execute("BEGIN");
        let (begun, locked, position) =
            tokio::join!(biased; begin, self.query(&text, &values), self.query(POSITION, &[]));
        begun.map_err(failed)?;
        match locked {
            Ok(rows) if rows.len() > 1 => {
                self.unlock().await?;
                Err(row_hold::several_rows(&self.rows.described(name)))
            }
            Ok(rows) if !rows.is_empty() => {
                let position: i64 = column(position.map_err(failed)?.first().ok_or_else(no_row)?, 0)?;
                Ok(TryLock::Locked(position.cast_unsigned()))
            }
            Ok(_) => {
                self.unlock().await?;
                Ok(TryLock::Missing)
            }
            Err(error) => {
                self.unlock().await?;
                if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
                    return Ok(TryLock::Taken);
                }
                Err(failed(error))
            }
        }
    }

    /// Creates the row of a name, unless there is one.
    async fn create_row(&self, name: &Name) -> Result<(), Failed> {
        let columns = self.rows.columns(name, '"');
        let names: Vec<&str> = columns.iter().map(|(column, _)| column.as_str()).collect();
        let values: Vec<&str> = columns.iter().map(|(_, value)| *value).collect();
        let numbers: Vec<String> = (1..=values.len()).map(|number| format!("${number}")).collect();
        let text = format!(
            "INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING",
            self.rows.quoted('"'),
            names.join(", "),
            numbers.join(", ")
        );
        self.query(&text, &values).await.map(drop).map_err(failed)
    }
}

fn no_row() -> Failed {
    Failed::new(Fault::Internal, "the server returned no row")
}

impl RowSession for Session {
    fn lock<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<TryLock, Failed>> {
        Box::pin(self.lock_row(name))
    }

    fn create<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<(), Failed>> {
        Box::pin(self.create_row(name))
    }

    fn unlock(&self) -> BoxFuture<'_, Result<(), Failed>> {
        Box::pin(async { self.client.batch_execute("ROLLBACK").await.map_err(failed) })
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), Failed>> {
        self.heartbeat()
    }

    fn heartbeat(&self) -> BoxFuture<'_, Result<(), Failed>> {
        Box::pin(async { self.client.query_typed("SELECT 1", &[]).await.map(drop).map_err(failed) })
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire) || self.client.is_closed()
    }

    fn lineage(&self) -> Lineage {
        self.lineage
    }

    fn look<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<LookedRow, Failed>> {
        Box::pin(async move {
            let (condition, values) = self.condition(name);
            // The row has the number of the last transaction that locked it, and that transaction has a lock on its own
            // number until it ends.
            let text = format!(
                "SELECT r.xmax OPERATOR(pg_catalog.=) '0'::pg_catalog.xid, l.pid::bigint, COALESCE(a.application_name, ''), COALESCE(pg_catalog.host(a.client_addr), 'a local socket'), \
                 EXTRACT(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) a.xact_start)::pg_catalog.float8 \
                 FROM (SELECT xmax FROM {} WHERE {condition}) AS r LEFT JOIN pg_catalog.pg_locks AS l \
                 ON l.locktype OPERATOR(pg_catalog.=) 'transactionid' AND l.transactionid OPERATOR(pg_catalog.=) r.xmax \
                 AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' \
                 LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid ORDER BY l.pid LIMIT 1",
                self.rows.quoted('"')
            );
            let rows = self.query(&text, &values).await.map_err(failed)?;
            let Some(row) = rows.first() else { return Ok(LookedRow::Free) };
            let (was_never_locked, pid): (bool, Option<i64>) = (column(row, 0)?, column(row, 1)?);
            if was_never_locked {
                return Ok(LookedRow::Free);
            }
            if let Some(pid) = pid {
                let (program, address): (&str, &str) = (column(row, 2)?, column(row, 3)?);
                let held: Option<f64> = column(row, 4)?;
                let held = held.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                let owner = format!("{program} at {address}");
                let holder = RowHolder { session: pid.to_string(), owner, held };
                return Ok(LookedRow::Locked(Some(holder)));
            }
            // Several transactions can share the lock of a row, as a foreign key does: then the row has another number,
            // and only a try to lock it tells whether one of them has not ended.
            let outcome = self.lock_row(name).await?;
            if matches!(outcome, TryLock::Locked(_)) {
                self.unlock().await?;
            }
            Ok(if outcome == TryLock::Taken { LookedRow::Locked(None) } else { LookedRow::Free })
        })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Failed>> {
        Box::pin(async move {
            // The condition of the fixed columns alone: that of the name is replaced.
            let any = Name::new("x").map_err(|error| Failed::new(Fault::Internal, error.to_string()))?;
            let mut columns = self.rows.columns(&any, '"');
            columns[0].1 = prefix;
            let column_of_name = columns[0].0.clone();
            let part = |(index, (column, _)): (usize, &(String, &str))| match index {
                0 => format!("pg_catalog.starts_with({column}::pg_catalog.text, $1)"),
                _ => format!("{column} OPERATOR(pg_catalog.=) ${}", index + 1),
            };
            let condition = columns.iter().enumerate().map(part).collect::<Vec<_>>().join(" AND ");
            let values: Vec<&str> = columns.iter().map(|(_, value)| *value).collect();
            let text = format!(
                "SELECT {column_of_name}::pg_catalog.text FROM {} WHERE {condition} LIMIT {}",
                self.rows.quoted('"'),
                row_hold::MAX_LISTED + 1
            );
            let rows = self.query(&text, &values).await.map_err(failed)?;
            rows.iter().map(|row| column(row, 0)).collect()
        })
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, Failed>> {
        Box::pin(async {
            let mut guarantee = row_hold::guarantee();
            guarantee.note(
                "a restart of the server begins new tokens, which cannot be compared with earlier ones",
            );
            Ok(guarantee)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that frees the row of a vanished client earlier would let two programs hold it.
    #[test]
    fn the_server_keeps_the_session_of_a_vanished_client_longer_than_any_hold() {
        let value = |wanted| {
            let found = SETTINGS.iter().find(|(name, _)| *name == wanted);
            found.and_then(|(_, value)| value.parse::<u64>().ok()).unwrap()
        };
        let silence =
            value("tcp_keepalives_idle") + value("tcp_keepalives_interval") * value("tcp_keepalives_count");
        assert!(Duration::from_secs(silence) > row_hold::LONGEST_TTL);
        assert!(Duration::from_millis(value("tcp_user_timeout")) > row_hold::LONGEST_TTL);
        assert_eq!(value("idle_in_transaction_session_timeout"), 0);
    }
}
