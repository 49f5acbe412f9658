//! Rows of other programs on MySQL and MariaDB, each locked in a transaction of its own connection.
//!
//! The driver does not notice the end of an idle connection. So a task has each connection, and sends a statement every
//! second while the connection holds a row.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{BoxFuture, Contact, Diagnostic, Fault, Guarantee, Instant, Lineage, Name};
use tokio::sync::{mpsc, oneshot};

use super::{
    config::Config,
    conn::{Conn, ResultSet},
    diagnose::{Subject, diagnose},
    error::{Commits, ExecuteError},
    first_second,
    server::Server as Variables,
    statements::SERVER,
    text::{comma_list, text_literal},
};
use crate::{
    database::Failed,
    row_hold::{self, EndReport, LookedRow, RowEngine, RowServer, RowSession, RowTable, TryLock},
    runtime,
};

/// Settings of the session, and then the values that the server has of some of them. A transaction of a hold is idle
/// between two pulses. A client that vanished is noticed after 90 s without a statement, later than its holds end by
/// its own clock.
const SET_UP: &str = "SET NAMES utf8mb4; SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION autocommit = 1, \
    SESSION completion_type = NO_CHAIN, SESSION sql_select_limit = 18446744073709551615, SESSION sql_safe_updates = 0, \
    SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 3, SESSION wait_timeout = 90 \
    /*M!100300 , SESSION idle_transaction_timeout = 0, SESSION idle_write_transaction_timeout = 0, \
    SESSION idle_readonly_transaction_timeout = 0, SESSION max_statement_time = 4 */; \
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
    SELECT CAST(@@SESSION.wait_timeout AS SIGNED), CAST(CONNECTION_ID() AS SIGNED)";
/// The value of `wait_timeout` that [`SET_UP`] sets.
const WAIT_TIMEOUT: i64 = 90;
/// Whether the server is a primary, the number of the connection, and whether a transaction is open, which only MariaDB
/// tells.
const PROOF: &str = "SELECT CAST(@@GLOBAL.read_only AS CHAR) IN ('0', 'OFF'), CAST(CONNECTION_ID() AS SIGNED), \
    1 /*M!100000 AND @@SESSION.in_transaction */";
/// A number that grows on one server, also over its restarts, and the number of the connection. The upper byte is the
/// number of the server, which would make the number too large for columns of most tables.
const NUMBERS: &str =
    "SELECT CAST(UUID_SHORT() & 72057594037927935 AS SIGNED), CAST(CONNECTION_ID() AS SIGNED)";
/// The time between two statements on a connection that holds a row.
const PULSE: Duration = Duration::from_secs(1);
/// How long a connection that does not answer is kept: as long as a hold can be valid.
const ANSWER_LIMIT: Duration = row_hold::LONGEST_TTL;
/// The errors of a row that another transaction has locked: `ER_LOCK_WAIT_TIMEOUT`, `ER_LOCK_NOWAIT`.
const TAKEN: [u16; 2] = [1205, 3572];

/// Holds in rows of other programs. This function does not connect; the first request does.
#[must_use]
pub fn row_engine(config: Config, rows: RowTable) -> RowEngine {
    RowEngine::of(Arc::new(Server { config, rows: Arc::new(rows), contact: Contact::default() }), "mysql")
}

struct Server {
    config: Config,
    rows: Arc<RowTable>,
    contact: Contact,
}

struct Session {
    requests: mpsc::Sender<Request>,
    rows: Arc<RowTable>,
    lineage: Lineage,
    shared: Arc<Shared>,
    /// Tells the task of the connection that the session was dropped.
    _closing: oneshot::Sender<()>,
}

/// What a session shares with the task of its connection.
struct Shared {
    /// The number of the connection, which a proxy that switches between servers changes.
    id: i64,
    has_ended: AtomicBool,
}

/// Some statements, and where their results go.
struct Request {
    text: String,
    reply: oneshot::Sender<Result<Vec<ResultSet>, ExecuteError>>,
}

impl RowServer for Server {
    fn open(&self, end: EndReport) -> BoxFuture<'_, Result<Arc<dyn RowSession>, Failed>> {
        Box::pin(async move {
            let session = Conn::within_dial_limit(&self.config, self.connect(end)).await?;
            Ok(Arc::new(session) as Arc<dyn RowSession>)
        })
    }

    fn how_to_end(&self, _: Option<&str>) -> String {
        "the server does not say whose it is; information_schema.innodb_trx lists the transactions with their sessions \
         (trx_mysql_thread_id), and KILL ends a session"
            .into()
    }

    fn rows(&self) -> &RowTable {
        &self.rows
    }

    fn contact(&self) -> &Contact {
        &self.contact
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, Failed>> {
        let subject = Subject::RowHolds(self.rows.quoted('`'), self.rows.creates());
        Box::pin(async move { diagnose(&self.config, &subject).await })
    }
}

impl Server {
    async fn connect(&self, end: EndReport) -> Result<Session, Failed> {
        let (mut conn, _) = Conn::connect(&self.config, Instant::from_nanos(0)).await?;
        let (wait_timeout, id) = pair(&conn.execute(SET_UP).await.map_err(classified)?)?;
        if wait_timeout != WAIT_TIMEOUT {
            let message = format!(
                "the session has wait_timeout={wait_timeout} and not {WAIT_TIMEOUT}: a proxy drops the settings, name the server itself"
            );
            return Err(Failed::new(Fault::Misconfigured, message));
        }
        let variables = Variables::read(conn.execute(SERVER.statements()).await.map_err(classified)?);
        variables.check_writable()?;
        if variables.is_galera() {
            let message = "the server is a node of Galera, where the lock of a row excludes only on one node: use hold=lease";
            return Err(Failed::new(Fault::Misconfigured, message));
        }
        if variables.is_group_with_several_primaries() {
            let message = "the server is one of several primaries of a group, where the lock of a row excludes only on one server: use hold=lease";
            return Err(Failed::new(Fault::Misconfigured, message));
        }
        first_second::wait_until_over(&mut conn, &variables).await?;
        let (requests, received) = mpsc::channel(1);
        let shared = Arc::new(Shared { id, has_ended: AtomicBool::new(false) });
        let (closing, dropped) = oneshot::channel();
        runtime::spawn(serve(conn, received, dropped, Arc::clone(&shared), end));
        let (rows, lineage) = (Arc::clone(&self.rows), Lineage::new(variables.identity()));
        let session = Session { requests, rows, lineage, shared, _closing: closing };
        session.check_table().await?;
        Ok(session)
    }
}

/// Executes requests until the session is dropped or the connection ends, and reports the end.
async fn serve(
    mut conn: Conn,
    mut requests: mpsc::Receiver<Request>,
    mut dropped: oneshot::Receiver<()>,
    shared: Arc<Shared>,
    end: EndReport,
) {
    loop {
        let request = tokio::select! {
            _ = &mut dropped => break,
            request = requests.recv() => match request {
                Some(request) => Some(request),
                None => break,
            },
            () = runtime::sleep(PULSE) => None,
        };
        // Asked after the sleep: the client learns of its lock only after the request that locked the row.
        if request.is_none() && !end.is_holding() {
            continue;
        }
        let text = request.as_ref().map_or(PROOF, |request| &request.text);
        let result = tokio::select! {
            // Nobody waits for the answer.
            _ = &mut dropped => break,
            result = runtime::within(ANSWER_LIMIT, conn.execute_unlimited(text)) => result,
        };
        let result = result.unwrap_or(Err(ExecuteError::TimedOut(ANSWER_LIMIT)));
        let is_good = match &result {
            Ok(sets) => request.is_some() || shared.is_proven_by(sets),
            Err(ExecuteError::ServerError { .. }) => request.is_some(),
            Err(_) => false,
        };
        let is_broken = conn.is_closed() || !is_good;
        if is_broken {
            shared.has_ended.store(true, Ordering::Release);
        }
        if let Some(Request { reply, .. }) = request {
            // The client may have stopped waiting.
            let _ = reply.send(result);
        }
        if is_broken {
            break;
        }
    }
    shared.has_ended.store(true, Ordering::Release);
    drop(conn);
    drop(end);
}

impl Shared {
    /// Whether the answer to [`PROOF`] says that the hold of this connection still excludes.
    fn is_proven_by(&self, sets: &[ResultSet]) -> bool {
        let row = sets.last().and_then(|set| set.rows.last()).cloned();
        let numbers = row.and_then(|row| mysql_async::from_row_opt::<(i64, i64, i64)>(row).ok());
        numbers == Some((1, self.id, 1))
    }
}

/// Begins a transaction, locks the row, and makes the number after that.
fn lock_text(table: &str, condition: &str) -> String {
    format!("BEGIN; SELECT 1 FROM {table} WHERE {condition} LIMIT 2 FOR UPDATE NOWAIT; {NUMBERS}")
}

fn classified(error: ExecuteError) -> Failed {
    error.classify(Commits::Never)
}

/// The two numbers of the last row.
fn pair(sets: &[ResultSet]) -> Result<(i64, i64), Failed> {
    let row = sets.last().and_then(|set| set.rows.last()).cloned();
    let pair = row.and_then(|row| mysql_async::from_row_opt::<(i64, i64)>(row).ok());
    pair.ok_or_else(|| Failed::new(Fault::Internal, "the server returned no numbers"))
}

impl Session {
    async fn execute(&self, text: String) -> Result<Vec<ResultSet>, ExecuteError> {
        let broken = || ExecuteError::AnswerLost("it was closed".to_owned());
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request { text, reply }).await.map_err(|_| broken())?;
        answer.await.unwrap_or_else(|_| Err(broken()))
    }

    /// Refuses tables in which the lock of a row excludes nobody: of another storage engine, and views.
    async fn check_table(&self) -> Result<(), Failed> {
        let (schema, table) = self.rows.schema_and_table();
        let text = format!(
            "SELECT COALESCE(engine, table_type) FROM information_schema.tables WHERE table_schema = {} AND table_name = {}",
            schema.map_or_else(|| "DATABASE()".to_owned(), text_literal),
            text_literal(table)
        );
        let sets = self.execute(text).await.map_err(classified)?;
        let row = sets.into_iter().flat_map(|set| set.rows).next();
        let Some(engine) = row.and_then(|row| mysql_async::from_row_opt::<String>(row).ok()) else {
            // The table is missing, or the user has no right to it: this statement tells which.
            let text = format!("SELECT 1 FROM {} LIMIT 0", self.rows.quoted('`'));
            self.execute(text).await.map_err(classified)?;
            let message = format!(
                "the server does not tell the storage engine of the table {table}: write its name as SHOW TABLES does"
            );
            return Err(Failed::new(Fault::Misconfigured, message));
        };
        if engine.eq_ignore_ascii_case("InnoDB") {
            return Ok(());
        }
        let message = format!(
            "the table {table} is {engine}, and only the lock of a row of an InnoDB table excludes: change its engine, or use hold=lease"
        );
        Err(Failed::new(Fault::Misconfigured, message))
    }

    fn condition(&self, name: &Name) -> String {
        let columns = self.rows.columns(name, '`');
        let parts = columns.iter().map(|(column, value)| format!("{column} = {}", text_literal(value)));
        parts.collect::<Vec<_>>().join(" AND ")
    }

    /// Begins a transaction, locks the row, and makes the number, in one round trip.
    async fn lock_row(&self, name: &Name) -> Result<TryLock, Failed> {
        let text = lock_text(&self.rows.quoted('`'), &self.condition(name));
        match self.execute(text).await {
            Ok(sets) if sets.get(1).is_some_and(|set| set.rows.len() > 1) => {
                self.unlock().await?;
                Err(row_hold::several_rows(&self.rows.described(name)))
            }
            Ok(sets) if sets.get(1).is_some_and(|set| !set.rows.is_empty()) => {
                let (number, id) = pair(&sets)?;
                if id != self.shared.id {
                    let message =
                        "a proxy switches between connections to the server: name the server itself";
                    return Err(Failed::new(Fault::Misconfigured, message));
                }
                Ok(TryLock::Locked(number.cast_unsigned()))
            }
            Ok(_) => {
                self.unlock().await?;
                Ok(TryLock::Missing)
            }
            Err(ExecuteError::ServerError { code, .. }) if TAKEN.contains(&code) => {
                self.unlock().await?;
                Ok(TryLock::Taken)
            }
            Err(error) => {
                if matches!(error, ExecuteError::ServerError { .. }) {
                    self.unlock().await?;
                }
                Err(classified(error))
            }
        }
    }

    /// Creates the row of a name, unless there is one.
    async fn create_row(&self, name: &Name) -> Result<(), Failed> {
        let columns = self.rows.columns(name, '`');
        let names = comma_list(columns.iter().map(|(column, _)| column.clone()));
        let values = comma_list(columns.iter().map(|(_, value)| text_literal(value)));
        let (table, first) = (self.rows.quoted('`'), &columns[0].0);
        let text = format!(
            "INSERT INTO {table} ({names}) VALUES ({values}) ON DUPLICATE KEY UPDATE {first} = {first}"
        );
        self.execute(text).await.map(drop).map_err(classified)
    }
}

impl RowSession for Session {
    fn lock<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<TryLock, Failed>> {
        Box::pin(self.lock_row(name))
    }

    fn create<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<(), Failed>> {
        Box::pin(self.create_row(name))
    }

    fn unlock(&self) -> BoxFuture<'_, Result<(), Failed>> {
        Box::pin(async { self.execute("ROLLBACK".to_owned()).await.map(drop).map_err(classified) })
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), Failed>> {
        Box::pin(async { self.execute("DO 0".to_owned()).await.map(drop).map_err(classified) })
    }

    fn heartbeat(&self) -> BoxFuture<'_, Result<(), Failed>> {
        Box::pin(async {
            let sets = self.execute(PROOF.to_owned()).await.map_err(classified)?;
            if self.shared.is_proven_by(&sets) {
                return Ok(());
            }
            let message = "the server became read-only, or the transaction of the hold has ended";
            Err(Failed::new(Fault::Refused, message))
        })
    }

    fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Acquire)
    }

    fn lineage(&self) -> Lineage {
        self.lineage
    }

    fn look<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<LookedRow, Failed>> {
        Box::pin(async move {
            // Only MySQL tells whose the lock of a row is, and only users with a right that few have. The statement
            // shares the lock of the row until it ends: there is no transaction.
            let text = format!(
                "SELECT 1 FROM {} WHERE {} /*!80000 FOR SHARE NOWAIT */ /*M!100300 LOCK IN SHARE MODE NOWAIT */",
                self.rows.quoted('`'),
                self.condition(name)
            );
            match self.execute(text).await {
                Ok(_) => Ok(LookedRow::Free),
                Err(ExecuteError::ServerError { code, .. }) if TAKEN.contains(&code) => {
                    Ok(LookedRow::Locked(None))
                }
                Err(error) => Err(classified(error)),
            }
        })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Failed>> {
        Box::pin(async move {
            let any = Name::new("x").map_err(|error| Failed::new(Fault::Internal, error.to_string()))?;
            let columns = self.rows.columns(&any, '`');
            let column = &columns[0].0;
            let begins = format!(
                "LEFT(CONVERT({column} USING utf8mb4), {}) = {}",
                prefix.chars().count(),
                text_literal(prefix)
            );
            let fixed =
                columns[1..].iter().map(|(column, value)| format!("{column} = {}", text_literal(value)));
            let condition = std::iter::once(begins).chain(fixed).collect::<Vec<_>>().join(" AND ");
            let text = format!(
                "SELECT CONVERT({column} USING utf8mb4) FROM {} WHERE {condition} LIMIT {}",
                self.rows.quoted('`'),
                row_hold::MAX_LISTED + 1
            );
            let sets = self.execute(text).await.map_err(classified)?;
            let rows = sets.into_iter().flat_map(|set| set.rows);
            Ok(rows.filter_map(|row| mysql_async::from_row_opt::<String>(row).ok()).collect())
        })
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, Failed>> {
        Box::pin(async {
            let mut guarantee = row_hold::guarantee();
            guarantee.note("tokens grow as long as the clock of the server is not set back before a restart");
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
        assert!(Duration::from_secs(WAIT_TIMEOUT.unsigned_abs()) > row_hold::LONGEST_TTL);
        assert!(SET_UP.contains(&format!("SESSION wait_timeout = {WAIT_TIMEOUT} ")));
    }

    /// Else a later holder could have a smaller token: the number of an earlier try that was granted later.
    #[test]
    fn the_number_is_made_after_the_row_is_locked() {
        let text = lock_text("t", "c = 1");
        assert!(text.find("FOR UPDATE").unwrap() < text.find("UUID_SHORT").unwrap(), "{text}");
    }
}
